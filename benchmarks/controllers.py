"""How close each drafting policy comes to the best fixed γ, over round trips and speeds of drafting: target at 40 ms,
one session, all prompts. `ratio`, `learned` and `proportional` at eager pace; fixed γ at both paces, chains. `learned`
is judged after 50 answers, beside `ratio` over the same answers of the same device.
"""

from __future__ import annotations

import argparse
import json
import math
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from outrider.harness.simulation.measures import Run, measures
from outrider.harness.simulation.scenario import SHIPPED_SETS, Scenario, resolve
from outrider.harness.simulation.setup import Setup
from outrider.harness.simulation.virtual_run import run_virtual

RTTS_MS = (0, 20, 60, 150, 300)
DRAFTS_MS = (2, 8, 20, 40, 90)
GAMMAS = range(1, 17)
PACES = ("patient", "eager")
WARM_UP_ANSWERS = 50
# What was asked for: of the best fixed γ of each cell, of `ratio` after the warm-up, and over the best γ for all cells.
LEAST_OF_FIXED, LEAST_OF_RATIO, LEAST_GAIN = 0.95, 0.98, 1.08
HEADINGS = (
    "RTT", "draft", "best fixed γ", "ms/token", "ratio", "of fixed", "proportional", "ratio after 50",
    "learned after 50", "of ratio",
)  # fmt: skip

Cell = tuple[int, int]
Found = dict[str, Any]


@dataclass(frozen=True, slots=True)
class WarmedUp(Setup):
    """One session that answers `WARM_UP_ANSWERS` prompts before each recording once."""

    def judged(self, session: int) -> int:
        """See `Setup.judged`."""
        return WARM_UP_ANSWERS + len(self.recordings)


def main() -> None:
    """Print the table and what it comes to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recordings", choices=SHIPPED_SETS, default="greedy")
    parser.add_argument("--fixed", type=Path, help="keep the results of fixed γ, which take longest, in this file")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    kept = json.loads(options.fixed.read_text()) if options.fixed and options.fixed.exists() else {}
    cells = [(rtt_ms, draft_ms) for rtt_ms in RTTS_MS for draft_ms in DRAFTS_MS]
    print(f"| {' | '.join(HEADINGS)} |\n{'|---' * len(HEADINGS)}|", flush=True)
    found: dict[Cell, Found] = {}
    with ProcessPoolExecutor(options.jobs) as pool:
        jobs = [pool.submit(measure, options.recordings, cell, kept.get(str(cell))) for cell in cells]
        for cell, job in zip(cells, jobs, strict=True):
            found[cell] = job.result()
            kept[str(cell)] = found[cell]["fixed"]
            if options.fixed:
                options.fixed.write_text(json.dumps(kept))
            print(f"| {' | '.join(_row(cell, found[cell]))} |", flush=True)
    print("\n" + "\n".join(_summary(found)))


def measure(recordings: str, cell: Cell, fixed: dict[str, float] | None) -> Found:
    """Milliseconds a token of every policy in one cell; those of fixed γ are taken over if they are known."""
    scenario = {"recordings": recordings, "target_ms": 40, "rtt_ms": cell[0], "draft_ms": cell[1]}
    setup = resolve(Scenario.model_validate(scenario))
    warmed_up = WarmedUp(**{field.name: getattr(setup, field.name) for field in fields(Setup)})
    return {
        "fixed": fixed or {f"{gamma} {pace}": _ms(setup, "fixed", gamma, pace) for gamma in GAMMAS for pace in PACES},
        "ratio": _ms(setup, "ratio"),
        "proportional": _ms(setup, "proportional"),
        "ratio after": _ms(warmed_up, "ratio"),
        "learned after": _ms(warmed_up, "learned"),
    }


def _ms(setup: Setup, control: str, gamma: int | None = None, pace: str = "eager") -> float:
    run = run_virtual(setup.with_drafting(control=control, gamma=gamma, pace=pace))
    judged = run.answers[-len(setup.recordings) :]
    return float(measures(Run(judged, run.passes, run.guesses))["ms_per_token"])


def _row(cell: Cell, found: Found) -> Iterator[str]:
    fixed: dict[str, float] = found["fixed"]
    best = min(fixed, key=lambda name: fixed[name])
    yield from (str(value) for value in cell)
    yield f"{best}"
    yield f"{fixed[best]:.1f}"
    yield f"{found['ratio']:.1f}"
    yield f"{fixed[best] / found['ratio']:.2f}"
    yield f"{found['proportional']:.1f}"
    yield f"{found['ratio after']:.1f}"
    yield f"{found['learned after']:.1f}"
    yield f"{found['ratio after'] / found['learned after']:.3f}"


def _summary(found: dict[Cell, Found]) -> Iterator[str]:
    of_fixed = {cell: min(result["fixed"].values()) / result["ratio"] for cell, result in found.items()}
    of_ratio = {cell: result["ratio after"] / result["learned after"] for cell, result in found.items()}
    for name, shares, bar in (
        ("ratio, of the best fixed γ of the cell", of_fixed, LEAST_OF_FIXED),
        ("learned after 50 answers, of ratio", of_ratio, LEAST_OF_RATIO),
    ):
        worst = min(shares, key=lambda cell: shares[cell])
        yield f"{name}: at least {shares[worst]:.3f} (RTT {worst[0]}, draft {worst[1]}); asked for: {bar}"
    settings = next(iter(found.values()))["fixed"]
    single = min(settings, key=lambda name: _mean(found, name))
    gain = math.exp(_mean(found, single) - sum(math.log(result["ratio"]) for result in found.values()) / len(found))
    yield f"ratio over the best single γ for all cells ({single}), geometric mean: {gain:.3f}; asked for: {LEAST_GAIN}"


def _mean(found: dict[Cell, Found], setting: str) -> float:
    """Mean logarithm of a fixed γ's milliseconds a token over all cells."""
    return sum(math.log(result["fixed"][setting]) for result in found.values()) / len(found)


if __name__ == "__main__":
    main()
