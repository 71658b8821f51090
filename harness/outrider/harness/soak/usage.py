"""What a process takes (from /proc) and what a verifier says of its sessions (from its metrics), once a second."""

from __future__ import annotations

import asyncio
import os
import re
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

EVERY_S = 1.0
_SCRAPE_LIMIT_S = 5.0
_OPEN, _PARKED, _FREE = (f"outrider_slots {state}" for state in ("open", "parked", "free"))


@dataclass(frozen=True, slots=True)
class Taken:
    """What a process has at `at_s`: resident memory in bytes, threads, open files."""

    at_s: float
    rss_bytes: int
    threads: int
    files: int


@dataclass(frozen=True, slots=True)
class Sessions:
    """A verifier's gauges: streams, open sessions, those that wait for a pass, slots by use, tokens in the KV cache;
    and how many passes failed and calls ended with INTERNAL since its start.
    """

    streams: int
    open: int
    waiting: int
    parked_slots: int
    open_slots: int
    free_slots: int
    cached_tokens: int
    failed_passes: int
    internal_errors: int

    @property
    def is_quiet(self) -> bool:
        """Whether nobody is there and nothing is kept for anybody."""
        return not (self.streams or self.open or self.waiting or self.parked_slots or self.open_slots)


def taken(pid: int, at_s: float) -> Taken:
    """What process `pid` has now."""
    status = Path(f"/proc/{pid}/status").read_text()
    rss_kib, threads = (int(_field(status, name)) for name in ("VmRSS", "Threads"))
    return Taken(at_s, rss_kib * 1024, threads, len(os.listdir(f"/proc/{pid}/fd")))  # noqa: PTH208 - names only


def _field(status: str, name: str) -> str:
    found = re.search(rf"^{name}:\s+(\d+)", status, re.MULTILINE)
    assert found is not None, f"no {name} in /proc"
    return found[1]


async def sessions(address: str) -> Sessions:
    """What the metrics at HOST:PORT say now; raises OSError."""

    def read() -> str:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=_SCRAPE_LIMIT_S) as response:
            text: str = response.read().decode()
            return text

    values = {
        " ".join([sample.name, *sample.labels.values()]): sample.value
        for family in text_string_to_metric_families(await asyncio.to_thread(read))
        for sample in family.samples
    }
    names = (
        "outrider_streams", "outrider_open_sessions", "outrider_waiting_sessions", _PARKED, _OPEN, _FREE,
        "outrider_cached_tokens", "outrider_failed_passes_total", "outrider_refusals_total INTERNAL",
    )  # fmt: skip
    return Sessions(*(int(values[name]) for name in names))


class Watch:
    """Samples of the verifier (`pid`, `metrics`) and of this process, in order, while `run` runs."""

    def __init__(self, pid: int, metrics: str) -> None:
        self.verifier: list[Taken] = []
        self.edge: list[Taken] = []
        self.sessions: list[Sessions] = []
        self._pid, self._metrics = pid, metrics

    async def run(self) -> None:
        """Sample until cancelled."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        while True:
            at_s = loop.time() - began_s
            # A scrape takes a thread of the verifier: it comes last.
            self.verifier.append(taken(self._pid, at_s))
            self.edge.append(taken(os.getpid(), at_s))
            self.sessions.append(await sessions(self._metrics))
            await asyncio.sleep(EVERY_S - (loop.time() - began_s - at_s))
