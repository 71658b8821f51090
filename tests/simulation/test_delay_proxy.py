"""The delay proxy in real time: what passes is whole, in order, as late and as slow as the link says."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import subprocess
import sys
import time
from collections.abc import AsyncIterator

import pytest

from outrider.edge.agent import Agent
from outrider.harness.delay_proxy import DelayProxy
from outrider.harness.links import Cut, DelayModel, Direction, LinkProfile, Stall
from outrider.harness.probe_link import LinkProbe, probe_link
from outrider.harness.proxy_process import running_proxy
from outrider.shared.sampling.options import Sampling
from support.serving import serving

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@contextlib.asynccontextmanager
async def echo_through(profile: LinkProfile) -> AsyncIterator[tuple[DelayProxy, Streams]]:
    """A connection through a proxy in this process to a server that sends back what it gets."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                writer.write(data)
        writer.close()

    async with await asyncio.start_server(echo, "127.0.0.1", 0) as server:
        proxy = DelayProxy(profile, 1, *server.sockets[0].getsockname()[:2])
        async with await proxy.listen("127.0.0.1", 0) as listener:
            streams = await asyncio.open_connection(*listener.sockets[0].getsockname()[:2])
            try:
                yield proxy, streams
            finally:
                streams[1].close()


async def test_data_comes_back_whole_and_in_order_through_jitter_stalls_and_losses() -> None:
    profile = LinkProfile.of_rtt(
        20, jitter="exponential", jitter_ms=8, jitter_slot_ms=2, up_mbit=40, down_mbit=80,
        loss_probability=0.05, loss_stall_ms=40, stalls=(Stall(at_s=0.05, length_ms=30, every_s=0.1),),
    )  # fmt: skip
    data = random.Random(3).randbytes(300_000)
    async with echo_through(profile) as (_, (reader, writer)), asyncio.timeout(10):
        for start in range(0, len(data), 7001):
            writer.write(data[start : start + 7001])
            await asyncio.sleep(0.001)
        writer.write_eof()
        assert await reader.read(-1) == data


async def test_a_stall_holds_data_until_its_end() -> None:
    async with echo_through(LinkProfile(stalls=(Stall(at_s=0, length_ms=300, direction="up"),))) as (_, streams):
        began = time.perf_counter()
        streams[1].write(b"x")
        assert await streams[0].readexactly(1) == b"x"
        assert time.perf_counter() - began > 0.2


async def test_data_sent_before_the_other_half_stands_is_not_lost() -> None:
    for _ in range(20):
        async with echo_through(LinkProfile()) as (_, (reader, writer)), asyncio.timeout(5):
            writer.write(b"first")
            assert await reader.readexactly(5) == b"first"


async def test_a_new_beginning_of_the_clock_keeps_connections_and_what_flies() -> None:
    async with echo_through(LinkProfile.of_rtt(300)) as (proxy, (reader, writer)), asyncio.timeout(5):
        await asyncio.sleep(0.6)
        began = time.perf_counter()
        writer.write(b"flying")
        await asyncio.sleep(0.1)
        proxy.restart_clock()
        assert proxy.now_s() < 0.05
        writer.write(b"later")
        assert await reader.readexactly(6) == b"flying"
        assert 0.29 < time.perf_counter() - began < 0.6
        # What went before the beginning, in a time that was further on, holds nothing up.
        assert await reader.readexactly(5) == b"later"
        assert 0.39 < time.perf_counter() - began < 0.8


async def test_stalls_and_cuts_lie_in_the_time_since_the_clock_began() -> None:
    profile = LinkProfile(stalls=(Stall(at_s=0.0, length_ms=200),), cuts=(Cut(at_s=1.0),))
    async with echo_through(profile) as (proxy, (reader, writer)), asyncio.timeout(5):
        await asyncio.sleep(0.4)
        proxy.restart_clock()
        writer.write(b"x")
        assert await reader.readexactly(1) == b"x"
        assert 0.19 < proxy.now_s() < 0.9
        with pytest.raises(ConnectionResetError):
            await reader.read(1)
        assert proxy.now_s() > 0.99


async def test_each_connection_draws_its_own_jitter() -> None:
    profile = LinkProfile.of_rtt(100, jitter="uniform", jitter_ms=50, jitter_slot_ms=60_000)
    async with echo_through(profile) as (proxy, first), asyncio.timeout(5):
        second = await asyncio.open_connection(*first[1].get_extra_info("peername"))
        times_s = []
        for reader, writer in (first, second):
            began = time.perf_counter()
            writer.write(b"x")
            await reader.readexactly(1)
            times_s.append(time.perf_counter() - began)
        second[1].close()
        assert proxy.accepted == 2
        for seed, took_s in zip((1, 2), times_s, strict=True):
            expected_s = sum(DelayModel(profile, way, seed).delay_s(0) for way in Direction)
            assert expected_s <= took_s < expected_s + 0.3


async def test_what_a_socket_does_not_see_takes_its_time_on_a_narrow_link() -> None:
    """At 10 kbit/s a byte takes 0.8 ms; a packet's headers are 52 bytes beside HTTP/2's and gRPC's."""
    async with echo_through(LinkProfile(up_mbit=0.01)) as (proxy, (reader, writer)), asyncio.timeout(5):
        began = time.perf_counter()
        writer.write(b"x")
        await reader.readexactly(1)
        assert 0.8 * 53 / 1000 <= time.perf_counter() - began < 0.5
        assert len(proxy.late_s) == 2
        assert min(proxy.late_s) >= 0


@pytest.mark.parametrize("kind", ["rst", "fin"])
async def test_a_cut_loses_what_flies(kind: str) -> None:
    cut = Cut.model_validate({"at_s": 1.1, "kind": kind})
    async with echo_through(LinkProfile.of_rtt(600, cuts=(cut,))) as (_, (reader, writer)), asyncio.timeout(5):
        writer.write(b"early")
        assert await reader.readexactly(5) == b"early"
        writer.write(b"late")
        if kind == "rst":
            with pytest.raises(ConnectionResetError):
                await reader.read()
        else:
            assert await reader.read() == b""


async def test_new_connections_during_an_outage_are_reset() -> None:
    async with echo_through(LinkProfile(cuts=(Cut(at_s=0, outage_ms=60_000),))) as (_, (reader, _)):
        async with asyncio.timeout(5):
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""


async def test_a_link_that_falls_silent_loses_all_and_is_told_of_later() -> None:
    """What was sent at once would be back after 0.5 s."""
    profile = LinkProfile.of_rtt(500, cuts=(Cut(at_s=0.3, edge_notice_ms=400, cloud_notice_ms=400),))
    async with echo_through(profile) as (proxy, (reader, writer)), asyncio.timeout(5):
        writer.write(b"lost")
        with pytest.raises(ConnectionResetError):
            await reader.read(1)
        assert proxy.now_s() > 0.69


@pytest.mark.slow
async def test_a_probe_finds_the_proxy_valid_on_its_own_process() -> None:
    """Five tries: the machine may be busy with something else for a moment. Slow, as it needs a quiet one."""
    cut = Cut(at_s=0, outage_ms=60_000)
    profile = LinkProfile(
        up_ms=8, down_ms=17, up_mbit=10, down_mbit=40, jitter="uniform", jitter_ms=5, cuts=(cut,)
    )  # fmt: skip
    for _ in range(5):
        probe = await probe_link(profile)
        if probe.is_valid:
            break
    assert probe.is_valid, probe.problems
    assert probe.expected_rtt_ms == pytest.approx(25, abs=0.1)


@pytest.mark.parametrize(
    ("rtt_ms", "up", "down", "problems"),
    [
        (20.9, 10.4, 38.1, 0),
        (21.1, 10, 40, 1),
        (18.9, 10, 40, 1),
        (20, 10.6, 37.9, 2),
    ],
)
def test_a_probe_is_invalid_past_its_tolerance(rtt_ms: float, up: float, down: float, problems: int) -> None:
    probe = LinkProbe(rtt_ms, 20, rtt_ms, up, 10, down, 40)
    assert len(probe.problems) == problems
    assert probe.is_valid == (problems == 0)
    assert LinkProbe(104.9, 100, 105, None, None, None, None).is_valid
    assert not LinkProbe(105.1, 100, 106, None, None, None, None).is_valid


async def test_grpc_answers_through_the_proxy_and_pays_the_round_trips() -> None:
    """The same answer as without it; where the process's proxy cuts the stream, the answer goes on."""
    sampling = Sampling(max_tokens=12, seed=3)
    async with serving() as address:
        async with Agent.connect(address, drafter="tiny:0.5", gamma=3) as agent:
            direct = [chunk async for chunk in agent.stream("hello", sampling)][-1].result
        async with (
            running_proxy(LinkProfile.of_rtt(40), address) as proxy,
            Agent.connect(proxy.address, drafter="tiny:0.5", gamma=3) as agent,
        ):
            delayed = [chunk async for chunk in agent.stream("hello", sampling)][-1].result
            assert direct is not None
            assert delayed is not None
            assert delayed.token_ids == direct.token_ids
            assert float(str(delayed.stats["seconds"])) > 0.040 * int(str(delayed.stats["passes"]))
            stream = agent.stream("hello", sampling)
            await anext(stream)
            await proxy.cut("rst")
            cut = [chunk async for chunk in stream][-1].result
            assert cut is not None
            assert cut.token_ids == direct.token_ids
            assert cut.stats["streams"] == 2


def test_the_process_says_its_port_obeys_and_ends_with_its_stdin() -> None:
    command = [sys.executable, "-m", "outrider.harness.delay_proxy", "--to", "127.0.0.1:9"]
    with subprocess.Popen(
        [*command, "--up-ms", "5", "--stall", "1:20"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        said = json.loads(process.stdout.readline())
        assert said == {"listening": f"127.0.0.1:{said['port']}", "port": said["port"]}
        process.stdin.write("start\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline()) == {"done": "start"}
        process.stdin.write("report\n")
        process.stdin.flush()
        nothing = {"steps": 0, "total_ms": 0.0, "p50_ms": 0.0, "p99_ms": 0.0}
        assert json.loads(process.stdout.readline()) == {"done": "report", "connections": 0, "lateness": nothing}
        process.stdin.close()
        assert process.wait(5) == 0


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (["--to", "nowhere"], "HOST:PORT"),
        (["--to", "127.0.0.1:9", "--up-ms", "-5"], "up_ms"),
        (["--to", "127.0.0.1:9", "--link", "{"], ""),
        (["--to", "127.0.0.1:9", "--cut", "1:axe"], "kind"),
    ],
)
def test_the_process_refuses_what_is_impossible(
    options: list[str], part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from outrider.harness.delay_proxy import main

    assert main(options) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["reason"] == "USAGE"
    assert part in error["message"]
