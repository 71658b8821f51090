"""Whether a process has stopped growing: the first and the last quarter of what was sampled after a warm-up."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from outrider.harness.soak.usage import Taken

WARM_UP = 0.2
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Tolerance:
    """By how much the median of the last quarter may be above that of the first: memory by the smaller of a share and
    a number of bytes, threads and open files by a number. Measured in five minutes: 0.7 MiB of 75 (1 %), no thread, and
    2 files to either side; a verifier that kept each session grew by 1.8 MiB in 48 s.
    """

    rss_share: float = 0.02
    rss_bytes: int = 8 * MIB
    threads: int = 2
    files: int = 8


@dataclass(frozen=True, slots=True)
class Trend:
    """Medians of the first and the last quarter: resident bytes, threads, open files."""

    rss: tuple[float, float]
    threads: tuple[float, float]
    files: tuple[float, float]

    def __str__(self) -> str:
        rss = " -> ".join(f"{value / MIB:.1f}" for value in self.rss)
        return (
            f"RSS {rss} MiB, threads {self.threads[0]:g} -> {self.threads[1]:g}, "
            f"files {self.files[0]:g} -> {self.files[1]:g}"
        )


def trend(samples: Sequence[Taken]) -> Trend:
    """The trend after the first `WARM_UP` of all samples, of which there is at least one."""
    warm = samples[int(len(samples) * WARM_UP) :]
    quarter = max(1, len(warm) // 4)

    def ends(value: Callable[[Taken], int]) -> tuple[float, float]:
        return statistics.median(map(value, warm[:quarter])), statistics.median(map(value, warm[-quarter:]))

    return Trend(ends(lambda s: s.rss_bytes), ends(lambda s: s.threads), ends(lambda s: s.files))


def growth(name: str, found: Trend, tolerance: Tolerance) -> list[str]:
    """What has grown by more than it may, in words."""
    allowed = {
        "RSS": (found.rss, min(tolerance.rss_share * found.rss[0], tolerance.rss_bytes)),
        "threads": (found.threads, tolerance.threads),
        "open files": (found.files, tolerance.files),
    }
    return [
        f"{name}: {what} grew from {first:.0f} to {last:.0f}, allowed is {most:.0f} more"
        for what, ((first, last), most) in allowed.items()
        if last - first > most
    ]
