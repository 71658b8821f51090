"""Prints how long the noise and the choice take: `python benchmarks/noise_speed.py`.

One core: NumPy's element-wise functions, sorts and partitions never start threads, and nothing here calls BLAS.
"""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from outrider.shared.sampling.choose import Chooser
from outrider.shared.sampling.noise import NoiseRows, gumbel, gumbel_row, words_row
from outrider.shared.sampling.options import Sampling
from outrider.shared.sampling.processors import checked_maximum, support

SIZE = 151_936
SEED = 20_240_607
ROW_COUNT = 40


def make_rows(count: int) -> list[np.ndarray[tuple[int], np.dtype[np.float32]]]:
    """Rows of logits [SIZE] with a broad body and a peaked head of 20 ids, as a language model's are."""
    random = np.random.default_rng(SEED)
    rows = []
    for _ in range(count):
        row = (random.normal(size=SIZE) * 3).astype(np.float32)
        row[random.integers(SIZE, size=20)] += random.uniform(8, 20, size=20).astype(np.float32)
        rows.append(row)
    return rows


def median_ms(call: Callable[[int], object], repeats: int = 5) -> float:
    """Median over `repeats` x ROW_COUNT calls, in milliseconds; the call gets a number that is new each time."""
    call(0)
    times_ns = []
    for number in range(repeats * ROW_COUNT):
        start_ns = time.perf_counter_ns()
        call(number)
        times_ns.append(time.perf_counter_ns() - start_ns)
    return statistics.median(times_ns) / 1e6


def main() -> None:
    """Run every case and print one line each."""
    rows = make_rows(ROW_COUNT)
    print(f"{platform.processor() or platform.machine()}, numpy {np.__version__}, {SIZE} ids, one thread, medians")

    def report(label: str, call: Callable[[int], object]) -> None:
        print(f"{label:<62} {median_ms(call):8.3f} ms", flush=True)

    def choose(label: str, **options: Any) -> None:
        sampling = Sampling(**options)
        store = NoiseRows()
        chooser = Chooser(sampling, SEED, [1], SIZE, store)
        report(
            f"choose, {label}, new position",
            lambda n: chooser.choose(rows[n % ROW_COUNT], range(n)),
        )
        store.get(SEED, 1, SIZE)
        report(f"choose, {label}, words at hand", lambda n: chooser.choose(rows[n % ROW_COUNT], ()))

    report("words of a row", lambda n: words_row(SEED, n, SIZE))
    report("noise of a row, logarithms for every id", lambda n: gumbel_row(SEED, n, SIZE))
    cut = Sampling(temperature=1.0, top_k=50)
    kept = support(rows[0], checked_maximum(rows[0]), cut)
    assert kept is not None
    report(f"noise of {len(kept)} ids", lambda n: gumbel(SEED, n, kept))
    few = np.sort(np.random.default_rng(SEED).choice(SIZE, 300, replace=False))
    report(f"noise of {len(few)} ids", lambda n: gumbel(SEED, n, few))
    choose("greedy")
    choose("T=1", temperature=1.0)
    choose("T=0.7", temperature=0.7)
    choose("T=5", temperature=5.0)
    choose("T=1 top-k 50", temperature=1.0, top_k=50)
    choose("T=0.7 top-p 0.8", temperature=0.7, top_p=0.8)
    choose("T=1 top-p 0.95 min-p 0.05", temperature=1.0, top_p=0.95, min_p=0.05)
    choose("T=1 repetition 1.1", temperature=1.0, repetition_penalty=1.1)
    cases: tuple[dict[str, Any], ...] = ({}, {"temperature": 1.0}, {"temperature": 0.7, "top_p": 0.8})
    for options in cases:
        chooser = Chooser(Sampling(**options), SEED, [1], SIZE, NoiseRows())
        rank = chooser.rank
        report(f"rank 3, {options}", lambda n, rank=rank: rank(rows[n % ROW_COUNT], range(n), 3))  # type: ignore[misc]


if __name__ == "__main__":
    main()
