"""How fast the harness simulates: simulated seconds a real second, CPU time a committed token, many sessions, and where
the time goes. Run it on an otherwise quiet machine.
"""

from __future__ import annotations

import cProfile
import pstats
import time
from typing import Any

from outrider.harness.simulation.measures import Run
from outrider.harness.simulation.scenario import Scenario, resolve
from outrider.harness.simulation.virtual_run import run_virtual

CASES: dict[str, dict[str, Any]] = {
    "one session, greedy, all prompts": {},
    "one session, greedy, eager": {"pace": "eager"},
    "one session, branch 3, eager": {"pace": "eager", "branch": 3},
    "one session, T 1": {"recordings": "full"},
    "one session, four answers of 768": {"recordings": "long"},
    "200 sessions, 5G": {"sessions": 200, "link": "5g"},
}
SHOWN = 15


def main() -> None:
    """Print a row a case, and the profile of the last one."""
    print("| case | tokens | simulated s | real s | simulated s per s | CPU ms per token |")
    print("|---|---|---|---|---|---|")
    for name, changes in CASES.items():
        setup = resolve(Scenario(control="fixed", **changes))
        began, began_cpu = time.perf_counter(), time.process_time()
        run = run_virtual(setup)
        real_s, cpu_s = time.perf_counter() - began, time.process_time() - began_cpu
        tokens, simulated_s = _tokens(run), run.passes[-1].ended_s
        print(
            f"| {name} | {tokens:,} | {simulated_s:.1f} | {real_s:.2f} | {simulated_s / real_s:.0f} | "
            f"{1000 * cpu_s / tokens:.2f} |"
        )
    profile = cProfile.Profile()
    profile.runcall(run_virtual, resolve(Scenario(control="fixed", **CASES["200 sessions, 5G"])))
    pstats.Stats(profile).sort_stats("tottime").print_stats(SHOWN)


def _tokens(run: Run) -> int:
    return sum(answer.token_count for answer in run.answers) + run.other_tokens


if __name__ == "__main__":
    main()
