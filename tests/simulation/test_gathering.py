"""Passes shared by patient sessions: fewer of them, nobody waits for those who have gone, eager ones for nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from outrider.cloud.gathering import Gathering
from outrider.cloud.session import Session, SessionLimits
from outrider.cloud.target import PassWork
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
    gone = session("gone")
    gathering.on_pass([gone], 0.0, 0.04)
    gone.finish(FinishReason.CANCELLED)
    gathering.forget(gone)
    gathering.on_word(gone, 1.0)
    assert not gathering._habits


def test_nobody_is_kept_longer_than_a_few_passes() -> None:
    setup = make_setup(0.8, answers=2, sessions=2, tokens=120, gamma=2)
    assert measures(run_virtual(setup))["gap_ms"]["p99"] <= 2 * 8 + 20 + PASS_MS * (1 + 4)


async def _looks_at_idle_sessions(looked_at: list[Session]) -> tuple[int, int]:
    """How often sessions with nothing to do are looked at while another one decodes; and in how many passes."""
    idle_count = 30
    target = InlineTarget(TinyEngine(max_slots=idle_count + 1), forty_ms)
    verifier = Verifier(target, VerifierConfig())
    async with verifier.running(), MemoryPort.listening(verifier) as port:
        links = [port.connect(LINK, seed) for seed in range(idle_count)]
        for seed, link in enumerate(links):
            await link.send(Task(seed=seed).request())
        await asyncio.sleep(1.0)
        idle = set(verifier._sessions)
        assert len(idle) == idle_count
        looked_at.clear()
        passes = verifier._scheduler.passes
        task = Task(seed=99, sampling=Sampling(max_tokens=40))
        assert await drain(make_answer(task, verifier.info(), port.connect(LINK, 99))) == target_alone(task)
        looks = sum(session in idle for session in looked_at)
        passes = verifier._scheduler.passes - passes
        for link in links:
            await link.close()
        return looks, passes


def test_sessions_that_want_nothing_cost_a_pass_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[Session] = []
    has_work: Callable[[Session], bool] = vars(Session)["has_work"].fget
    next_work = Session.next_work

    def watched_has_work(session: Session) -> bool:
        looked_at.append(session)
        return has_work(session)

    def watched_next_work(session: Session, cached_length: int, max_branches: int) -> PassWork | None:
        looked_at.append(session)
        return next_work(session, cached_length, max_branches)

    monkeypatch.setattr(Session, "has_work", property(watched_has_work))
    monkeypatch.setattr(Session, "next_work", watched_next_work)
    looks, passes = virtual_time.run(_looks_at_idle_sessions(looked_at))
    assert passes > 5
    assert looks == 0


def session(name: str) -> Session:
    return Session(name, 0, Task().request(), tiny_vocabulary(), 10, SessionLimits())


def test_a_pass_is_held_until_the_last_of_those_who_are_due_should_be_there() -> None:
    """After 40 ms each to turn around they are expected within 60 ms; who has finished or is late is not."""
    gathering = Gathering(4.0)
    early, late = session("early"), session("late")
    for began_s in (0.0, 0.1):
        gathering.on_pass([early, late], began_s, began_s + 0.04)
        gathering.on_word(early, began_s + 0.05)
        gathering.on_word(late, began_s + 0.08)
    gathering.on_pass([early, late], 0.2, 0.24)
    assert gathering.hold_s(0.25, 0.25) == pytest.approx(0.24 + 1.5 * 0.04 - 0.25), "the later one"
    assert gathering.hold_s(0.1, 0.25) == pytest.approx(0.1 + 4 * 0.04 - 0.25), "but not for more than four passes"
    assert gathering.hold_s(0.25, 0.31) == 0.0, "who is late is waited for no more"
    gathering.on_pass([early, late], 0.3, 0.34)
    late.finish(FinishReason.CANCELLED)
    assert gathering.hold_s(0.35, 0.35) == pytest.approx(0.34 + 1.5 * 0.01 - 0.35)
    gathering.on_word(early, 0.352)
    assert gathering.hold_s(0.35, 0.352) == 0.0, "who has spoken is waited for no more"


def test_what_is_expected_no_more_takes_no_room() -> None:
    """A thousand verdicts of a session that stays long away leave one entry."""
    gathering = Gathering(4.0)
    quick, away = session("quick"), session("away")
    gathering.on_pass([away], 0.0, 0.04)
    gathering.on_word(away, 1000.0)
    gathering.on_pass([away], 1000.0, 1000.04)
    for number in range(1000):
        began_s = 1001.0 + 0.1 * number
        gathering.on_pass([quick], began_s, began_s + 0.04)
        gathering.on_word(quick, began_s + 0.05)
    assert len(gathering._expected) < 100
    assert gathering.hold_s(1101.0, 1101.0) > 0.1, "who is away is still expected"
