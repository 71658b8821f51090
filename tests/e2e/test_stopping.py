"""Verifier processes that are told to stop: they send edges elsewhere, let the running pass give its tokens, and end in
time.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from outrider.edge.agent import Agent
from outrider.edge.link import VerifierClient
from outrider.shared.errors import Reason
from outrider.shared.messages import Commit, Finished, GoAway, Grow, Open, Opened
from support.mortal import LONG, mortal_verifiers
from support.refusal import refused

PROMPT = "who goes on?"
REQUEST = Open(prompt_ids=(257, 104, 105, 258), sampling=LONG, seed=5, max_tokens=100)


@pytest.mark.parametrize("drafter", ["none", "tiny:0.5"])
async def test_edges_of_a_verifier_that_stops_go_on_at_the_other_one(tmp_path: Path, drafter: str) -> None:
    """Well before the time is up: nobody waits for anybody."""
    async with mortal_verifiers(tmp_path, 2) as (first, second):
        async with Agent.connect(second.address, drafter="none") as agent:
            expected = (await agent.answer(PROMPT, LONG)).token_ids
        async with Agent.connect([first.address, second.address], drafter=drafter) as agent:
            given: list[int] = []
            began_s = 0.0
            ending: asyncio.Task[int] | None = None
            async for chunk in agent.stream(PROMPT, LONG):
                given += chunk.token_ids
                if len(given) >= 30 and ending is None:
                    assert len(given) < LONG.max_tokens
                    began_s = time.monotonic()
                    first.send(signal.SIGTERM)
                    ending = asyncio.create_task(first.ended())
            assert ending is not None
            assert await ending == 0
            took_s = time.monotonic() - began_s
    assert given == expected
    assert took_s < 4, "not the linger, and not the grace period"


async def test_the_running_pass_gives_its_tokens_before_the_stream_ends(tmp_path: Path) -> None:
    async with mortal_verifiers(tmp_path, 1, pass_ms=500) as (verifier,):
        client = VerifierClient(verifier.address, own_connection=True)
        link = client.open_stream()
        await link.send(REQUEST)
        assert isinstance(await link.receive(), Opened)
        await link.send(Grow(1, 0, run_to=50))
        await link.receive()
        passes = verifier.passes
        await verifier.until(lambda: verifier.passes > passes)
        verifier.send(signal.SIGTERM)
        said = []
        while (message := await link.receive()) is not None:
            said.append(message)
        kinds = [type(message) for message in said]
        # The commit of the pass before may still be on its way when the next one begins.
        assert kinds[kinds.index(GoAway) :] == [GoAway, Commit], "no further pass begins"
        with contextlib.suppress(Exception):
            await link.close()
        await client.close()
        assert await verifier.ended() == 0


async def test_its_health_is_bad_and_new_answers_are_refused_while_it_stops(tmp_path: Path) -> None:
    async with mortal_verifiers(tmp_path, 1, pass_ms=2000) as (verifier,):
        client = VerifierClient(verifier.address, own_connection=True)
        link = client.open_stream()
        await link.send(REQUEST)
        assert isinstance(await link.receive(), Opened)
        await verifier.until(lambda: verifier.is_in_pass)
        async with grpc.aio.insecure_channel(verifier.address) as channel:
            watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
            assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
            verifier.send(signal.SIGTERM)
            assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
            late = client.open_stream()
            await late.send(REQUEST)
            with refused(Reason.DRAINING):
                await late.receive()
            watch.cancel()
        assert isinstance(await link.receive(), GoAway)
        await client.close()
        assert await verifier.ended() == 0


async def test_a_call_without_an_end_of_its_own_is_broken_off(tmp_path: Path) -> None:
    """Watching the health is one."""
    async with (
        mortal_verifiers(tmp_path) as (verifier,),
        grpc.aio.insecure_channel(verifier.address) as channel,
    ):
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        await watch.read()
        began_s = time.monotonic()
        verifier.send(signal.SIGTERM)
        assert await verifier.ended() == 0
        assert time.monotonic() - began_s < 4


async def test_a_pass_that_does_not_end_is_not_waited_for(tmp_path: Path) -> None:
    """A minute is what it would take."""
    async with mortal_verifiers(tmp_path, 1, "--grace", "1") as (verifier,):
        await verifier.kill()
        await verifier.start(long_pass=3)
        client = VerifierClient(verifier.address, own_connection=True)
        link = client.open_stream()
        await link.send(REQUEST)
        await link.send(Grow(1, 0, run_to=50))
        await verifier.until(lambda: verifier.passes == 3)
        began_s = time.monotonic()
        verifier.send(signal.SIGTERM)
        assert await verifier.ended() == 70
        assert time.monotonic() - began_s < 4
        link.abandon()
        await client.close()


async def test_an_answer_that_ends_with_the_last_pass_is_complete(tmp_path: Path) -> None:
    async with mortal_verifiers(tmp_path, 1, pass_ms=500) as (verifier,):
        client = VerifierClient(verifier.address, own_connection=True)
        link = client.open_stream()
        await link.send(Open(prompt_ids=REQUEST.prompt_ids, sampling=LONG, seed=5, max_tokens=1))
        assert isinstance(await link.receive(), Opened)
        # The prompt's pass began without the edge's leave to decode, so it gives no token.
        await verifier.until(lambda: verifier.passes == 1 and not verifier.is_in_pass)
        await link.send(Grow(1, 0, run_to=1))
        await verifier.until(lambda: verifier.passes == 2)
        verifier.send(signal.SIGTERM)
        said = []
        while (message := await link.receive()) is not None:
            said.append(type(message))
            if said[-1] is Finished:
                break
        await link.close()
        assert said == [GoAway, Commit, Finished]
        await client.close()
        assert await verifier.ended() == 0
