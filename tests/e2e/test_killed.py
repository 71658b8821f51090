"""Verifier processes that are killed in the middle of an answer: it is finished elsewhere or later, with the
ids of a run that nobody disturbed.
"""

from __future__ import annotations

import asyncio
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from outrider.edge.agent import Agent
from outrider.edge.chunks import Result
from support.mortal import LONG, MortalVerifier, mortal_verifiers
from support.process import COMMAND

PROMPT = "who goes on?"
LAST = LONG.max_tokens


async def undisturbed(address: str) -> list[int]:
    async with Agent.connect(address, drafter="none") as agent:
        return (await agent.answer(PROMPT, LONG)).token_ids


async def answer_while(agent: Agent, take: int, happens: Any) -> tuple[list[int], Result]:
    """The ids as they were given out one by one, and the result; after `take` of them something `happens`."""
    given: list[int] = []
    result = None
    has_happened = False
    async for chunk in agent.stream(PROMPT, LONG):
        given += chunk.token_ids
        result = chunk.result
        if len(given) >= take and not has_happened:
            has_happened = True
            assert len(given) < LAST, "in mid-answer"
            await happens()
    assert has_happened
    assert result is not None
    return given, result


@pytest.mark.parametrize("drafter", ["none", "tiny:0.5"])
@pytest.mark.parametrize("take", [1, 40])
async def test_the_other_verifier_finishes_what_a_killed_one_began(tmp_path: Path, drafter: str, take: int) -> None:
    async with mortal_verifiers(tmp_path, 2) as (first, second):
        expected = await undisturbed(second.address)
        passes_before = second.passes
        async with Agent.connect([first.address, second.address], drafter=drafter) as agent:
            given, result = await answer_while(agent, take, first.kill)
    assert result.token_ids == expected
    assert given == expected, "none twice, none missing"
    assert result.stats["streams"] >= 2
    assert second.passes > passes_before


async def test_a_verifier_that_is_killed_in_mid_pass_costs_only_that_pass(tmp_path: Path) -> None:
    async with mortal_verifiers(tmp_path, 2) as (first, second):
        expected = await undisturbed(second.address)
        await first.kill()
        await first.start(long_pass=20)

        async def kill() -> None:
            await first.until(lambda: first.passes == 20)
            assert first.is_in_pass
            await first.kill()

        async with Agent.connect([first.address, second.address], drafter="none", pace="eager") as agent:
            killing = asyncio.create_task(kill())
            given = [token async for chunk in agent.stream(PROMPT, LONG) for token in chunk.token_ids]
            await killing
    assert given == expected


async def test_a_verifier_that_comes_back_in_time_finishes_what_it_began(tmp_path: Path) -> None:
    async with mortal_verifiers(tmp_path) as (only,):
        expected = await undisturbed(only.address)

        async def restart() -> None:
            await only.kill()
            await only.start()

        async with Agent.connect(only.address, drafter="tiny:0.5") as agent:
            given, result = await answer_while(agent, 30, restart)
    assert given == result.token_ids == expected


async def ask(*arguments: str, while_: Any = None) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        *COMMAND, "ask", *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    if while_ is not None:
        await while_()
    output, errors = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode(), errors.decode()


SAMPLING = ("--temperature", "0.8", "--seed", "5", "--max-tokens", str(LAST), "--logit-bias", "256=-100")
BY_TINY = (*SAMPLING, "--drafter", "tiny:0.5")


async def kill_in_mid_answer(verifier: MortalVerifier, passes: int = 12) -> None:
    begun = verifier.passes
    await verifier.until(lambda: verifier.passes >= begun + passes)
    await verifier.kill()


async def test_the_command_goes_on_at_the_second_verifier(tmp_path: Path) -> None:
    async with mortal_verifiers(tmp_path, 2) as (first, second):
        expected = await undisturbed(second.address)
        both = f"{first.address},{second.address}"
        code, output, errors = await ask(
            PROMPT, "--verifier", both, *BY_TINY, "--json", while_=lambda: kill_in_mid_answer(first)
        )
    assert code == 0, errors
    answer = json.loads(output)
    assert answer["token_ids"] == expected
    assert answer["streams"] >= 2, "it was killed in mid-answer"


async def test_a_command_without_a_verifier_left_says_what_it_has_and_can_be_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTRIDER_HOME", str(tmp_path / "home"))
    old_umask = os.umask(0)
    try:
        async with mortal_verifiers(tmp_path, 2) as (first, second):
            code, output, _ = await ask(PROMPT, "--verifier", second.address, *BY_TINY, "--json")
            whole = json.loads(output)
            assert code == 0
            code, output, errors = await ask(
                PROMPT, "--verifier", first.address, *BY_TINY, "--json", "--patience", "1",
                while_=lambda: kill_in_mid_answer(first),
            )  # fmt: skip
            assert code == 4, errors
            (line,) = output.splitlines()
            cut = json.loads(line)
            assert cut["error"]["reason"] == "VERIFIER_UNREACHABLE"
            assert 0 < len(cut["token_ids"]) < LAST
            assert cut["token_ids"] == whole["token_ids"][: len(cut["token_ids"])]
            assert cut["text"]
            assert whole["text"].startswith(cut["text"])
            handle = cut["resume"]
            mode = (await asyncio.to_thread(os.stat, handle)).st_mode
            assert stat.S_IMODE(mode) == 0o600
            code, output, errors = await ask(
                "--resume", handle, "--verifier", second.address, "--drafter", "tiny:0.5", "--json"
            )
            assert code == 0, errors
            resumed = json.loads(output)
    finally:
        os.umask(old_umask)
    assert (resumed["text"], resumed["token_ids"]) == (whole["text"], whole["token_ids"])


async def test_a_command_that_prints_text_leaves_the_verified_part_on_standard_output(tmp_path: Path) -> None:
    async with mortal_verifiers(tmp_path, 2) as (first, second):
        _, whole, _ = await ask(PROMPT, "--verifier", second.address, *BY_TINY)
        code, output, errors = await ask(
            PROMPT, "--verifier", first.address, *BY_TINY, "--patience", "1", while_=lambda: kill_in_mid_answer(first)
        )
    assert code == 4
    assert 1 < len(output) < len(whole)
    assert whole.startswith(output.rstrip("\n"))
    assert "--resume" in errors
