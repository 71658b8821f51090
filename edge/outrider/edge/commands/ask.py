"""Answer a prompt: guess here, verify there, print the target's own text as it becomes final."""

from __future__ import annotations

import asyncio
import sys
from contextlib import AbstractAsyncContextManager
from typing import Annotated, Any

import typer
from rich.console import Console

from outrider.edge.agent import Agent, AnswerOptions
from outrider.edge.chunks import Result
from outrider.edge.commands.options import (
    DraftingOptions,
    ExperimentOptions,
    SamplingOptions,
    VerifierOptions,
    connected_agent,
    with_option_groups,
)
from outrider.edge.commands.profile_view import profile_report
from outrider.shared.cli import JsonOption, LogLevelOption, print_json
from outrider.shared.errors import OutriderError, Reason
from outrider.shared.sampling.options import Sampling


@with_option_groups
def ask(
    prompt: Annotated[str, typer.Argument(help="What to ask; - reads it from standard input.")],
    sampling: SamplingOptions,
    drafting: DraftingOptions,
    verifier: VerifierOptions,
    experiment: ExperimentOptions,
    raw: Annotated[bool, typer.Option("--raw", help="Continue the prompt as it is, without a chat template.")] = False,
    profile: Annotated[
        bool, typer.Option("--profile", help="Say where the time went; decodes a few tokens once more to compare.")
    ] = False,
    json: JsonOption = False,
    log_level: LogLevelOption = None,
) -> None:
    """Answer a prompt; the text is exactly what the target alone would write."""
    options = sampling.make()
    trial = experiment.make(drafting)
    text = sys.stdin.read() if prompt == "-" else prompt
    if not text.strip():
        raise OutriderError(Reason.PROMPT_EMPTY, "give a prompt that holds text.")
    asyncio.run(_ask(text, raw, options, connected_agent(verifier, drafting, trial), json, profile))


async def _ask(
    prompt: str,
    raw: bool,
    sampling: Sampling,
    connected: AbstractAsyncContextManager[Agent],
    as_json: bool,
    profile: bool,
) -> None:
    async with connected as agent:
        template = agent.chat_template
        ids = template.plain_ids(prompt) if raw else template.prompt_ids([{"role": "user", "content": prompt}])
        await print_answer(agent, ids, sampling, AnswerOptions(), as_json, profile)


async def print_answer(
    agent: Agent,
    prompt_ids: list[int],
    sampling: Sampling,
    options: AnswerOptions,
    as_json: bool,
    profile: bool = False,
) -> Result:
    """Print an answer: its text as it becomes final, or one JSON object at its end; with `profile` where its time went,
    on stderr or in the object.
    """
    result: Result | None = None
    async for chunk in agent.stream_ids(prompt_ids, sampling, options):
        if not as_json:
            print(chunk.text, end="", flush=True)
        result = chunk.result
    assert result is not None, "the last chunk holds the result"
    if not as_json:
        print(flush=True)
    report = await profile_report(agent, prompt_ids, sampling, result) if profile else None
    if as_json:
        print_json(result_json(result) | ({} if report is None else {"profile": report.json()}))
    elif report is not None:
        report.print(Console(stderr=True))
    return result


def result_json(result: Result) -> dict[str, Any]:
    """The keys of the command-line contract for one answer."""
    return {
        "text": result.text,
        "token_ids": result.token_ids,
        "finish_reason": result.finish_reason,
        **result.stats,
    }
