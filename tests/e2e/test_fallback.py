"""With a fallback an answer goes on without its verifier: real processes that are killed and come back, or do not."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from outrider.edge.agent import Agent
from outrider.edge.chunks import Chunk, Result
from outrider.edge.interrupted import AnswerInterrupted
from outrider.edge.link import VerifierClient
from outrider.shared.errors import Reason
from outrider.shared.messages import Open, Opened
from outrider.shared.paths import HOME_VARIABLE
from outrider.shared.sampling.options import Sampling
from outrider.shared.tiny import END
from support.mortal import LONG, MortalVerifier, mortal_verifiers
from support.process import COMMAND
from support.refusal import refused

OPTIONS = [
    *("--max-tokens", "100", "--temperature", "0.8", "--seed", "5", "--logit-bias", f"{END}=-100"),
    *("--drafter", "tiny:0.5", "--json"),
]
PROMPT = "hello"


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "home"))


async def whole(verifier: MortalVerifier) -> list[int]:
    async with Agent.connect(verifier.address, "none") as agent:
        return (await agent.answer(PROMPT, LONG)).token_ids


async def outrider(*arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(*COMMAND, *arguments, stdout=asyncio.subprocess.PIPE)


async def said(process: asyncio.subprocess.Process) -> dict[str, Any]:
    async with asyncio.timeout(60):
        output, _ = await process.communicate()
    found: dict[str, Any] = json.loads(output)
    assert process.returncode == 0, found
    return found


def origins(chunks: Sequence[Chunk]) -> set[str]:
    return {chunk.origin.value for chunk in chunks if chunk.token_ids}


async def test_what_the_drafter_said_alone_is_checked_when_the_verifier_is_back(tmp_path: Path) -> None:
    async with mortal_verifiers(tmp_path) as [verifier]:
        expected = await whole(verifier)
        chunks: list[Chunk] = []
        async with Agent.connect(verifier.address, "tiny:0.5", fallback="local") as agent:
            async for chunk in agent.stream(PROMPT, LONG):
                chunks.append(chunk)
                count = sum(len(chunk.token_ids) for chunk in chunks)
                if verifier.is_running and "unverified" not in origins(chunks) and count >= 10:
                    await verifier.kill()
                elif not verifier.is_running and sum(c.origin.value == "unverified" for c in chunks) >= 30:
                    await verifier.start()
    result = chunks[-1].result
    assert result is not None
    assert (result.token_ids, result.finish_reason, result.handle) == (expected, "length", None)
    assert "unverified" in origins(chunks)
    [retract] = [chunk.retract for chunk in chunks if chunk.retract is not None]
    stats = result.stats
    assert stats["retractions"] == [{"position": retract.text_length, "withdrawn": retract.withdrawn}]
    assert (stats["unverified_tokens"], stats["streams"] > 1) == (0, True)


async def test_a_command_whose_verifier_does_not_come_back_says_what_is_not_verified_and_can_be_resumed(
    tmp_path: Path,
) -> None:
    async with mortal_verifiers(tmp_path, pass_ms=50) as [verifier]:
        expected = await whole(verifier)
        before = verifier.passes
        where = ["--verifier", verifier.address]
        asked = await outrider("ask", PROMPT, *OPTIONS, *where, "--fallback", "local", "--patience", "2")
        await verifier.until(lambda: verifier.passes > before + 5)
        await verifier.kill()
        answer = await said(asked)
        unverified = answer["unverified_tokens"]
        assert (answer["finish_reason"], answer["tokens"], answer["verified"]) == ("length", 100, False)
        assert 0 < unverified < 100
        assert answer["token_ids"][:-unverified] == expected[: 100 - unverified]
        assert answer["token_ids"] != expected, "its drafter is wrong now and then"
        await verifier.start()
        resumed = await said(await outrider("ask", "--resume", answer["resume"], "--json", "--drafter", "none", *where))
        assert (resumed["token_ids"], resumed["unverified_tokens"], resumed["verified"]) == (expected, 0, True)


async def test_an_agent_that_has_reached_its_verifier_once_may_begin_without(tmp_path: Path) -> None:
    short = Sampling(max_tokens=20, logit_bias={END: -100.0})
    async with mortal_verifiers(tmp_path) as [verifier]:
        async with Agent.connect(verifier.address, "tiny:0.5", fallback="local"):
            pass
        await verifier.kill()
        with refused(Reason.VERIFIER_UNREACHABLE):
            async with Agent.connect(verifier.address, "tiny:0.5"):
                pass
        async with Agent.connect(verifier.address, "tiny:0.5", fallback="local", patience_s=0.5) as agent:
            result = await agent.answer(PROMPT, short)
            assert (result.stats["unverified_tokens"], len(result.token_ids)) == (20, 20)
            await verifier.start()
            result = await agent.answer(PROMPT, short)
            assert result.stats["unverified_tokens"] == 0


async def test_a_device_that_never_reached_it_cannot(tmp_path: Path) -> None:
    async with mortal_verifiers(tmp_path) as [verifier]:
        pass
    with refused(Reason.VERIFIER_UNREACHABLE):
        async with Agent.connect(verifier.address, "tiny:0.5", fallback="local"):
            pass


async def test_what_was_said_is_not_lost_where_what_is_needed_to_go_on_cannot_be_kept(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "resume").write_text("in the way")
    async with mortal_verifiers(tmp_path) as [verifier]:
        async with Agent.connect(verifier.address, "tiny:0.5", fallback="local"):
            pass
        where = ["--verifier", verifier.address, "--fallback", "local", "--patience", "0.2"]
    answer = await said(await outrider("ask", PROMPT, *OPTIONS, *where))
    assert (answer["tokens"], answer["unverified_tokens"], "resume" in answer) == (100, 100, False)
    assert "cannot be kept" in capfd.readouterr().err


async def test_any_verifier_that_was_reached_before_will_do_to_begin_without(tmp_path: Path) -> None:
    async with (
        mortal_verifiers(tmp_path) as [verifier],
        Agent.connect(verifier.address, "tiny:0.5", fallback="local"),
    ):
        pass
    addresses = ["127.0.0.1:1", verifier.address]
    async with Agent.connect(addresses, "tiny:0.5", fallback="local", patience_s=0.2) as agent:
        assert (await agent.answer(PROMPT, LONG)).stats["unverified_tokens"] == 100


@contextlib.asynccontextmanager
async def full(verifier: MortalVerifier) -> AsyncIterator[None]:
    """With its only session taken."""
    client = VerifierClient(verifier.address)
    link = client.open_stream()
    await link.send(Open((257, 104, 258), LONG, 1, 100))
    assert isinstance(await link.receive(), Opened)
    yield
    await client.close()


async def follow(agent: Agent, first: MortalVerifier, chunks: list[Chunk]) -> Result:
    """An answer in the midst of which the first verifier is killed."""
    async for chunk in agent.stream(PROMPT, LONG):
        chunks.append(chunk)
        if first.is_running and sum(len(chunk.token_ids) for chunk in chunks) >= 10:
            await first.kill()
    result = chunks[-1].result
    assert result is not None
    return result


async def test_an_answer_that_the_next_verifier_refuses_is_kept_as_far_as_it_came(tmp_path: Path) -> None:
    async with mortal_verifiers(tmp_path, 2, "--max-sessions", "1") as [first, second], full(second):
        expected = await whole(first)
        async with Agent.connect([first.address, second.address], "tiny:0.5", patience_s=1) as agent:
            with pytest.raises(AnswerInterrupted) as caught:
                await follow(agent, first, [])
    error = caught.value
    assert error.reason is Reason.CAPACITY_EXHAUSTED
    assert error.partial.token_ids == expected[: len(error.partial.token_ids)]
    assert list(error.handle.committed_ids) == error.partial.committed_ids
    assert len(error.partial.token_ids) >= 10


async def test_what_the_drafter_has_ended_stands_where_the_next_verifier_refuses(tmp_path: Path) -> None:
    async with mortal_verifiers(tmp_path, 2, "--max-sessions", "1") as [first, second], full(second):
        addresses = [first.address, second.address]
        async with Agent.connect(addresses, "tiny:0.5", fallback="local", patience_s=1) as agent:
            result = await follow(agent, first, [])
    assert len(result.token_ids) == 100
    assert 0 < result.stats["unverified_tokens"] <= 90
    assert result.handle is not None


@pytest.mark.parametrize(
    "arguments",
    [
        {"fallback": "cloud"},
        {"fallback": "local", "drafter": "lookup"},
        {"fallback": "local", "drafter": "scripted:right+lookup"},
    ],
)
async def test_a_fallback_that_cannot_be_had_is_refused(arguments: dict[str, Any]) -> None:
    with refused(Reason.USAGE, "--fallback"):
        async with Agent.connect("127.0.0.1:1", **arguments):
            pass
