"""Whatever an edge sends: its stream ends in time with a status from the table that is no fault of the verifier's, its
text is the target's, its neighbours' too, and nothing of it stays behind.

`OUTRIDER_FUZZ_SEED` repeats a long run, which prints its seed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

import grpc
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from outrider.cloud.server import ServerConfig, running_server
from outrider.cloud.session import SessionLimits
from outrider.cloud.target import EngineTarget
from outrider.cloud.targets.tiny import TinyEngine
from outrider.cloud.verifier import Verifier, VerifierConfig
from outrider.edge.agent import Agent
from outrider.shared.sampling.options import Sampling
from outrider.v1 import verifier_pb2 as pb
from support.decode_walker import Walker
from support.fuzzing import STREAM_LIMIT_S, ByteStream, Ending, check_commits, mutated, send_all
from support.serving import grow_request, open_request
from support.wild_messages import scripts

SLOTS, NEIGHBOURS, AT_ONCE = 8, 2, 4
PROMPT = list(open_request().open.prompt_ids)


@dataclass(frozen=True, slots=True)
class Victim:
    """A verifier with neighbours at work, and what its target says alone to `open_request()`."""

    channel: grpc.aio.Channel
    alone_ids: list[int]
    rounds: list[int]
    endings: list[Ending] = field(default_factory=list)


@contextlib.asynccontextmanager
async def victim() -> AsyncIterator[Victim]:
    """A live verifier whose neighbours decode inside the context; afterwards all is as it was before."""
    config = VerifierConfig(session=SessionLimits(window=32, open_limit_s=3.0, idle_limit_s=3.0, send_limit_s=3.0))
    verifier = Verifier(EngineTarget(TinyEngine(max_slots=SLOTS, context_length=64)), config)
    async with (
        running_server(verifier, ServerConfig("127.0.0.1:0")) as port,
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
        Agent.connect(f"127.0.0.1:{port}", drafter="tiny:0.5", control="fixed", gamma=3) as agent,
    ):
        alone_ids = await _answer(agent, PROMPT)
        expected = [await _answer(agent, [97 + number]) for number in range(NEIGHBOURS)]
        rounds = [0] * NEIGHBOURS

        async def neighbour(number: int) -> None:
            while True:
                assert await _answer(agent, [97 + number]) == expected[number]
                rounds[number] += 1

        tasks = [asyncio.create_task(neighbour(number)) for number in range(NEIGHBOURS)]
        try:
            yield Victim(channel, alone_ids, rounds)
            # As many answers again as there were, to be sure that they have not come to a stop.
            before = list(rounds)
            async with asyncio.timeout(STREAM_LIMIT_S):
                while any(now == then for now, then in zip(rounds, before, strict=True)):
                    _raise_failures(tasks)
                    await asyncio.sleep(0.01)
            _raise_failures(tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        async with asyncio.timeout(STREAM_LIMIT_S):
            while verifier.unused_slots < SLOTS or _readers():  # noqa: ASYNC110 - nothing tells of both
                await asyncio.sleep(0.01)


def _raise_failures(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        if task.done():
            task.result()


def _readers() -> list[str]:
    return [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("read-")]


async def _answer(agent: Agent, prompt_ids: list[int]) -> list[int]:
    chunks = [chunk async for chunk in agent.stream_ids(prompt_ids, Sampling(max_tokens=40, seed=3))]
    assert chunks[-1].result is not None
    return chunks[-1].result.token_ids


def _good_streams() -> list[list[bytes]]:
    """Streams that keep to the rules, for the mutations to begin with."""
    opened = open_request(sampling={"temperature": 0.7, "top_p": 0.9, "logit_bias": {97: 1.0}}, stop_ids=[10])
    parted = open_request(prompt_ids=PROMPT[:2], prompt_length=len(PROMPT))
    part = pb.DecodeRequest(prompt_part=pb.PromptPart(prompt_ids=PROMPT[2:]))
    grows = [grow_request(1, [97, 98, 99], run_to=4), grow_request(4, [100, 101], parents=[0, 2])]
    resume = pb.DecodeRequest(resume=pb.Resume(session_id="0" * 32, attempt=1, committed_length=3, hash=9))
    close = pb.DecodeRequest(close=pb.Close())
    streams = [[open_request(), *grows, close], [opened, *grows], [parted, part, *grows, close], [resume, grows[0]]]
    return [[request.SerializeToString() for request in stream] for stream in streams]


async def _fuzz_bytes(it: Victim, rng: random.Random) -> None:
    streams = _good_streams()
    every = [message for stream in streams for message in stream]
    stream = list(rng.choice(streams))
    for _ in range(rng.randint(1, 2)):
        at = rng.randrange(len(stream))
        stream[at] = mutated(rng, stream[at], every)
    if rng.random() < 0.2:
        stream.insert(rng.randrange(len(stream)), rng.choice(every))
    if rng.random() < 0.1:
        await _vanish(it, stream)
    else:
        it.endings.append(await send_all(it.channel, stream))


async def _vanish(it: Victim, messages: list[bytes]) -> None:
    stream = ByteStream(it.channel)
    for message in messages:
        await stream.send(message)
    stream.cancel()


async def _fuzz_walk(it: Victim, rng: random.Random) -> None:
    async with asyncio.timeout(STREAM_LIMIT_S):
        ending, reason = await Walker(ByteStream(it.channel), rng, it.alone_ids).walk()
    check_commits(ending, PROMPT, it.alone_ids)
    # What is said after the end is not listened to.
    it.endings.append(ending)
    assert ending.is_lost or ending.reason is reason or (ending.reason is None and ending.has_finished), (
        ending.reason,
        reason,
    )


async def _many(seed: int, count: int, fuzz: Callable[[Victim, random.Random], Awaitable[None]]) -> None:
    """Run `count` streams, a few at once; a failure tells the seed of its stream."""
    async with victim() as it:
        numbers = iter(range(count))

        async def one_after_another() -> None:
            for number in numbers:
                try:
                    await fuzz(it, random.Random(f"{seed}/{number}"))
                except BaseException as error:
                    error.add_note(f"stream {number} of seed {seed}")
                    raise

        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(one_after_another())
        # Only a few may be judged by half: their status did not arrive.
        assert sum(ending.is_lost for ending in it.endings) <= len(it.endings) / 10


async def test_changed_bytes_end_one_stream_only_and_with_a_status_from_the_table() -> None:
    await _many(1, 400, _fuzz_bytes)


async def test_streams_by_the_rules_are_served_until_they_break_one_and_then_named_it() -> None:
    await _many(2, 300, _fuzz_walk)


@settings(
    max_examples=8, deadline=None, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
)
@given(st.lists(scripts, min_size=20, max_size=40))
def test_wild_values_end_one_stream_only_and_with_a_status_from_the_table(many: list[list[pb.DecodeRequest]]) -> None:
    asyncio.run(_send_scripts(many))


async def _send_scripts(many: list[list[pb.DecodeRequest]]) -> None:
    async with victim() as it:
        for script in many:
            ending = await send_all(it.channel, [request.SerializeToString() for request in script])
            if script[0] == open_request():
                check_commits(ending, PROMPT, it.alone_ids)


@pytest.mark.slow
@pytest.mark.parametrize("fuzz", [_fuzz_bytes, _fuzz_walk])
async def test_many_more_streams(fuzz: Callable[[Victim, random.Random], Awaitable[None]]) -> None:
    seed = int(os.environ.get("OUTRIDER_FUZZ_SEED", random.SystemRandom().randrange(2**32)))
    print(f"OUTRIDER_FUZZ_SEED={seed}")
    await _many(seed, 20_000, fuzz)
