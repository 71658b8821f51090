"""See it work: two models on this machine, guesses checked over gRPC, the same text as the big one alone."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from outrider.edge.agent import Agent, AnswerOptions
from outrider.edge.chunks import Result
from outrider.edge.commands.ask import result_json
from outrider.edge.commands.compare import first_difference, gap_at, is_near_tie
from outrider.edge.commands.options import (
    DraftingOptions,
    SamplingOptions,
    VerifierOptions,
    connect,
    with_option_groups,
)
from outrider.edge.drafting import FIXED
from outrider.shared.cli import JsonOption, LogLevelOption, print_json
from outrider.shared.sampling.options import Sampling
from outrider.shared.token_tree import Origin

PROMPTS = (
    "Write a Python function that merges two sorted lists into one sorted list.",
    "Explain the difference between TCP and UDP to a beginner.",
)
DEMO_TOKENS = 64
_STYLES = {Origin.DRAFTED: "green", Origin.CORRECTED: "bold red", Origin.CLOUD: "cyan"}
# 70B fp16 on four A100-80GB: 17.2 ms is the memory-bandwidth limit, 23 to 29 ms are typical.
_TARGET_MS = 25.0
_RTT_MS = 20.0
# Milliseconds a token: 1.5B measured on a Snapdragon 8 Gen 3, and a desktop GPU that takes a fifth of that.
_DEVICES_MS = {"phone": 36.6, "desktop": 8.0}


@with_option_groups
def demo(
    sampling: SamplingOptions,
    drafting: DraftingOptions,
    verifier: VerifierOptions,
    prompt: Annotated[list[str] | None, typer.Option(help="Ask this instead (repeatable).")] = None,
    json: JsonOption = False,
    log_level: LogLevelOption = None,
) -> int:
    """Ask a few questions with and without guessing, show where each word came from, and compare the two texts."""
    verifier.refuse_fallback("demo")
    options = sampling.make()
    if sampling.max_tokens == SamplingOptions.max_tokens:
        options = options.model_copy(update={"max_tokens": DEMO_TOKENS})
    if options.seed is None:
        options = options.model_copy(update={"seed": secrets.randbits(64)})
    if drafting.control is None:
        # On one machine guessing pays in passes and not in time, and a policy that minds its time would soon stop.
        drafting = replace(drafting, control=FIXED)
    return asyncio.run(_demo(tuple(prompt or PROMPTS), options, drafting, verifier, json))


async def _demo(
    prompts: tuple[str, ...],
    sampling: Sampling,
    drafting: DraftingOptions,
    verifier: VerifierOptions,
    as_json: bool,
) -> int:
    out = Console(stderr=as_json, highlight=False)
    out.print("Starting the verifier with the target model in a process of its own ...")
    rows: list[dict[str, Any]] = []
    alone = DraftingOptions(drafter="none")
    async with (
        verifier.address() as address,
        connect(address, verifier, alone) as target,
        connect(address, verifier, drafting) as agent,
    ):
        out.print(
            f"[bold]{agent.draft_model}[/bold] guesses in this process, [bold]{agent.info.model}[/bold] decides at "
            f"{address} (numerics {agent.info.numerics}).\n"
            "[green]guessed and accepted[/green]  [bold red]guessed wrong, corrected[/bold red]  "
            "[cyan]the target's own[/cyan]"
        )
        for prompt in prompts:
            out.print(f"\n[bold]> {prompt}[/bold]")
            drafted = await _show(out, agent, prompt, sampling)
            expected = await target.answer(prompt, sampling, AnswerOptions(want_gaps=True))
            rows.append(_row(prompt, drafted, expected, agent))
    out.print()
    out.print(_table(rows))
    _explain(out, rows)
    if as_json:
        for row in rows:
            print_json(row)
    return int(not all(row["identical"] or row["near_tie"] for row in rows))


async def _show(out: Console, agent: Agent, prompt: str, sampling: Sampling) -> Result:
    result: Result | None = None
    async for chunk in agent.stream(prompt, sampling):
        out.print(Text(chunk.text, style=_STYLES[chunk.origin]), end="", soft_wrap=True)
        result = chunk.result
    out.print()
    assert result is not None, "the last chunk holds the result"
    return result


def _row(prompt: str, drafted: Result, expected: Result, agent: Agent) -> dict[str, Any]:
    difference = first_difference(expected, drafted)
    gap = None if difference is None else gap_at(expected, difference)
    return {
        "prompt": prompt,
        **result_json(drafted),
        "identical": difference is None,
        "near_tie": is_near_tie(gap, agent.info),
        "target_passes": expected.stats["passes"],
        "target_seconds": expected.stats["seconds"],
    }


def _table(rows: list[dict[str, Any]]) -> Table:
    """One column a prompt, so that it fits a narrow terminal."""
    table = Table(title="target passes with guesses and alone, same verifier", min_width=60)
    table.add_column("")
    for row in rows:
        table.add_column(Text(row["prompt"], overflow="ellipsis"), justify="right", no_wrap=True, max_width=24)
    lines: dict[str, Callable[[dict[str, Any]], str]] = {
        "tokens": lambda row: str(row["tokens"]),
        "passes, alone": lambda row: str(row["target_passes"]),
        "passes, with guesses": lambda row: str(row["passes"]),
        "tokens per pass": lambda row: f"{row['tokens_per_pass']:.2f}",
        "guesses sent, accepted": lambda row: f"{row['drafted']}, {row['accepted']}",
        "bytes up, down": lambda row: f"{row['uplink_bytes']}, {row['downlink_bytes']}",
        "seconds, alone": lambda row: f"{row['target_seconds']:.1f}",
        "seconds, with guesses": lambda row: f"{row['seconds']:.1f}",
        "text": _verdict,
    }
    for heading, value in lines.items():
        table.add_row(heading, *(value(row) for row in rows))
    return table


def _verdict(row: dict[str, Any]) -> str:
    if row["identical"]:
        return "[green]identical[/green]"
    return "near tie" if row["near_tie"] else "[bold red]differs[/bold red]"


def _explain(out: Console, rows: list[dict[str, Any]]) -> None:
    passes = sum(row["passes"] for row in rows)
    saved = 1 - passes / max(1, sum(row["target_passes"] for row in rows))
    out.print(
        f"\nThe target ran {saved:.0%} fewer passes. On one CPU that saves passes, not seconds: checking several "
        "tokens costs a CPU almost as much as computing them one by one, and both models share its cores.\n\n"
        "On the accelerators this stands for, a pass over a few tokens costs what a pass over one does. How fast that "
        "makes an answer, the harness finds out by running this program in the times you name:"
    )
    for device, draft_ms in _DEVICES_MS.items():
        out.print(
            f"  outrider plan --target-ms {_TARGET_MS:g} --rtt-ms {_RTT_MS:g} --draft-ms {draft_ms:g}   # a {device}",
            soft_wrap=True,
        )
