"""Puts the 1:10 rule to the test: candidates of one vocabulary at several scenarios, draft times scaled to a phone's;
and how often a 7B draft model on a phone would have to be right to beat a 1.5B there, or plain streaming.

Further candidates are made by quantising the two models again with llama.cpp's own quantiser, into --folder. Quantised
twice they are somewhat worse than files made from the full weights would be.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import llama_cpp

from outrider.harness.drafter_ranking.candidates import candidates_of
from outrider.harness.drafter_ranking.choice import fastest_choice, plain_streaming
from outrider.harness.drafter_ranking.speed import measure_speed
from outrider.harness.recording.library import RecordingSet
from outrider.harness.recording.session import PROMPT_ROOM
from outrider.harness.simulation.planning import LEAST_GAIN
from outrider.harness.simulation.scenario import Scenario, resolve
from outrider.harness.simulation.setup import Setup
from outrider.harness.simulation.simulate import simulate
from outrider.harness.simulation.synthetic import synthetic_recordings
from outrider.shared.llama.runtime import LlamaModel
from outrider.shared.models.store import default_store

SMALL, TARGET = "qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b"
FILE_TYPES = {
    "q2_k": llama_cpp.LLAMA_FTYPE_MOSTLY_Q2_K,
    "q3_k_m": llama_cpp.LLAMA_FTYPE_MOSTLY_Q3_K_M,
    "q8_0": llama_cpp.LLAMA_FTYPE_MOSTLY_Q8_0,
}
MADE = ((SMALL, "q2_k"), (SMALL, "q3_k_m"), (SMALL, "q8_0"), (TARGET, "q2_k"))
SCENARIOS = ((40, 20), (40, 60), (25, 20), (25, 60))
# Published: 1.5B on a Snapdragon 8 Gen 3, and 8B on a phone's NPU; milliseconds a token.
PHONE_SMALL_MS, PHONE_LARGE_MS = 36.6, 59.0
ASSUMED_ACCEPTANCE = (0.6, 0.7, 0.8, 0.9)
# The slow target is there to show from where on the question has another answer than never.
ACCEPTANCE_SCENARIOS = (*SCENARIOS, (100, 20))
ANSWERS, TOKENS = 4, 128
STEP = 0.01
ROUNDS = 3


def main() -> None:
    """Print markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=("ranking", "acceptance"), action="append")
    parser.add_argument("--folder", type=Path, default=Path("/tmp/outrider-drafter-rule"), help="models, recordings")
    parser.add_argument("--limit", type=int, default=8)
    parser.add_argument("--max-tokens", type=int, default=64)
    arguments = parser.parse_args()
    parts = arguments.part or ["ranking", "acceptance"]
    if "ranking" in parts:
        print_ranking(arguments.folder, arguments.limit, arguments.max_tokens)
    if "acceptance" in parts:
        print_acceptance()


def print_ranking(folder: Path, limit: int, max_tokens: int) -> None:
    """One table of what was measured here, one of the scenarios, and the verdicts."""
    drafts = [SMALL, *(str(make(folder, *what)) for what in MADE), TARGET]
    common = ["--limit", str(limit), "--max-tokens", str(max_tokens), "--out", str(folder / "recordings")]
    for draft in drafts:
        common += ["--draft", draft]
    # Times stand in for those that are measured once everything is recorded.
    recorded = drafters([*common, *given(dict.fromkeys(drafts, 1.0))])
    names = {entry["draft"]: entry for entry in recorded["candidates"]}
    times = measure_in_turns(drafts, folder / "recordings", max_tokens)
    factor = PHONE_SMALL_MS / min(times[TARGET])
    scaled = given({draft: factor * min(rounds) for draft, rounds in times.items()})
    results = {
        (target_ms, rtt_ms): drafters([*common, *scaled, "--target-ms", str(target_ms), "--rtt-ms", str(rtt_ms)])
        for target_ms, rtt_ms in SCENARIOS
    }
    print(
        f"{len(recorded['prompts'])} prompts, {recorded['tokens']} tokens, greedy. Draft times as measured here times"
    )
    print(f"{factor:.3f}, which makes the 1.5B Q4_K_M take a phone's {PHONE_SMALL_MS} ms.\n")
    print(
        f"Load average here {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; least of {ROUNDS} medians, in turns.\n"
    )
    print("| candidate | MB | file | weights | right | of two | ms here (rounds) | ms phone |")
    print("|---|---|---|---|---|---|---|---|")
    for entry in sorted(names.values(), key=lambda e: float(e["file_bytes"])):
        rounds = times[entry["draft"]]
        print(
            f"| {entry['name']} | {entry['file_bytes'] / 1e6:.0f} | 1:{entry['file_ratio']:.1f} | "
            f"1:{entry['parameter_ratio']:.1f} | {entry['acceptance']:.3f} | {entry['acceptance_of_two']:.3f} | "
            f"{min(rounds):.1f} ({', '.join(f'{ms:.1f}' for ms in rounds)}) | {factor * min(rounds):.1f} |"
        )
    print("\n| target, round trip | candidate | ms/token | speed-up | accelerator ms | flags |")
    print("|---|---|---|---|---|---|")
    for (target_ms, rtt_ms), result in results.items():
        for entry in result["candidates"]:
            print(
                f"| {target_ms} ms, {rtt_ms} ms | {entry['name']} | {entry['ms_per_token']:.1f} | "
                f"{entry['speedup']:.2f} | {entry['accelerator_ms_per_token']:.1f} | {entry['flags']} |"
            )
    print()
    for (target_ms, rtt_ms), result in results.items():
        print(f"- {target_ms} ms, {rtt_ms} ms: {result['rule']['sentence']}")
    print()


def given(times: Mapping[str, float]) -> list[str]:
    """Times as options."""
    return [word for draft, ms in times.items() for word in ("--draft-ms", f"{draft}={ms}")]


def measure_in_turns(drafts: Sequence[str], folder: Path, max_tokens: int) -> dict[str, list[float]]:
    """Milliseconds a token of each draft model and round, in turns. What else runs on the machine only adds to them."""
    times: dict[str, list[float]] = {draft: [] for draft in drafts}
    for _ in range(ROUNDS):
        for candidate in candidates_of(drafts, ""):
            recordings = RecordingSet.read(folder / candidate.folder, limit=3).recordings
            speed = measure_speed(candidate.draft, recordings, max_tokens + PROMPT_ROOM)
            times[candidate.draft].append(speed.token_ms)
            print(f"{candidate.name}: {speed.token_ms:.1f} ms a guess", file=sys.stderr)
    return times


def make(folder: Path, model: str, kind: str) -> Path:
    """The model quantised again, in one step; made once, and loaded to see that it does."""
    path = folder / f"{model}-{kind}.gguf"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        params = llama_cpp.llama_model_quantize_default_params()
        params.ftype = FILE_TYPES[kind]
        params.allow_requantize = True
        source = os.fsencode(default_store().resolve(model))
        code = llama_cpp.llama_model_quantize(source, os.fsencode(partial), ctypes.byref(params))
        if code:
            raise SystemExit(f"{path}: the quantiser returned {code}")
        partial.replace(path)
    LlamaModel(path).close()
    print(f"{path}: {path.stat().st_size / 1e6:.0f} MB", file=sys.stderr)
    return path


def drafters(arguments: Sequence[str]) -> dict[str, Any]:
    """What `outrider drafters` says."""
    command = [sys.executable, "-m", "outrider.shared.cli", "drafters", "--target", TARGET, "--json", *arguments]
    answer: dict[str, Any] = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    return answer


def print_acceptance() -> None:
    """The least acceptance with which the slow draft model wins, for each rival."""
    print(f"How often a 7B on a phone ({PHONE_LARGE_MS:g} ms a token) must be right to beat each rival by 3 %; a rival")
    print(f"1.5B drafts in {PHONE_SMALL_MS} ms, and streams plainly where that is faster. {ANSWERS} made-up answers of")
    print(f"{TOKENS} tokens. Bound: the 7B always right, with a policy that knows the future.\n")
    rivals = " | ".join(f"1.5B right {share:.0%}" for share in ASSUMED_ACCEPTANCE)
    print(f"| target, round trip | bound | plain streaming | {rivals} |")
    print("|---|---|---|" + "---|" * len(ASSUMED_ACCEPTANCE))
    for target_ms, rtt_ms in ACCEPTANCE_SCENARIOS:
        streaming_ms = plain_streaming(setup_of(target_ms, rtt_ms, PHONE_SMALL_MS, 0.5))["ms_per_token"]
        bound_ms = oracle_ms(setup_of(target_ms, rtt_ms, PHONE_LARGE_MS, 1.0))
        cells = [f"{bound_ms:.1f}", least_acceptance(target_ms, rtt_ms, streaming_ms)]
        for acceptance in ASSUMED_ACCEPTANCE:
            small_ms = min(streaming_ms, best_ms(target_ms, rtt_ms, PHONE_SMALL_MS, acceptance))
            cells.append(f"{least_acceptance(target_ms, rtt_ms, small_ms)} ({small_ms:.1f} ms)")
        print(f"| {target_ms} ms, {rtt_ms} ms | " + " | ".join(cells) + " |", flush=True)


def least_acceptance(target_ms: float, rtt_ms: float, rival_ms: float) -> str:
    """By bisection over hundredths; more acceptance is never slower, but for the luck of the draw."""

    def beats(hundredths: int) -> bool:
        return rival_ms >= LEAST_GAIN * best_ms(target_ms, rtt_ms, PHONE_LARGE_MS, hundredths * STEP)

    low, high = 0, round(1 / STEP)
    if not beats(high):
        return f"none: {best_ms(target_ms, rtt_ms, PHONE_LARGE_MS, 1.0):.1f} ms even if always right"
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if beats(middle) else (middle, high)
    return f"{high * STEP:.2f}"


def oracle_ms(setup: Setup) -> float:
    """A bound for every policy: only what will be accepted is drafted, in the best order."""
    return float(simulate(Scenario(baselines=("oracle",)), setup)["baselines"]["oracle"]["ms_per_token"])


@cache
def best_ms(target_ms: float, rtt_ms: float, draft_ms: float, acceptance: float) -> float:
    """Milliseconds a token with the flags that are fastest."""
    return float(fastest_choice(setup_of(target_ms, rtt_ms, draft_ms, acceptance)).result["ms_per_token"])


def setup_of(target_ms: float, rtt_ms: float, draft_ms: float, acceptance: float) -> Setup:
    """A cool phone that drafts made-up answers."""
    scenario = Scenario(target_ms=target_ms, rtt_ms=rtt_ms, draft_ms=draft_ms, limit=1)
    made = synthetic_recordings(acceptance, answers=ANSWERS, tokens=TOKENS, seed=1)
    return replace(resolve(scenario), recordings=made)


if __name__ == "__main__":
    main()
