"""Runs on the wall clock: real gRPC, processes and delays. What is counted is exact; what is timed is refused where
link or machine did not keep time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from outrider.edge.link import VerifierClient
from outrider.harness import wall_time
from outrider.harness.delay_proxy import DelayProxy
from outrider.harness.emulator import ProxyEmulator
from outrider.harness.links import LinkProfile
from outrider.harness.profiles import TargetProfile
from outrider.harness.replay_server import ReplayConfig, ReplayServer, running_replay_server
from outrider.harness.simulation import wall_run
from outrider.harness.simulation.decode import decode
from outrider.harness.simulation.measures import AnswerTrace, Run
from outrider.harness.simulation.scenario import Scenario, resolve
from outrider.harness.simulation.setup import Setup
from outrider.harness.simulation.simulate import simulate
from outrider.harness.simulation.virtual_run import run_virtual
from outrider.harness.simulation.wall_run import (
    _check_timekeeping,
    _timekeeping,
    allowed_ms,
    decode_over,
    run_wall,
)
from outrider.harness.usage import PassRecord
from outrider.harness.wall_time import Lateness
from outrider.shared.errors import Reason
from support.refusal import refused
from support.serving import serving

HANG_LIMIT_S = 30.0


def quick_setup(**changes: Any) -> Setup:
    """Short answers of a fast pair on a short link."""
    values = {"limit": 3, "max_tokens": 24, "target_ms": 4.0, "draft_ms": 0.5, "rtt_ms": 2.0}
    return resolve(Scenario.model_validate(values | changes))


def run_unjudged(setup: Setup) -> Run:
    """A run on the wall clock that counts however busy the machine is."""

    async def main() -> Run:
        async with asyncio.timeout(HANG_LIMIT_S):
            return (await decode_over(ProxyEmulator(), setup))[0]

    return wall_time.run(main())


def counts(run: Run) -> list[tuple[Any, ...]]:
    """What must not depend on the clock, an answer a row."""
    return [
        (
            answer.prompt_id, [tokens for _, tokens in answer.updates], answer.accepted, answer.stats.passes,
            answer.stats.drafted, answer.stats.walked, answer.stats.checked, answer.stats.accepted_histogram,
            answer.stats.grow_payload_bytes, answer.stats.rounds,
        )
        for answer in run.answers
    ]  # fmt: skip


@pytest.mark.parametrize("branch", [1, 2])
def test_whoever_waits_for_each_verdict_is_counted_alike_on_both_clocks(branch: int) -> None:
    # The first guesses come well after the prompt has stopped waiting for a word, whatever the machine does meanwhile.
    setup = quick_setup(gamma=4, branch=branch, draft_ms=4.0)
    virtual, wall = run_virtual(setup), run_unjudged(setup)
    assert counts(wall) == counts(virtual)
    assert [(p.rows, p.sessions, p.accepted) for p in wall.passes] == [
        (p.rows, p.sessions, p.accepted) for p in virtual.passes
    ]
    assert len(wall.guesses) == len(virtual.guesses)
    lengths = [min(len(recording.answer_ids), 24) for recording in setup.recordings]
    assert [answer.token_count for answer in wall.answers] == lengths


def test_no_pass_or_answer_is_faster_than_its_hardware() -> None:
    setup = quick_setup()
    run = run_unjudged(setup)
    # What the loop's clock resolves, and no more.
    assert all(p.ended_s - p.began_s > setup.target.pass_ms(p.rows, p.sessions) / 1000 - 1e-6 for p in run.passes)
    for answer in run.answers:
        assert answer.updates[0][0] - answer.asked_s > (setup.target.base_ms + setup.link.rtt_ms) / 1000


def test_sessions_have_a_connection_each() -> None:
    """`decode_over` refuses anything else."""
    run = run_unjudged(quick_setup(sessions=3))
    assert len(run.answers) == 3


@pytest.mark.parametrize("own_connection", [False, True])
async def test_clients_share_a_connection_unless_they_ask_for_their_own(own_connection: bool) -> None:
    async with serving() as address:
        host, _, port = address.rpartition(":")
        proxy = DelayProxy(LinkProfile(), 1, host, int(port))
        async with await proxy.listen("127.0.0.1", 0) as listener:
            proxied = f"127.0.0.1:{listener.sockets[0].getsockname()[1]}"
            clients = [VerifierClient(proxied, own_connection=own_connection) for _ in range(3)]
            for client in clients:
                await client.get_info()
            assert proxy.accepted == (3 if own_connection else 1)
            for client in clients:
                await client.close()


def test_a_verifier_that_dies_ends_the_run_with_a_typed_error(monkeypatch: pytest.MonkeyPatch) -> None:
    servers: list[ReplayServer] = []

    @contextlib.asynccontextmanager
    async def watched(config: ReplayConfig, prefix: Sequence[str] = ()) -> AsyncIterator[ReplayServer]:
        async with running_replay_server(config, prefix) as server:
            servers.append(server)
            yield server

    async def killing(setup: Setup, *arguments: Any) -> Run:
        if setup.drafts:
            asyncio.get_running_loop().call_later(0.2, servers[0]._process._process.kill)
        return await decode(setup, *arguments)

    monkeypatch.setattr(wall_run, "running_replay_server", watched)
    monkeypatch.setattr(wall_run, "decode", killing)
    with refused(Reason.VERIFIER_UNREACHABLE):
        run_unjudged(quick_setup(target_ms=100.0))


async def test_a_replay_server_that_has_died_is_named(tmp_path: Path) -> None:
    config = wall_run._hand_over(quick_setup(), tmp_path)
    async with running_replay_server(config) as server:
        assert await server.passes() == []
        server._process._process.kill()
        with refused(Reason.MEASUREMENT_INVALID, "the replay server", "-9"):
            await server.passes()


async def test_a_replay_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    target = TargetProfile(base_ms=1, row_ms=0, free_rows=0, session_ms=0)
    config = ReplayConfig(folder=tmp_path / "none", ids=(), target=target, max_slots=1, max_branches=1, lookup_nodes=0)
    with refused(Reason.FILE_UNREADABLE, "the replay server", str(tmp_path / "none")):
        async with running_replay_server(config):
            pass


def test_a_rate_that_the_machine_cannot_do_is_no_result(caplog: pytest.LogCaptureFixture) -> None:
    """No process in Python passes 50 Gbit/s on."""
    setup = quick_setup()
    fast = replace(setup, link=setup.link.model_copy(update={"up_mbit": 50_000.0}))
    with caplog.at_level(logging.WARNING), refused(Reason.MEASUREMENT_INVALID, "up", "expected 50000.00 Mbit/s"):
        run_wall(fast)
    assert caplog.text.count("trying again") == 1


def test_a_machine_that_does_not_keep_time_gives_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """Something else has the edge's thread for 30 ms, again and again."""

    async def block() -> None:
        while True:
            await asyncio.sleep(0.005)
            time.sleep(0.03)  # noqa: ASYNC251

    async def disturbed(*arguments: Any) -> Run:
        blocker = asyncio.create_task(block())
        try:
            return await decode(*arguments)
        finally:
            blocker.cancel()

    asked: list[tuple[int, ...]] = []

    def waited_ms(pids: Iterable[int]) -> float:
        asked.append(tuple(pids))
        return 1.5 * len(asked)

    monkeypatch.setattr(wall_run, "decode", disturbed)
    monkeypatch.setattr(wall_time, "waited_ms", waited_ms)
    run, timekeeping = wall_time.run(decode_over(ProxyEmulator(), quick_setup()))
    # Edge, verifier and link, before and after.
    assert len(asked) == 2
    assert len(set(asked[0])) == 3
    assert timekeeping.waited_ms == 1.5
    with refused(Reason.MEASUREMENT_INVALID, "did not keep time", "draft steps", "allowed"):
        _check_timekeeping(run, timekeeping)


def test_a_run_is_late_by_passes_draft_steps_and_link_as_if_none_overlapped() -> None:
    """A pass that is late keeps all its sessions waiting."""
    setup = quick_setup(sessions=2, target_ms=10.0)
    pass_s = setup.target.pass_ms(3, 2) / 1000
    answer = AnswerTrace("one", 0.0, ((0.1, 4), (0.2, 6)))
    run = Run((answer,), (PassRecord(1.0, 1.0 + pass_s + 0.004, 3, 2, 1),), (), other_tokens=10)
    timekeeping = _timekeeping(setup, run, Lateness(5, 3.0), Lateness(7, 9.0), None)
    assert timekeeping.late_ms_per_token == pytest.approx((2 * 4 + 3 + 9) / 20)
    waiting = _timekeeping(setup, run, Lateness(5, 3.0), Lateness(7, 9.0), 5.0)
    assert waiting.late_ms_per_token == pytest.approx((2 * 4 + 3 + 9 + 5) / 20)
    assert timekeeping.passes.total_ms == pytest.approx(4.0)
    # 100 ms for the 6 tokens after the first update, of which 5 % may be late.
    _check_timekeeping(run, replace(timekeeping, late_ms_per_token=0.83))
    with refused(Reason.MEASUREMENT_INVALID, "0.84 ms a token late"):
        _check_timekeeping(run, replace(timekeeping, late_ms_per_token=0.84))


def test_more_sessions_than_can_be_connected_are_refused() -> None:
    with refused(Reason.USAGE, "sessions = 257"):
        run_wall(replace(quick_setup(), sessions=257))


@pytest.mark.slow
def test_a_scenario_on_the_wall_clock_says_so_and_agrees() -> None:
    """Slow, as it needs a machine that keeps time."""
    scenario = Scenario(clock="wall", limit=2, max_tokens=24, rtt_ms=20)
    setup = resolve(scenario)
    wall, virtual = simulate(scenario, setup), simulate(scenario.model_copy(update={"clock": "virtual"}), setup)
    settings = wall["settings"]
    assert settings["clock"] == "wall"
    assert settings["emulator"] == "proxy"
    assert settings["link_probe"]["rtt_ms"] == pytest.approx(20, abs=1)
    assert settings["link_probe"]["expected_rtt_ms"] == 20
    assert settings["attempts"] in {1, 2}
    clocks = {name: row["settings"]["clock"] for name, row in wall["baselines"].items()}
    over_a_link = {"streaming", "batched", "stop_and_wait", "rtt_zero"}
    assert clocks == {name: "wall" if name in over_a_link else "virtual" for name in scenario.baselines}
    for name in ("streaming", "stop_and_wait", "rtt_zero"):
        row, expected = wall["baselines"][name], virtual["baselines"][name]
        difference = abs(row["ms_per_token"] - expected["ms_per_token"])
        assert difference <= allowed_ms(expected["ms_per_token"], expected["passes_per_token"]), name
        assert row["passes_per_token"] == expected["passes_per_token"]
    assert (
        wall["baselines"]["stop_and_wait"]["settings"]["gamma"]
        == (virtual["baselines"]["stop_and_wait"]["settings"]["gamma"])
    )
    # What is not on the wall clock is the same to the last bit.
    assert all(wall["baselines"][name] == virtual["baselines"][name] for name in {*clocks} - over_a_link)


def test_on_the_virtual_clock_every_result_says_so_and_nothing_is_measured() -> None:
    scenario = Scenario(limit=1, max_tokens=8)
    result = simulate(scenario, resolve(scenario))
    rows = [result, *result["baselines"].values()]
    assert [row["settings"]["clock"] for row in rows] == ["virtual"] * 8
    for key in ("emulator", "link_probe", "timekeeping", "attempts"):
        assert not any(key in row["settings"] for row in rows)
