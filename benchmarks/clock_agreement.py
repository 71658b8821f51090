"""Whether both clocks of `outrider simulate` tell the same: scenarios on the virtual clock and over real gRPC with
injected delay, ms/token side by side. Jitter is drawn by time, so two runs that drift apart meet other draws of it;
losses and stalls, a few of which make a run, are left out for that.

    .venv/bin/python benchmarks/clock_agreement.py > agreement.md
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from outrider.harness.simulation.measures import measures
from outrider.harness.simulation.scenario import read_scenario, resolve
from outrider.harness.simulation.virtual_run import run_virtual
from outrider.harness.simulation.wall_run import allowed_ms, run_wall
from outrider.shared.errors import OutriderError, Reason

COMMON: dict[str, Any] = {"limit": 3, "max_tokens": 40, "control": "fixed"}
CODE, CHAT = {"category": ("code",)}, {"category": ("chat",)}
JITTER = {"rtt_ms": 40.0, "jitter": "uniform", "jitter_ms": 4.0}
NARROW = {"rtt_ms": 30.0, "up_mbit": 0.5, "down_mbit": 1.0}
SCENARIOS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("loopback, small target", CODE | {"rtt_ms": 0.0, "target_ms": 15.0, "draft_ms": 3.0, "gamma": 3}),
    ("loopback", CODE | {"rtt_ms": 0.0}),
    ("loopback, streaming", CHAT | {"rtt_ms": 0.0, "target_ms": 25.0, "drafter": "none", "pace": "eager"}),
    ("streaming", CHAT | {"rtt_ms": 50.0, "drafter": "none", "pace": "eager"}),
    ("near", CHAT | {"rtt_ms": 5.0, "target_ms": 25.0, "draft_ms": 4.0, "gamma": 4}),
    ("near, fast device", CODE | {"rtt_ms": 10.0, "target_ms": 25.0, "draft_ms": 1.0, "gamma": 8}),
    ("region", CODE | {"rtt_ms": 20.0}),
    ("region, eager", CHAT | {"rtt_ms": 20.0, "gamma": 3, "pace": "eager"}),
    ("region, siblings", CHAT | {"rtt_ms": 20.0, "gamma": 3, "branch": 2}),
    ("region, two sessions", CODE | {"rtt_ms": 20.0, "sessions": 2, "limit": 4}),
    ("narrow", CODE | {"link": NARROW}),
    ("jitter", CODE | {"link": JITTER, "gamma": 4}),
    ("phone", CHAT | {"rtt_ms": 60.0, "draft_ms": 36.6, "gamma": 2}),
    ("far, two sessions, sampled", CHAT | {"rtt_ms": 100.0, "sessions": 2, "limit": 4, "recordings": "nucleus"}),
    ("other continent", CODE | {"rtt_ms": 150.0, "gamma": 8}),
    ("other continent, eager", CHAT | {"rtt_ms": 150.0, "gamma": 5, "pace": "eager"}),
)
# The policy that grows trees, in the cells that its speed is judged by.
GROWN: dict[str, Any] = {"limit": 6, "max_tokens": 64, "control": "ratio", "draft_ms": 8.0, "pace": "eager"}
CENTRAL: tuple[tuple[str, dict[str, Any]], ...] = (
    ("code, 40 ms", CODE | GROWN | {"target_ms": 40.0, "rtt_ms": 20.0}),
    ("code, 40 ms, patient", CODE | GROWN | {"target_ms": 40.0, "rtt_ms": 20.0, "pace": "patient"}),
    ("chat, 40 ms", CHAT | GROWN | {"target_ms": 40.0, "rtt_ms": 60.0}),
    ("code, 40 ms, far", CODE | GROWN | {"target_ms": 40.0, "rtt_ms": 150.0}),
    ("code, 25 ms", CODE | GROWN | {"target_ms": 25.0, "rtt_ms": 20.0}),
)
HEADINGS = (
    "scenario", "RTT", "draft", "target", "γ", "sessions", "pace", "passes/token",
    "virtual ms/token", "wall ms/token", "difference", "allowed", "late ms/token", "verdict",
)  # fmt: skip


def main() -> int:
    """Print the table; 1 if any scenario disagrees or could not be measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=("all", "central"), default="all")
    scenarios = SCENARIOS if parser.parse_args().part == "all" else CENTRAL
    began_s = time.monotonic()
    print(f"| {' | '.join(HEADINGS)} |\n|{' --- |' * len(HEADINGS)}", flush=True)
    failures = 0
    for name, values in scenarios:
        cells, is_good = compare(COMMON | values)
        failures += not is_good
        print(f"| {' | '.join((name, *cells))} |", flush=True)
    print(f"{failures} of {len(scenarios)} disagree; {time.monotonic() - began_s:.0f} s", file=sys.stderr)
    return int(failures > 0)


def compare(values: dict[str, Any]) -> tuple[tuple[str, ...], bool]:
    """The row's cells after its name, and whether the clocks agree."""
    setup = resolve(read_scenario(None, values))
    drafting, link = setup.drafting, setup.link
    described = (
        f"{link.rtt_ms:g}", f"{setup.device.token_ms:g}", f"{setup.target.base_ms:g}",
        f"{drafting.settings()['gamma']}" if setup.drafts else "-", str(setup.sessions), str(drafting.pace),
    )  # fmt: skip
    virtual = measures(run_virtual(setup))
    expected_ms, passes = virtual["ms_per_token"], virtual["passes_per_token"]
    limit_ms = allowed_ms(expected_ms, passes)
    try:
        found = run_wall(setup)
    except OutriderError as error:
        if error.reason is not Reason.MEASUREMENT_INVALID:
            raise
        cells = (*described, f"{passes:.3f}", f"{expected_ms:.2f}", "-", "-", f"{limit_ms:.2f}", "-", error.detail)
        return cells, False
    measured_ms = measures(found.run)["ms_per_token"]
    difference_ms = measured_ms - expected_ms
    is_good = abs(difference_ms) <= limit_ms
    verdict = ("agrees" if is_good else "DISAGREES") + (", second try" if found.attempts > 1 else "")
    numbers = (expected_ms, measured_ms, difference_ms, limit_ms, found.timekeeping.late_ms_per_token)
    return (*described, f"{passes:.3f}", *(f"{number:.2f}" for number in numbers), verdict), is_good


if __name__ == "__main__":
    sys.exit(main())
