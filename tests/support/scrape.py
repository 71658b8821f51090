"""Metrics as a scraper sees them."""

from __future__ import annotations

import asyncio
import urllib.request
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families


@dataclass(frozen=True)
class Scrape:
    """What one scrape said."""

    text: str

    def value(self, name: str, **labels: str) -> float:
        """The one sample of that name and those labels."""
        (found,) = [
            sample.value
            for family in text_string_to_metric_families(self.text)
            for sample in family.samples
            if sample.name == name and sample.labels == labels
        ]
        return float(found)

    def names(self) -> set[str]:
        """Names of all samples."""
        return {s.name for family in text_string_to_metric_families(self.text) for s in family.samples}


async def scrape(address: str) -> Scrape:
    """Scrape HOST:PORT."""

    def read() -> str:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=5) as response:
            text: str = response.read().decode()
            return text

    return Scrape(await asyncio.to_thread(read))
