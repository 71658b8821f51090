"""Where splitting wins and where it loses: every shipped device over every link, at two speeds of the target, the
product beside every baseline, all prompts, greedy, one session. Takes some minutes; goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

from outrider.harness.simulation.scenario import Scenario
from outrider.harness.simulation.sweep import sweep

AXES = {
    "target": ["70b-4xa100-40ms", "70b-4xa100-25ms"],
    "device": ["phone-7b", "phone-1.5b", "laptop-7b", "laptop-1.5b", "desktop-7b", "desktop-1.5b"],
    "link": ["loopback", "wifi", "5g", "4g", "intercontinental", "satellite"],
}
WAYS = {
    "fixed": Scenario(control="fixed"),
    "eager": Scenario(control="ratio", pace="eager", baselines=("rtt_zero",)),
    "patient": Scenario(control="ratio", pace="patient", baselines=()),
}
COLUMNS = (
    "streaming", "fixed γ 5", "ratio eager", "ratio patient", "stop and wait", "co-located", "eager at RTT 0",
    "draft alone", "oracle", "passes: eager", "patient",
)  # fmt: skip


def main() -> None:
    """Run the sweeps into a folder and print one table a target."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="where the sweeps' files are kept")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    cells: dict[str, dict[tuple[str, ...], Any]] = {}
    for way, scenario in WAYS.items():
        out = options.folder / f"{way}.jsonl"
        sweep(scenario, AXES, out, options.jobs, lambda done, total, way=way: print(f"{way}: {done} of {total}"))  # type: ignore[misc]
        lines = [json.loads(line) for line in out.read_text("utf-8").splitlines()[1:]]
        cells[way] = {tuple(line["cell"].values()): line["result"] for line in lines}
    for target in AXES["target"]:
        print(f"\n{target}, ms/token (γ in brackets) and passes per token:\n")
        print(f"| device | link | {' | '.join(COLUMNS)} |")
        print("|---" * (2 + len(COLUMNS)) + "|")
        for device in AXES["device"]:
            for link in AXES["link"]:
                results = {way: cells[way][target, device, link] for way in WAYS}
                print(f"| {device} | {link} | {' | '.join(_row(results))} |")


def _row(results: dict[str, Any]) -> list[str]:
    fixed, eager, patient = results["fixed"], results["eager"], results["patient"]
    beside = fixed["baselines"]
    streaming = beside["streaming"]["ms_per_token"]
    return [
        f"{streaming:.1f}",
        *(_bold_if_faster(result["ms_per_token"], streaming) for result in (fixed, eager, patient)),
        f"{beside['stop_and_wait']['ms_per_token']:.1f} ({beside['stop_and_wait']['settings']['gamma']})",
        f"{beside['colocated']['ms_per_token']:.1f} ({beside['colocated']['settings']['gamma']})",
        f"{eager['baselines']['rtt_zero']['ms_per_token']:.1f}",
        f"{beside['draft_only']['ms_per_token']:.1f}",
        f"{beside['oracle']['ms_per_token']:.1f}",
        f"{eager['passes_per_token']:.2f}",
        f"{patient['passes_per_token']:.2f}",
    ]


def _bold_if_faster(ms: float, streaming: float) -> str:
    return f"**{ms:.1f}**" if ms < streaming / 1.03 else f"{ms:.1f}"


if __name__ == "__main__":
    main()
