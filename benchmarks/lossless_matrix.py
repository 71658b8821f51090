"""The product's promise on the real pair: ids with drafting against the target alone, one verifier for all runs.

`--part prompts`: every prompt, γ 5 chain, greedy, T=0.7 with top-p 0.8, and T=1. `--part pairs`: a few prompts with
every pair of values of policy, γ, branch, drafter, sampling, pace and draft temperature. Prints what differs and tokens
per pass by category.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import itertools
import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from outrider.edge.agent import Agent
from outrider.edge.chunks import Result
from outrider.edge.drafting import CONTROLS, Drafting
from outrider.edge.private_verifier import private_verifier
from outrider.shared.sampling.options import Sampling

SAMPLINGS = {
    "greedy": {"temperature": 0.0, "seed": 1},
    "T0.7 top-p 0.8": {"temperature": 0.7, "top_p": 0.8, "seed": 2},
    "T1.0": {"temperature": 1.0, "seed": 3},
}
MODEL = "llama:qwen2.5-coder-0.5b"
FACTORS = {
    "control": CONTROLS,
    "gamma": (None, 1, 3, 8),
    "branch": (None, 1, 2),
    "drafter": (
        MODEL,
        f"{MODEL}+lookup",
        f"{MODEL}+lookup+ngrams",
        f"{MODEL}+scripted:wrong",
        "lookup",
        "scripted:right",
        "scripted:right-then-wrong:2",
    ),
    "sampling": tuple(SAMPLINGS),
    "pace": ("patient", "eager"),
    "draft_temperature": ("auto", "kl", "1.2"),
}
PAIR_PROMPTS = ("code-01", "chat-01", "math-02", "zh-01", "edit-01", "extract-03")


@dataclass(frozen=True)
class Run:
    """One way to draft."""

    control: str = "fixed"
    gamma: int | None = 5
    branch: int | None = 1
    drafter: str = MODEL
    sampling: str = "greedy"
    pace: str = "patient"
    draft_temperature: str = "auto"

    def drafting(self) -> Drafting:
        """How the agent drafts."""
        return Drafting(self.drafter, self.control, self.gamma, self.branch, self.pace, self.draft_temperature)


def pairwise() -> Iterator[Run]:
    """Few runs that hold every pair of values of two factors: greedily the run that covers most pairs not yet seen."""
    runs = [dict(zip(FACTORS, values, strict=True)) for values in itertools.product(*FACTORS.values())]

    def pairs(run: Mapping[str, object]) -> set[tuple[object, ...]]:
        return {(*a, *b) for a, b in itertools.combinations(run.items(), 2)}

    missing = set().union(*map(pairs, runs))
    while missing:
        best = max(runs, key=lambda run: len(pairs(run) & missing))
        missing -= pairs(best)
        yield Run(**best)  # type: ignore[arg-type]


class Matrix:
    """Runs and their references."""

    def __init__(self, address: str, tokens: int) -> None:
        self._address = address
        self._tokens = tokens
        self._references: dict[tuple[str, str], Result] = {}
        self.answers = 0
        self.differences = 0

    async def run(self, run: Run, prompts: list[dict[str, str]]) -> None:
        """Compare all `prompts` under one way to draft; prints a line."""
        sampling = Sampling(max_tokens=self._tokens, **SAMPLINGS[run.sampling])
        totals: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        differing: list[str] = []
        async with (
            Agent.connect(self._address, drafter="none") as alone,
            Agent.connect(self._address, **dataclasses.asdict(run.drafting())) as agent,
        ):
            for prompt in prompts:
                key = (prompt["id"], run.sampling)
                if key not in self._references:
                    self._references[key] = await alone.answer(prompt["prompt"], sampling)
                expected = self._references[key]
                result = await agent.answer(prompt["prompt"], sampling)
                same = (result.token_ids, result.finish_reason) == (expected.token_ids, expected.finish_reason)
                differing += [] if same else [prompt["id"]]
                for name in (prompt["category"], "all"):
                    totals[name][0] += result.stats["tokens"]
                    totals[name][1] += result.stats["passes"]
        self.answers += len(prompts)
        self.differences += len(differing)
        per_pass = ", ".join(f"{name} {tokens / passes:.2f}" for name, (tokens, passes) in totals.items())
        way = " | ".join(str(value) for value in dataclasses.astuple(run))
        print(f"| {way} | {len(differing)} {differing or ''} | {per_pass} |", flush=True)


async def measure(runs: list[Run], prompts: list[dict[str, str]], tokens: int, target: str) -> int:
    """Run all; returns the number of answers that differ."""
    async with private_verifier(["--target", target, "--max-sessions", "2", "--context", "1024"]) as address:
        matrix = Matrix(address, tokens)
        names = [field.name for field in dataclasses.fields(Run)]
        print(f"| {' | '.join(names)} | differ | tokens per pass |")
        print("|---" * (len(names) + 2) + "|")
        for run in runs:
            await matrix.run(run, prompts)
    print(f"{matrix.answers} answers of up to {tokens} tokens, {matrix.differences} differ from the target alone")
    return matrix.differences


def main() -> int:
    """Exit 1 if anything differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=("prompts", "pairs"), default="prompts")
    parser.add_argument("--prompts", type=Path, default=Path(__file__).parent.parent / "prompts/bench.jsonl")
    parser.add_argument("--target", default="llama:qwen2.5-coder-1.5b")
    parser.add_argument("--tokens", type=int)
    parser.add_argument("--sampling", choices=tuple(SAMPLINGS), action="append")
    arguments = parser.parse_args()
    prompts = [json.loads(line) for line in arguments.prompts.read_text("utf-8").splitlines()]
    if arguments.part == "prompts":
        runs = [Run(sampling=name) for name in arguments.sampling or SAMPLINGS]
    else:
        runs = list(pairwise())
        prompts = [prompt for prompt in prompts if prompt["id"] in PAIR_PROMPTS]
    tokens = arguments.tokens or (64 if arguments.part == "prompts" else 32)
    return int(asyncio.run(measure(runs, prompts, tokens, arguments.target)) > 0)


if __name__ == "__main__":
    sys.exit(main())
