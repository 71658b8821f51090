"""Runs many seeded schedules of faults, prints the seeds that fail, and how fast it went. A seed repeats its run:
--seed N --schedules 1 -v.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Sequence

from outrider.harness.faults.check import find_fault
from outrider.harness.faults.schedule import make_schedule
from outrider.harness.simulation.workers import running

PART = 500


def run_part(seeds: Sequence[int]) -> list[str]:
    """What is wrong with the schedules of `seeds`."""
    logging.disable(logging.CRITICAL)
    return [fault for seed in seeds if (fault := find_fault(seed)) is not None]


def main() -> int:
    """1 if a schedule failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schedules", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("-v", "--verbose", action="store_true", help="print each schedule")
    options = parser.parse_args()
    seeds = range(options.seed, options.seed + options.schedules)
    if options.verbose:
        for seed in seeds:
            print(make_schedule(seed))
    began_s = time.perf_counter()
    count = 0
    parts = {start: seeds[start : start + PART] for start in range(0, len(seeds), PART)}
    if options.jobs == 1:
        for part in parts.values():
            count += _tell(run_part(part))
    else:
        with running(run_part, parts, options.jobs) as futures:
            for future in futures:
                count += _tell(future.result())
    took_s = time.perf_counter() - began_s
    print(f"{len(seeds)} schedules, {count} failed, {took_s:.1f} s, {1000 * took_s / len(seeds):.1f} ms each")
    return 1 if count else 0


def _tell(faults: list[str]) -> int:
    for fault in faults:
        print(fault, flush=True)
    return len(faults)


if __name__ == "__main__":
    sys.exit(main())
