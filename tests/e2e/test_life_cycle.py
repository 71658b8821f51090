"""What happens around answers: consumers that walk away, drafters that fail, verifiers and parents that end."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence

import pytest

from outrider.cloud.targets.tiny import TinyEngine
from outrider.edge.agent import Agent, AnswerOptions
from outrider.edge.drafters.base import Proposal
from outrider.edge.drafters.tiny import TinyDraftSession
from outrider.edge.private_verifier import private_verifier
from outrider.shared.errors import OutriderError, Reason
from outrider.shared.sampling.options import Sampling
from support.process import COMMAND
from support.serving import serving

LONG = Sampling(max_tokens=300, logit_bias={256: -100.0})


@pytest.fixture
async def one_slot() -> AsyncIterator[str]:
    async with serving(TinyEngine(max_slots=1)) as address:
        yield address


@pytest.mark.parametrize("drafter", ["tiny:0.5", "none"])
async def test_a_consumer_that_walks_away_fifty_times_leaves_the_slot_free_and_the_ids_right(
    one_slot: str, drafter: str
) -> None:
    async with Agent.connect(one_slot, drafter=drafter) as agent:
        expected = await agent.answer("again", LONG)
        for taken in range(50):
            stream = agent.stream("again", LONG)
            for _ in range(taken % 4 + 1):
                await anext(stream)
            await stream.aclose()
        assert (await agent.answer("again", LONG)).token_ids == expected.token_ids


async def test_two_prompts_at_once_with_one_agent_wait_for_the_slot_and_get_their_own_ids(one_slot: str) -> None:
    async with Agent.connect(one_slot, drafter="tiny:0.5") as agent:
        alone = [await agent.answer(prompt, LONG) for prompt in ("left", "right")]
        both = await asyncio.gather(*(agent.answer(prompt, LONG) for prompt in ("left", "right")))
    assert [result.token_ids for result in both] == [result.token_ids for result in alone]


async def test_an_answer_cut_by_a_stop_text_makes_room_for_the_next(one_slot: str) -> None:
    async with Agent.connect(one_slot, drafter="none") as agent:
        for _ in range(20):
            result = await agent.answer("stop", LONG.model_copy(update={"stop": (" ",)}))
            assert result.finish_reason == "stop"


async def test_a_drafter_that_fails_costs_guesses_and_not_the_answer(
    one_slot: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with Agent.connect(one_slot, drafter="tiny:0.5") as agent:
        expected = await agent.answer("fails", LONG)
        propose = TinyDraftSession.propose

        async def failing(self: TinyDraftSession, texts: Sequence[Sequence[int]], count: int) -> list[list[Proposal]]:
            if any(len(text) > 40 for text in texts):
                raise OutriderError(Reason.INTERNAL, "out of memory")
            return await propose(self, texts, count)

        monkeypatch.setattr(TinyDraftSession, "propose", failing)
        result = await agent.answer("fails", LONG)
    assert result.token_ids == expected.token_ids
    assert "out of memory" in result.stats["draft_error"]
    assert "without guesses" in caplog.text


async def test_every_id_of_an_answer_in_turn_as_stop_id_ends_it_there() -> None:
    async with serving(TinyEngine(max_slots=2)) as address, Agent.connect(address, drafter="tiny:0.5") as agent:
        whole = (await agent.answer("stops", Sampling(max_tokens=40, temperature=1.0, seed=2))).token_ids
        for token in sorted(set(whole)):
            options = AnswerOptions(stop_ids=frozenset({token}))
            result = await agent.answer("stops", Sampling(max_tokens=40, temperature=1.0, seed=2), options)
            assert result.token_ids == whole[: whole.index(token)]
            assert result.finish_reason == "stop"


async def test_an_agent_left_in_mid_answer_closes_its_drafter_and_its_stream(one_slot: str) -> None:
    async with Agent.connect(one_slot, drafter="tiny:0.5") as agent:
        stream = agent.stream("left", LONG)
        await anext(stream)
    with pytest.raises((OutriderError, StopAsyncIteration, asyncio.CancelledError)):
        for _ in range(1000):
            await anext(stream)
    async with Agent.connect(one_slot, drafter="tiny:0.5") as agent:
        assert (await agent.answer("left", LONG)).token_ids


async def test_a_private_verifier_ends_with_its_parent_after_many_answers() -> None:
    """Its standard input is all that ties it to the parent."""
    process = await asyncio.create_subprocess_exec(
        *COMMAND, "verifier", "--target", "tiny", "--listen", "127.0.0.1:0", "--stop-with-stdin", "--json",
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdin is not None
    address = (await process.stdout.readline()).decode().split('"')[3]
    async with Agent.connect(address, drafter="tiny:0.5") as agent:
        for _ in range(15):
            await agent.answer("many", LONG)
    process.stdin.close()
    async with asyncio.timeout(8):
        assert await process.wait() == 0


async def test_a_private_verifier_is_gone_when_its_user_is_done() -> None:
    async with private_verifier(["--target", "tiny"]) as address, Agent.connect(address, drafter="tiny:0.5") as agent:
        await agent.answer("x", LONG)
    with pytest.raises(OutriderError) as refused:
        async with Agent.connect(address, drafter="tiny:0.5"):
            pass
    assert refused.value.reason is Reason.VERIFIER_UNREACHABLE


async def test_a_verifier_that_is_terminated_in_mid_answer_is_reported_as_unreachable() -> None:
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        "verifier",
        "--target",
        "tiny",
        "--context",
        "100000",
        "--listen",
        "127.0.0.1:0",
        "--json",
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    address = (await process.stdout.readline()).decode().split('"')[3]
    async with Agent.connect(address, drafter="none", patience_s=1) as agent:
        stream = agent.stream("end", Sampling(max_tokens=90_000, logit_bias={256: -100.0}))
        await anext(stream)
        process.terminate()
        with pytest.raises(OutriderError) as refused:
            async for _ in stream:
                pass
        assert refused.value.reason is Reason.VERIFIER_UNREACHABLE
        assert refused.value.exit_code == 4
    assert await process.wait() == 0


def test_it_works_inside_a_program_that_already_runs_an_event_loop() -> None:
    """As in a notebook: two agents in one loop, nothing on standard error."""
    program = """
import asyncio
from outrider.edge import Agent, Sampling, private_verifier
async def main():
    async with private_verifier(["--target", "tiny"]) as address:
        async with Agent.connect(address, drafter="tiny:0.5") as one, Agent.connect(address, drafter="none") as two:
            short = Sampling(max_tokens=20)
            a, b = await asyncio.gather(one.answer("hi", short), two.answer("hi", short))
            assert a.token_ids == b.token_ids
loop = asyncio.new_event_loop()
loop.run_until_complete(main())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_it_works_in_loops_one_after_the_other_in_threads_and_in_a_forked_child() -> None:
    """As in a server with workers: each has a loop of its own, and a verifier."""
    program = """
import asyncio, multiprocessing, threading
from outrider.edge import Agent, Sampling, private_verifier
async def main():
    async with private_verifier(["--target", "tiny"]) as here, Agent.connect(here, "tiny:0.5", control="fixed") as one:
        return (await one.answer("hi", Sampling(max_tokens=20))).token_ids
answers = [asyncio.run(main()), asyncio.run(main())]
threads = [threading.Thread(target=lambda: answers.append(asyncio.run(main()))) for _ in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert answers == [answers[0]] * 4, answers
def child():
    assert asyncio.run(main()) == answers[0]
forked = multiprocessing.get_context("fork").Process(target=child)
forked.start()
forked.join(40)
assert forked.exitcode == 0, forked.exitcode
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    # A fork is told of by grpc itself where another of its threads is at work.
    said = [line for line in done.stderr.splitlines() if "fork_posix.cc" not in line]
    assert (done.returncode, said) == (0, [])
