"""Compare answers with and without drafting, prompt by prompt: the ids must be equal."""

from __future__ import annotations

import asyncio
import json as json_format
import math
import secrets
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from outrider.edge.agent import Agent, AnswerOptions
from outrider.edge.chunks import Result
from outrider.edge.commands.ask import result_json
from outrider.edge.commands.options import (
    DraftingOptions,
    SamplingOptions,
    VerifierOptions,
    connect,
    with_option_groups,
)
from outrider.edge.drafting import PATIENT
from outrider.shared.cli import JsonOption, LogLevelOption, print_json
from outrider.shared.errors import OutriderError, Reason
from outrider.shared.messages import VerifierInfo
from outrider.shared.sampling.options import Sampling


@dataclass(frozen=True, slots=True)
class BenchPrompt:
    """One line of a prompts file."""

    id: str
    category: str
    prompt: str


@with_option_groups
def compare(
    sampling: SamplingOptions,
    drafting: DraftingOptions,
    verifier: VerifierOptions,
    prompt: Annotated[list[str] | None, typer.Argument(help="Prompts to answer.")] = None,
    prompts: Annotated[
        Path | None, typer.Option(metavar="FILE.jsonl", help="A file with id, category and prompt a line.")
    ] = None,
    category: Annotated[list[str] | None, typer.Option(help="Only these categories of the file.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first so many prompts.")] = None,
    json: JsonOption = False,
    log_level: LogLevelOption = None,
) -> int:
    """Answer each prompt twice on one verifier, without guesses and with; exit 1 if an answer differs.

    Under numerics fast a difference at a near tie is reported and allowed. The pace is patient unless another is named:
    what is compared does not change on the way.
    """
    verifier.refuse_fallback("compare")
    chosen = _select(read_prompts(prompt or [], prompts), category, limit)
    options = sampling.make()
    if options.seed is None:
        # Both runs need one seed.
        options = options.model_copy(update={"seed": secrets.randbits(64)})
    if drafting.make().may_change_pace:
        drafting = replace(drafting, pace=PATIENT)
    return asyncio.run(_compare(chosen, options, drafting, verifier, json))


def read_prompts(texts: list[str], file: Path | None) -> list[BenchPrompt]:
    """Prompts from a .jsonl file, if there is one, and from the command line; raises FILE_UNREADABLE."""
    from_file = _read_file(file) if file is not None else []
    return [*from_file, *(BenchPrompt(f"prompt-{i + 1}", "", text) for i, text in enumerate(texts))]


def _read_file(path: Path) -> list[BenchPrompt]:
    try:
        lines = path.read_text("utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise OutriderError(Reason.FILE_UNREADABLE, f"{path}: {error}.") from None
    prompts: list[BenchPrompt] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            entry = json_format.loads(line)
            prompts.append(BenchPrompt(str(entry["id"]), str(entry.get("category", "")), str(entry["prompt"])))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise OutriderError(Reason.FILE_UNREADABLE, f"{path}, line {number}: {error!r}.") from None
    return prompts


def _select(prompts: list[BenchPrompt], categories: list[str] | None, limit: int | None) -> list[BenchPrompt]:
    chosen = [prompt for prompt in prompts if not categories or prompt.category in categories][:limit]
    if not chosen:
        raise OutriderError(Reason.USAGE, "no prompt is left to compare.")
    return chosen


async def _compare(
    prompts: list[BenchPrompt],
    sampling: Sampling,
    drafting: DraftingOptions,
    verifier: VerifierOptions,
    as_json: bool,
) -> int:
    rows: list[dict[str, Any]] = []
    alone = DraftingOptions(drafter="none")
    async with (
        verifier.address() as address,
        connect(address, verifier, alone) as target,
        connect(address, verifier, drafting) as agent,
    ):
        for prompt in prompts:
            row = await _compare_one(prompt, target, agent, sampling)
            rows.append(row)
            if as_json:
                print_json(row)
            else:
                _print_progress(row)
    if not as_json:
        _print_summary(rows)
    return int(any(not row["identical"] and not row["near_tie"] for row in rows))


async def _compare_one(prompt: BenchPrompt, target: Agent, agent: Agent, sampling: Sampling) -> dict[str, Any]:
    gaps_too = AnswerOptions(want_gaps=True)
    expected = await target.answer(prompt.prompt, sampling, gaps_too)
    result = await agent.answer(prompt.prompt, sampling, gaps_too)
    difference = first_difference(expected, result)
    gap = None if difference is None else gap_at(expected, difference)
    return {
        **asdict(prompt),
        **result_json(result),
        "identical": difference is None,
        "first_difference": difference,
        "logit_gap": gap,
        "near_tie": is_near_tie(gap, agent.info),
        "target_passes": expected.stats["passes"],
        "target_seconds": expected.stats["seconds"],
    }


def gap_at(result: Result, index: int) -> float | None:
    """Distance between the two best scores at a token; None past the end and where only one token was possible."""
    gap = result.gaps[index] if index < len(result.gaps) else math.inf
    return gap if math.isfinite(gap) else None


def is_near_tie(gap: float | None, info: VerifierInfo) -> bool:
    """Whether the shape of a pass may turn the two best tokens around at this distance; never with exact numerics."""
    return info.numerics == "fast" and gap is not None and gap <= info.near_tie_gap


def first_difference(expected: Result, result: Result) -> int | None:
    """Index of the first id in which two answers differ, or None if they are equal and ended for one reason."""
    for index, (theirs, mine) in enumerate(zip(expected.token_ids, result.token_ids, strict=False)):
        if mine != theirs:
            return index
    same_end = (len(expected.token_ids), expected.finish_reason) == (len(result.token_ids), result.finish_reason)
    return None if same_end else min(len(expected.token_ids), len(result.token_ids))


def _print_progress(row: dict[str, Any]) -> None:
    verdict = "identical" if row["identical"] else f"DIFFERS at {row['first_difference']}"
    if row["near_tie"]:
        verdict += f" (near tie, gap {row['logit_gap']:.4f})"
    print(f"{row['id']:<14} {row['tokens']:>4} tokens, {row['tokens_per_pass']:.2f} a pass: {verdict}", flush=True)


def _print_summary(rows: list[dict[str, Any]]) -> None:
    table = Table(title="with drafting, against the target alone")
    for heading in ("category", "prompts", "identical", "tokens", "passes", "tokens/pass", "alpha"):
        table.add_column(heading, justify="left" if heading == "category" else "right")
    for category in [*dict.fromkeys(row["category"] for row in rows), None]:
        chosen = [row for row in rows if category is None or row["category"] == category]
        tokens, passes = sum(row["tokens"] for row in chosen), sum(row["passes"] for row in chosen)
        walked = sum(row["walked"] for row in chosen)
        checked = sum(row["checked"] for row in chosen)
        table.add_row(
            "all" if category is None else category,
            str(len(chosen)),
            str(sum(row["identical"] for row in chosen)),
            str(tokens),
            str(passes),
            f"{tokens / passes:.2f}" if passes else "-",
            f"{walked / checked:.3f}" if checked else "-",
        )
    Console().print(table)
