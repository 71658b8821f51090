"""Answers that outlive their verifiers: real processes, killed in mid-answer or told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import stat
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from outrider.edge.agent import Agent
from outrider.edge.chunks import Result
from outrider.edge.interrupted import AnswerInterrupted
from outrider.shared.errors import Reason
from outrider.shared.sampling.options import Sampling
from outrider.shared.tiny import END
from support.process import COMMAND, json_lines, run_command

LENGTH = 1500
SAMPLING = Sampling(max_tokens=LENGTH, temperature=0.7, seed=7, logit_bias={END: -100.0})
# So early that most of the answer is to come.
KILL_AFTER = 20


@dataclass
class Killable:
    """A verifier process that need not end well."""

    process: subprocess.Popen[str]
    address: str

    def kill(self) -> None:
        """End it without a word."""
        self.process.kill()
        self.process.wait(10)


@contextlib.contextmanager
def killable(listen: str = "127.0.0.1:0") -> Iterator[Killable]:
    process = subprocess.Popen(
        [*COMMAND, "verifier", "--target", "tiny", "--listen", listen, "--json"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield Killable(process, json.loads(process.stdout.readline())["listening"])
    finally:
        process.kill()
        process.wait(10)


async def answer(addresses: list[str], in_between: Callable[[], None], patience_s: float = 20.0) -> Result:
    """An answer, in the midst of which something happens."""
    async with Agent.connect(addresses, "none", patience_s=patience_s) as agent:
        return await _follow(agent, in_between)


async def _follow(agent: Agent, in_between: Callable[[], None]) -> Result:
    tokens, result = 0, None
    async with contextlib.aclosing(agent.stream("hello", SAMPLING)) as chunks:
        async for chunk in chunks:
            before, tokens = tokens, tokens + len(chunk.token_ids)
            if before < KILL_AFTER <= tokens:
                in_between()
            result = chunk.result
    assert result is not None
    return result


@pytest.fixture(scope="module")
def undisturbed() -> list[int]:
    """The answer of a verifier to which nothing happens."""
    with killable() as verifier:
        ids = asyncio.run(answer([verifier.address], lambda: None)).token_ids
    assert len(ids) == LENGTH
    return ids


async def test_another_verifier_finishes_what_a_killed_one_began(undisturbed: list[int]) -> None:
    with killable() as first, killable() as second:
        result = await answer([first.address, second.address], first.kill)
    assert result.token_ids == undisturbed
    assert result.stats["streams"] > 1


async def test_a_verifier_that_comes_back_goes_on(undisturbed: list[int]) -> None:
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(killable())

        def restart() -> None:
            first.kill()
            stack.enter_context(killable(first.address))

        result = await answer([first.address], restart)
    assert result.token_ids == undisturbed
    assert result.stats["streams"] > 1


async def test_a_verifier_that_is_told_to_stop_ends_well_and_sends_its_edges_on(undisturbed: list[int]) -> None:
    with killable() as first, killable() as second:
        result = await answer([first.address, second.address], lambda: first.process.send_signal(signal.SIGTERM))
        assert first.process.wait(10) == 0
    assert result.token_ids == undisturbed
    assert result.stats["streams"] > 1


async def test_what_no_verifier_finishes_can_be_resumed_later(undisturbed: list[int], tmp_path: Path) -> None:
    with killable() as verifier, pytest.raises(AnswerInterrupted) as cut:
        await answer([verifier.address], verifier.kill, patience_s=0.5)
    assert cut.value.reason is Reason.VERIFIER_UNREACHABLE
    partial = cut.value.partial
    assert KILL_AFTER <= len(partial.token_ids) < LENGTH
    assert partial.token_ids == undisturbed[: len(partial.token_ids)]
    handle = tmp_path / "handle.json"
    cut.value.handle.save(handle)
    assert stat.S_IMODE(handle.stat().st_mode) == 0o600
    with killable() as verifier:
        done = run_command(
            "ask", "--resume", str(handle), "--verifier", verifier.address, "--drafter", "none", "--json"
        )
        (resumed,) = json_lines(done.stdout)
    assert resumed["token_ids"] == undisturbed
    assert resumed["text"].startswith(partial.text)


def test_a_handle_of_another_target_or_none_at_all_is_refused(tmp_path: Path) -> None:
    handle = tmp_path / "handle.json"
    content: dict[str, Any] = {
        "prompt_ids": [1],
        "committed_ids": [2],
        "stop_ids": [],
        "sampling": {},
        "seed": 1,
        "target": {"model": "another"},
    }
    with killable() as verifier:
        for text, reason in ((json.dumps(content), "TARGET_DIFFERS"), ("{}", "FILE_UNREADABLE")):
            handle.write_text(text)
            done = run_command(
                "ask", "--resume", str(handle), "--verifier", verifier.address, "--drafter", "none", "--json"
            )
            assert json.loads(done.stdout)["error"]["reason"] == reason
            assert done.returncode == 5
