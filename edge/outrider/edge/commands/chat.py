"""Chat in the terminal; each turn takes over the cached conversation of the one before."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading

from rich.console import Console

from outrider.edge.agent import Agent, AnswerOptions
from outrider.edge.commands.ask import print_answer
from outrider.edge.commands.options import (
    DraftingOptions,
    ExperimentOptions,
    SamplingOptions,
    VerifierOptions,
    connected_agent,
    with_option_groups,
)
from outrider.shared.cli import JsonOption, LogLevelOption
from outrider.shared.sampling.options import Sampling


@with_option_groups
def chat(
    sampling: SamplingOptions,
    drafting: DraftingOptions,
    verifier: VerifierOptions,
    experiment: ExperimentOptions,
    system: str | None = None,
    json: JsonOption = False,
    log_level: LogLevelOption = None,
) -> None:
    """Chat; end with an empty line, /quit or end of input. With --json one object a turn."""
    options = sampling.make()
    connected = connected_agent(verifier, drafting, experiment.make(drafting))
    asyncio.run(_chat(options, connected, system, json))


async def _chat(
    sampling: Sampling, connected: contextlib.AbstractAsyncContextManager[Agent], system: str | None, as_json: bool
) -> None:
    console = Console(stderr=True)
    messages = [{"role": "system", "content": system}] if system else []
    session_id = ""
    async with connected as agent:
        if sys.stdin.isatty():
            console.print("[dim]end with an empty line[/dim]")
        while (line := await _next_line(console)) is not None:
            messages.append({"role": "user", "content": line})
            ids = agent.chat_template.prompt_ids(messages)
            result = await print_answer(agent, ids, sampling, AnswerOptions(prefix_of=session_id), as_json)
            messages.append({"role": "assistant", "content": result.text})
            session_id = result.session_id


async def _next_line(console: Console) -> str | None:
    """What `_read_line` reads, in a thread that does not keep the program from ending."""
    loop = asyncio.get_running_loop()
    line: asyncio.Future[str | None] = loop.create_future()

    def hand_over(text: str | None) -> None:
        if not line.done():
            line.set_result(text)

    def read() -> None:
        text = _read_line(console)
        with contextlib.suppress(RuntimeError):  # the program may have ended meanwhile
            loop.call_soon_threadsafe(hand_over, text)

    threading.Thread(target=read, daemon=True, name="read-line").start()
    return await line


def _read_line(console: Console) -> str | None:
    """The next thing the user says, or None at the end."""
    if sys.stdin.isatty():
        console.print("[bold]> [/bold]", end="")
    line = sys.stdin.readline().strip()
    return None if line in ("", "/quit") else line
