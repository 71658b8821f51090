"""Passes shared by patient sessions: fewer of them, nobody waits for those who have gone, eager ones for nobody."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from outrider.cloud.gathering import Gathering
from outrider.cloud.session import Session, SessionLimits
from outrider.cloud.targets.tiny import TinyEngine
from outrider.cloud.verifier import Verifier, VerifierConfig
from outrider.harness import virtual_time
from outrider.harness.inline_target import InlineTarget
from outrider.harness.links import LinkProfile
from outrider.harness.memory_link import MemoryPort
from outrider.harness.simulation.measures import measures
from outrider.harness.simulation.virtual_run import run_virtual
from outrider.shared.messages import FinishReason
from outrider.shared.sampling.options import Sampling
from outrider.shared.tiny import tiny_vocabulary
from simulation.world import Task, drain, forty_ms, make_answer, target_alone
from unit.harness_simulation.setups import PASS_MS, make_setup

LINK = LinkProfile.of_rtt(20)


@pytest.mark.parametrize("sessions", [2, 4])
def test_patient_sessions_share_nearly_every_pass(sessions: int) -> None:
    run = run_virtual(make_setup(0.8, answers=sessions, sessions=sessions, tokens=120))
    shared = [record.sessions for record in run.passes if record.began_s > 1.5]
    assert sum(shared) / len(shared) > 0.8 * sessions


def test_eager_sessions_wait_for_nobody() -> None:
    run = run_virtual(make_setup(0.8, answers=3, sessions=3, tokens=60, pace="eager"))
    assert measures(run)["gap_ms"]["p99"] <= PASS_MS + 1e-6


async def _beside_one_that_stops_talking(quiet_s: float) -> float:
    """Seconds that an answer takes after another session has decoded a while and said nothing more for `quiet_s`."""
    verifier = Verifier(InlineTarget(TinyEngine(max_slots=4), forty_ms), VerifierConfig())
    async with verifier.running(), MemoryPort.listening(verifier) as port:
        info = verifier.info()
        loop = asyncio.get_running_loop()
        task = Task(seed=1, sampling=Sampling(max_tokens=40))
        other = make_answer(replace(task, seed=2), info, port.connect(LINK, 2))
        commits = other.committed()
        first = asyncio.create_task(drain(make_answer(task, info, port.connect(LINK, 1))))
        for _ in range(3):
            await anext(commits)
        assert await first == target_alone(task)
        # From here on nobody reads the other's commits; its own tasks end with it.
        await commits.aclose()
        await asyncio.sleep(quiet_s)
        began_s = loop.time()
        again = make_answer(replace(task, seed=3), info, port.connect(LINK, 3))
        assert await drain(again) == target_alone(replace(task, seed=3))
        return loop.time() - began_s


async def _alone() -> float:
    verifier = Verifier(InlineTarget(TinyEngine(max_slots=4), forty_ms), VerifierConfig())
    async with verifier.running(), MemoryPort.listening(verifier) as port:
        loop = asyncio.get_running_loop()
        task = Task(seed=3, sampling=Sampling(max_tokens=40))
        answer = make_answer(task, verifier.info(), port.connect(LINK, 3))
        began_s = loop.time()
        await drain(answer)
        return loop.time() - began_s


def test_a_session_that_has_ended_keeps_nobody_waiting() -> None:
    assert virtual_time.run(_beside_one_that_stops_talking(1.0)) == pytest.approx(virtual_time.run(_alone()))


def test_an_edge_that_talks_on_after_the_end_leaves_nothing_behind() -> None:
    gathering = Gathering(4.0)
    session = Session("s", 0, Task().request(), tiny_vocabulary(), 10, SessionLimits())
    gathering.on_pass([session], 0.0, 0.04)
    session.finish(FinishReason.CANCELLED)
    gathering.forget(session)
    gathering.on_word(session, 1.0)
    assert not gathering._habits


def test_nobody_is_kept_longer_than_a_few_passes() -> None:
    setup = make_setup(0.8, answers=2, sessions=2, tokens=120, gamma=2)
    assert measures(run_virtual(setup))["gap_ms"]["p99"] <= 2 * 8 + 20 + PASS_MS * (1 + 4)
