"""Whether an eager answer is ever slower than plain streaming: `ratio` at eager pace over round trips from nothing to
600 ms and the shipped links, every shipped draft profile, every category of prompts; with the recorded drafter and with
one that is as sure of itself and always wrong; where rows are free, and where each row makes a pass longer.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from typing import Any

from outrider.edge.drafting import LOOKUP
from outrider.harness.links import LinkProfile
from outrider.harness.profiles import TargetProfile, load_drafters, load_links
from outrider.harness.recording.misled import always_wrong
from outrider.harness.simulation.measures import measures
from outrider.harness.simulation.scenario import SHIPPED_SETS, STEADY_LINK, Scenario, resolve
from outrider.harness.simulation.setup import Setup
from outrider.harness.simulation.virtual_run import run_virtual

RTTS_MS = (0, 10, 20, 40, 80, 150, 300, 600)
CATEGORIES = ("code", "chat", "math", "zh", "extract", "summary", "edit", "long")
TARGETS = {
    "40 ms": TargetProfile(base_ms=40, row_ms=0.19, free_rows=90, session_ms=0.04),
    "25 ms": TargetProfile(base_ms=25, row_ms=0.19, free_rows=90, session_ms=0.04),
    "dear rows": TargetProfile(base_ms=40, row_ms=10, free_rows=1, session_ms=0),
}
DRAFTERS = ("recorded", "always wrong")
ALLOWED = 1.03
RUNS = 8
SHOWN = 12

Cell = tuple[str, str, str, str]
"""Link, category, draft profile, drafter."""


def main() -> int:
    """Print the worst cells of each target; 1 if any is slower than allowed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recordings", choices=SHIPPED_SETS, default="greedy")
    parser.add_argument("--control", choices=("ratio", "learned"), default="ratio")
    parser.add_argument("--target", choices=tuple(TARGETS), action="append", help="only these (repeatable)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    failures = 0
    with ProcessPoolExecutor(options.jobs) as pool:
        for name in options.target or TARGETS:
            parts = [(options.recordings, options.control, name, link, kind) for link in links() for kind in CATEGORIES]
            found = {cell: share for part in pool.map(measure, parts) for cell, share in part.items()}
            failures += sum(share > ALLOWED for share in found.values())
            _print(name, found)
    return int(failures > 0)


def links() -> dict[str, LinkProfile]:
    """Steady ones by round trip, and the shipped ones that do more than to delay."""
    steady = {f"RTT {rtt_ms} ms": LinkProfile.of_rtt(rtt_ms) for rtt_ms in RTTS_MS}
    return steady | {name: profile.values for name, profile in load_links().items() if name != STEADY_LINK}


def measure(part: tuple[str, str, str, str, str]) -> dict[Cell, float]:
    """Time a token over streaming's, for every device and drafter over one link with one category of prompts."""
    recordings, control, target, link, category = part
    base = resolve(Scenario.model_validate({"recordings": recordings, "category": category}))
    base = replace(base, target=TARGETS[target], link=links()[link])
    streaming_ms = _ms(base.with_drafting(drafter="none", pace="eager"))
    eager = base.with_drafting(control=control, pace="eager")
    found: dict[Cell, float] = {}
    for device, profile in load_drafters().items():
        setup = replace(eager, device=profile.values)
        if device == LOOKUP:
            found[link, category, device, LOOKUP] = _ms(setup.with_drafting(drafter=LOOKUP)) / streaming_ms
            continue
        for drafter in DRAFTERS:
            played = base.recordings if drafter == "recorded" else always_wrong(base.recordings)
            found[link, category, device, drafter] = _ms(replace(setup, recordings=played)) / streaming_ms
    return found


def _ms(setup: Setup) -> float:
    """Over links that lose messages the mean of several runs: which messages a few losses meet is luck."""
    seeds = range(1, 1 + (RUNS if setup.link.loss_probability else 1))
    runs = (run_virtual(replace(setup, seed=seed)) for seed in seeds)
    return sum(float(measures(run)["ms_per_token"]) for run in runs) / len(seeds)


def _print(target: str, found: dict[Cell, float]) -> None:
    values: list[Any] = sorted(found.values())
    slower = sum(value > ALLOWED for value in values)
    print(f"\n{target}: {len(found)} cells, {slower} of them slower than allowed ({ALLOWED}); time over streaming's:\n")
    print("| link | prompts | device | drafter | over streaming |\n|---|---|---|---|---|")
    for row in _worst(found):
        print(f"| {' | '.join(row)} |", flush=True)


def _worst(found: dict[Cell, float]) -> Iterator[tuple[str, ...]]:
    for cell in sorted(found, key=lambda cell: -found[cell])[:SHOWN]:
        yield (*cell, f"{found[cell]:.3f}")


if __name__ == "__main__":
    sys.exit(main())
