"""What drafting on while verdicts fly brings: one session over round trips against streaming and the oracle, by kind of
prompt and temperature; and accelerator time against co-located speculation, by sessions.
"""

from __future__ import annotations

import argparse
from typing import Any

from outrider.harness.simulation.colocated import run_colocated
from outrider.harness.simulation.measures import measures
from outrider.harness.simulation.oracle import run_oracle
from outrider.harness.simulation.scenario import Scenario, resolve
from outrider.harness.simulation.virtual_run import run_virtual

RTTS_MS = (0, 20, 60, 150, 300)
COLOCATED_GAMMAS = (1, 2, 3, 4, 5, 6, 8, 10, 12)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=["speed", "capacity"], required=True)
    part = parser.parse_args().part
    if part == "speed":
        speed()
    else:
        capacity()


def speed() -> None:
    """Speed over streaming of eager and patient pace, drafter at 8 ms."""
    print("| recordings | prompts | target | RTT | eager | of the oracle | passes | patient | its passes | longer by |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    kinds = {"greedy": ((), ("code",), ("chat",), ("edit",)), "nucleus": ((),), "full": ((),)}
    for recordings, categories in kinds.items():
        for category in categories:
            for target_ms in (40, 25):
                for rtt_ms in RTTS_MS:
                    options = {"recordings": recordings, "category": category, "target_ms": target_ms, "rtt_ms": rtt_ms}
                    setup = resolve(Scenario.model_validate(options | {"draft_ms": 8, "control": "ratio"}))
                    eager, patient = (
                        measures(run_virtual(setup.with_drafting(pace=pace))) for pace in ("eager", "patient")
                    )
                    oracle = measures(run_oracle(setup))["ms_per_token"]
                    name = category[0] if category else "all"
                    print(
                        f"| {recordings} | {name} | {target_ms} | {rtt_ms} | {target_ms / eager['ms_per_token']:.2f} | "
                        f"{oracle / eager['ms_per_token']:.2f} | {eager['passes_per_token']:.3f} | "
                        f"{target_ms / patient['ms_per_token']:.2f} | {patient['passes_per_token']:.3f} | "
                        f"{100 * (patient['ms_per_token'] / eager['ms_per_token'] - 1):+.0f} % |",
                        flush=True,
                    )


def capacity() -> None:
    """Accelerator ms per token and p95 gap, all prompts, greedy, target 25 ms, RTT 20 ms, drafter at 8 ms."""
    print("| sessions | way | accelerator ms/token | better by | ms/token | p95 gap ms | passes/token |")
    print("|---|---|---|---|---|---|---|")
    for sessions in (1, 2, 4, 8, 16, 32):
        base = {"target_ms": 25, "rtt_ms": 20, "draft_ms": 8, "sessions": sessions}
        setup = resolve(Scenario.model_validate(base))
        rivals = {f"co-located, γ {gamma}": measures(run_colocated(setup, gamma)) for gamma in COLOCATED_GAMMAS}
        name, rival = min(rivals.items(), key=lambda item: float(item[1]["accelerator_ms_per_token"]))
        _print_capacity(sessions, name, rival, rival)
        for control, gamma, pace in (
            ("fixed", 3, "patient"),
            ("fixed", 5, "patient"),
            ("ratio", None, "patient"),
            ("ratio", None, "eager"),
        ):
            drafting = setup.with_drafting(control=control, gamma=gamma, pace=pace)
            label = f"{control} γ {gamma}, {pace}" if control == "fixed" else f"{control}, {pace}"
            _print_capacity(sessions, label, measures(run_virtual(drafting)), rival)


def _print_capacity(sessions: int, name: str, result: dict[str, Any], rival: dict[str, Any]) -> None:
    accelerator_ms = result["accelerator_ms_per_token"]
    print(
        f"| {sessions} | {name} | {accelerator_ms:.3f} | {rival['accelerator_ms_per_token'] / accelerator_ms:.2f} | "
        f"{result['ms_per_token']:.1f} | {result['gap_ms']['p95']:.0f} | {result['passes_per_token']:.3f} |",
        flush=True,
    )


if __name__ == "__main__":
    main()
