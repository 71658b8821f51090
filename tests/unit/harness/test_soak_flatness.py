"""What grows for as long as it is watched is found; what has grown once, or goes up and down, is not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from outrider.harness.soak.flatness import MIB, Tolerance, growth, trend
from outrider.harness.soak.usage import Taken

SECONDS = 100


def found(rss: Callable[[int], float], threads: Callable[[int], int], files: Callable[[int], int]) -> list[str]:
    samples = [Taken(at, int(rss(at) * MIB), threads(at), files(at)) for at in range(SECONDS)]
    return growth("it", trend(samples), Tolerance())


def test_a_level_that_is_reached_in_the_warm_up_is_flat() -> None:
    assert not found(lambda at: min(60 + at, 79), lambda at: min(at, 19), lambda at: min(10 * at, 190))


def test_what_goes_up_and_down_is_flat() -> None:
    assert not found(lambda at: 80 + at % 9, lambda at: 10 + at % 3, lambda at: 40 + at % 30)


@pytest.mark.parametrize(
    ("rss", "threads", "files", "named"),
    [
        (0.1, 0, 0, "RSS"),
        (0, 0.1, 0, "threads"),
        (0, 0, 0.2, "open files"),
    ],
)
def test_what_grows_all_the_time_is_named(rss: float, threads: float, files: float, named: str) -> None:
    (text,) = found(lambda at: 80 + rss * at, lambda at: int(10 + threads * at), lambda at: int(40 + files * at))
    assert text.startswith(f"it: {named} grew from ")


def test_of_a_big_process_no_more_is_allowed_than_the_bytes() -> None:
    def rises_by(mib: float) -> list[str]:
        return found(lambda at: 4000 + mib * (at > SECONDS // 2), lambda at: 1, lambda at: 1)

    assert not rises_by(7)
    assert rises_by(9)
