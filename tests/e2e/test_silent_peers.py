"""Peers that fall silent without closing anything: frozen processes and links that swallow everything are noticed in
time, and quiet connections are left in peace. In real time, as gRPC's own timers are what is tested.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from outrider.edge.agent import Agent
from outrider.edge.link import GrpcEdgeLink, VerifierClient
from outrider.harness.delay_proxy import DelayProxy
from outrider.harness.links import Cut, LinkProfile
from outrider.shared.access import split_address
from outrider.shared.errors import OutriderError, Reason
from outrider.shared.messages import Commit, Grow, Open, Opened
from support.mortal import LONG, MortalVerifier, mortal_verifiers

pytestmark = pytest.mark.slow

LIMIT_S = 5.0
REQUEST = Open(prompt_ids=(257, 104, 105, 258), sampling=LONG, seed=5, max_tokens=100)
SILENCE = Cut(at_s=0, edge_notice_ms=600_000, cloud_notice_ms=600_000)


@contextlib.asynccontextmanager
async def proxied(verifier: MortalVerifier) -> AsyncIterator[tuple[DelayProxy, str]]:
    """A proxy in front of the verifier, and its address."""
    host, port = split_address(verifier.address)
    proxy = DelayProxy(LinkProfile(), 1, host, int(port))
    async with await proxy.listen("127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()[:2]
        yield proxy, f"{host}:{port}"


async def begun(client: VerifierClient, run_to: int) -> GrpcEdgeLink:
    link = client.open_stream()
    await link.send(REQUEST)
    assert isinstance(await link.receive(), Opened)
    await link.send(Grow(1, 0, run_to=run_to))
    assert isinstance(await link.receive(), Commit)
    return link


async def until_unreachable(link: GrpcEdgeLink) -> None:
    with pytest.raises(OutriderError) as caught:
        while True:
            await link.receive()
    assert caught.value.reason is Reason.VERIFIER_UNREACHABLE


def report(what: str, seconds: float) -> None:
    print(f"\n{what}: {seconds:.2f} s", file=sys.stderr)


@pytest.mark.parametrize("run_to", [1, 100], ids=["idle", "in mid-answer"])
async def test_an_edge_notices_a_frozen_verifier(tmp_path: Path, run_to: int) -> None:
    async with mortal_verifiers(tmp_path, pass_ms=100) as (verifier,):
        client = VerifierClient(verifier.address, own_connection=True)
        link = await begun(client, run_to)
        if run_to == 1:
            # gRPC measures links with pings of its own after data; the keepalive's are what is left.
            await asyncio.sleep(3)
        verifier.send(signal.SIGSTOP)
        began_s = time.monotonic()
        await until_unreachable(link)
        took_s = time.monotonic() - began_s
        report("a frozen verifier", took_s)
        await client.close()
    assert took_s < LIMIT_S


async def test_an_answer_moves_on_from_a_frozen_verifier(tmp_path: Path) -> None:
    async with mortal_verifiers(tmp_path, 2) as (first, second):
        async with Agent.connect(second.address, drafter="none") as agent:
            expected = (await agent.answer("moves on", LONG)).token_ids
        async with Agent.connect([first.address, second.address], drafter="none") as agent:
            given: list[int] = []
            stopped_s, longest_s, last_s = 0.0, 0.0, time.monotonic()
            async for chunk in agent.stream("moves on", LONG):
                longest_s, last_s = max(longest_s, time.monotonic() - last_s), time.monotonic()
                given += chunk.token_ids
                if len(given) >= 30 and not stopped_s:
                    first.send(signal.SIGSTOP)
                    stopped_s = last_s
    assert given == expected
    report("the longest gap of an answer that moved on", longest_s)
    assert longest_s < LIMIT_S


async def test_an_edge_notices_a_link_that_swallows_everything(tmp_path: Path) -> None:
    async with mortal_verifiers(tmp_path, pass_ms=100) as (verifier,), proxied(verifier) as (proxy, address):
        client = VerifierClient(address, own_connection=True)
        link = await begun(client, 100)
        proxy.cut(SILENCE)
        began_s = time.monotonic()
        await until_unreachable(link)
        took_s = time.monotonic() - began_s
        report("a black hole, at the edge", took_s)
        await client.close()
    assert took_s < LIMIT_S


@pytest.mark.parametrize("run_to", [1, 100], ids=["idle", "in mid-answer"])
async def test_a_verifier_notices_a_link_that_swallows_everything(tmp_path: Path, run_to: int) -> None:
    """A suspended session is decoded no further: the passes end."""
    async with (
        mortal_verifiers(tmp_path, 1, "--max-sessions", "1", pass_ms=100) as (verifier,),
        proxied(verifier) as (proxy, address),
    ):
        client = VerifierClient(address, own_connection=True)
        await begun(client, run_to)
        proxy.cut(SILENCE)
        took_s = await seconds_until_the_slot_is_free(verifier)
        report(f"a black hole, at the verifier, run_to {run_to}", took_s)
        await client.close()
    assert took_s < LIMIT_S


EDGE = """
import asyncio, sys
from outrider.edge.agent import Agent
from outrider.shared.sampling.options import Sampling
async def main():
    async with Agent.connect(sys.argv[1], drafter="none") as agent:
        async for chunk in agent.stream("freezes", Sampling(max_tokens=100, logit_bias={256: -100.0})):
            print(chunk.text, flush=True)
asyncio.run(main())
"""


async def test_a_verifier_suspends_the_session_of_a_frozen_edge(tmp_path: Path) -> None:
    async with mortal_verifiers(tmp_path, 1, "--max-sessions", "1", pass_ms=100) as (verifier,):
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        edge = await asyncio.create_subprocess_exec(
            sys.executable, "-c", EDGE, verifier.address, stdout=subprocess.PIPE, env=environment
        )
        try:
            assert edge.stdout is not None
            await edge.stdout.readline()
            edge.send_signal(signal.SIGSTOP)
            took_s = await seconds_until_the_slot_is_free(verifier)
            report("a frozen edge", took_s)
        finally:
            edge.kill()
            await edge.wait()
    assert took_s < LIMIT_S


async def seconds_until_the_slot_is_free(verifier: MortalVerifier) -> float:
    """Until a session of another stream gets the verifier's only slot: the one that has it is suspended then, and its
    own caller may displace it.
    """
    began_s = time.monotonic()
    client = VerifierClient(verifier.address, own_connection=True)
    try:
        async with asyncio.timeout(40):
            while True:
                link = client.open_stream()
                await link.send(REQUEST)
                try:
                    await link.receive()
                except OutriderError as error:
                    assert error.reason is Reason.CAPACITY_EXHAUSTED
                    await asyncio.sleep(0.05)
                else:
                    link.abandon()
                    return time.monotonic() - began_s
    finally:
        await client.close()


async def test_a_stream_works_on_after_two_idle_minutes(tmp_path: Path) -> None:
    async with mortal_verifiers(tmp_path) as (verifier,):
        client = VerifierClient(verifier.address, own_connection=True)
        link = await begun(client, 1)
        await asyncio.sleep(120)
        await link.send(Grow(1, 1, run_to=2))
        commit = await link.receive()
        assert isinstance(commit, Commit)
        assert commit.committed_length == 2
        link.abandon()
        await client.close()


async def test_a_connection_without_calls_is_silent(tmp_path: Path) -> None:
    """While a call is open there are pings, so it is known that they would be seen."""
    async with mortal_verifiers(tmp_path) as (verifier,), proxied(verifier) as (proxy, address):
        client = VerifierClient(address, own_connection=True)
        link = await begun(client, 1)
        await asyncio.sleep(1)
        proxy.late_s.clear()
        await asyncio.sleep(10)
        assert proxy.late_s, "pings"
        link.abandon()
        await asyncio.sleep(1)
        proxy.late_s.clear()
        await asyncio.sleep(10)
        assert not proxy.late_s
        await client.close()
