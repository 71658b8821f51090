"""Answer a prompt: guess here, verify there, print the target's own text as it becomes final."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import sys
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from outrider.edge.agent import Agent, AnswerOptions
from outrider.edge.chunks import Chunk, Result
from outrider.edge.commands.options import (
    DraftingOptions,
    ExperimentOptions,
    SamplingOptions,
    VerifierOptions,
    connected_agent,
    with_option_groups,
)
from outrider.edge.commands.paper import paper_for
from outrider.edge.commands.profile_view import profile_report
from outrider.edge.interrupted import AnswerInterrupted
from outrider.edge.resume_handle import ResumeHandle
from outrider.shared.cli import JsonOption, LogLevelOption, print_json
from outrider.shared.errors import OutriderError, Reason
from outrider.shared.paths import cache_dir
from outrider.shared.sampling.options import Sampling

logger = logging.getLogger(__name__)

RESUME_FOLDER = "resume"


@with_option_groups
def ask(
    prompt: Annotated[str, typer.Argument(help="What to ask; - reads it from standard input.")] = "",
    *,
    sampling: SamplingOptions,
    drafting: DraftingOptions,
    verifier: VerifierOptions,
    experiment: ExperimentOptions,
    raw: Annotated[bool, typer.Option("--raw", help="Continue the prompt as it is, without a chat template.")] = False,
    profile: Annotated[
        bool, typer.Option("--profile", help="Say where the time went; decodes a few tokens once more to compare.")
    ] = False,
    resume: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Go on with an answer that was cut short; takes no prompt.")
    ] = None,
    json: JsonOption = False,
    log_level: LogLevelOption = None,
) -> None:
    """Answer a prompt; the text is exactly what the target alone would write."""
    options = sampling.make()
    trial = experiment.make(drafting)
    connected = connected_agent(verifier, drafting, trial)
    if resume is not None:
        if prompt or raw or profile or options != Sampling():
            raise OutriderError(Reason.USAGE, "--resume goes on with the prompt and the options that the file holds.")
        asyncio.run(_resume(ResumeHandle.load(resume), connected, json))
        return
    text = sys.stdin.read() if prompt == "-" else prompt
    if not text.strip():
        raise OutriderError(Reason.PROMPT_EMPTY, "give a prompt that holds text.")
    asyncio.run(_ask(text, raw, options, connected, json, profile))


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


async def _resume(handle: ResumeHandle, connected: AbstractAsyncContextManager[Agent], as_json: bool) -> None:
    async with connected as agent:
        result = await _print(agent.resume(handle), as_json)
        if as_json:
            print_json(result_json(result))


async def _print(chunks: AsyncGenerator[Chunk, None], as_json: bool) -> Result:
    """Print the text of an answer as it becomes final, unless the whole is printed later. An answer that is cut short,
    or whose end no verifier has seen, leaves its handle in a file.
    """
    result: Result | None = None
    paper = None if as_json else paper_for(sys.stdout)
    try:
        async with contextlib.aclosing(chunks):
            async for chunk in chunks:
                if paper is not None:
                    paper.put(chunk)
                result = chunk.result
    except AnswerInterrupted as error:
        if paper is not None:
            paper.end()
        error.more = result_json(error.partial)
        path = await _keep(error.handle)
        if path is not None:
            error.more["resume"] = str(path)
            error.detail = f"{error.detail} Go on with: outrider ask --resume {path}".strip()
        raise
    assert result is not None, "the last chunk holds the result"
    if paper is not None:
        paper.end()
    if result.handle is not None:
        count = result.stats["unverified_tokens"]
        what = f"the last {count} tokens are" if count else "that it ends here is"
        logger.warning("%s the drafter's alone", what)
        path = await _keep(result.handle)
        if path is not None:
            result.stats["resume"] = str(path)
            logger.warning("check them with: outrider ask --resume %s", path)
    return result


async def _keep(handle: ResumeHandle) -> Path | None:
    """The file that holds the handle, None if it cannot be written: the answer is worth more."""
    path = cache_dir() / RESUME_FOLDER / f"{secrets.token_hex(8)}.json"
    try:
        await asyncio.to_thread(handle.save, path)
    except OSError as error:
        logger.warning("what is needed to go on cannot be kept in %s: %s", path, error.strerror)
        return None
    return path


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
    result = await _print(agent.stream_ids(prompt_ids, sampling, options), as_json)
    if profile and result.handle is not None:
        logger.warning("an answer that no verifier has finished has no profile")
        profile = False
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
