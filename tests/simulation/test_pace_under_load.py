"""Pace on the verifier's side: an operator's cap, and eager sessions that step back under load without starving."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest

from outrider.cloud.scheduler import PassLimits
from outrider.cloud.session import PATIENT_RUN_AHEAD, SessionLimits
from outrider.cloud.target import PassWork
from outrider.cloud.targets.tiny import TinyEngine
from outrider.cloud.verifier import Verifier, VerifierConfig
from outrider.cloud.walk import WalkResult
from outrider.edge.answer import Answer
from outrider.harness.inline_target import InlineTarget
from outrider.harness.links import LinkProfile
from outrider.harness.memory_link import MemoryPort
from outrider.harness.virtual_time import run
from outrider.shared.sampling.options import Sampling
from outrider.shared.tiny import END
from simulation.world import Task, World, drain, forty_ms, make_answer, target_alone

LONG = Sampling(max_tokens=60, logit_bias={END: -100.0})


class Watched(InlineTarget):
    """Remembers the rows that each session brought to each pass."""

    def __init__(self, slots: int) -> None:
        super().__init__(TinyEngine(max_slots=slots), forty_ms)
        self.passes: list[list[int]] = []

    async def run_pass(self, work: Sequence[PassWork]) -> Sequence[WalkResult | None]:
        """See `Target.run_pass`."""
        self.passes.append([item.rows.count for item in work])
        return await super().run_pass(work)


@contextlib.asynccontextmanager
async def watched(slots: int, passes: PassLimits, session: SessionLimits) -> AsyncIterator[tuple[World, Watched]]:
    target = Watched(slots)
    verifier = Verifier(target, VerifierConfig(passes, session))
    async with verifier.running(), MemoryPort.listening(verifier) as port:
        yield World(verifier, port), target


def crowd(count: int, control: str) -> list[Task]:
    return [
        Task(seed=n, sampling=LONG, control=control, eager=True, draft_ms=2.0, deviation=0.3, gamma=None)
        for n in range(count)
    ]


async def answers(here: World, tasks: list[Task], rtt_ms: float = 20.0) -> list[Answer]:
    return await asyncio.gather(*(here.answer(task, LinkProfile.of_rtt(rtt_ms)) for task in tasks))


@pytest.mark.parametrize("free_rows", [4, 16])
def test_under_load_eager_sessions_between_guesses_leave_the_pass_to_those_with_guesses(free_rows: int) -> None:
    async def main(throttle_rows: int | None) -> tuple[list[list[int]], list[Answer]]:
        limits = PassLimits(free_rows=free_rows, throttle_rows=throttle_rows)
        async with watched(12, limits, SessionLimits()) as (here, target):
            return target.passes, await answers(here, tasks)

    tasks = crowd(12, "fixed")

    def fill_ins(passes: list[list[int]]) -> int:
        """Single rows in passes that guesses filled."""
        full = [rows for rows in passes if sum(count for count in rows if count > 1) >= free_rows]
        return sum(rows.count(1) for rows in full)

    throttled, made = run(main(None))
    free, _ = run(main(10_000))
    for task, answer in zip(tasks, made, strict=True):
        assert answer.tree.committed == target_alone(task)
    assert fill_ins(free) > 0
    # What is left are those that had been left out for long.
    assert fill_ins(throttled) < fill_ins(free) / 2


def test_nobody_starves() -> None:
    """Eager sessions whose guesses all come late, beside many with guesses: none waits much longer than its turn."""
    limits = PassLimits(free_rows=2, gather_passes=3.0)
    slow = [replace(task, draft_ms=400.0) for task in crowd(3, "fixed")]
    busy = [replace(task, seed=50 + n, eager=False, control="fixed") for n, task in enumerate(crowd(6, "fixed"))]

    async def main() -> tuple[list[Answer], float]:
        loop = asyncio.get_running_loop()
        async with watched(12, limits, SessionLimits()) as (here, _):
            others = [asyncio.create_task(keep_busy(here, task)) for task in busy]
            began_s = loop.time()
            found = await answers(here, slow)
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            return found, loop.time() - began_s

    async def keep_busy(here: World, task: Task) -> None:
        while True:
            await here.answer(task, LinkProfile.of_rtt(0))

    found, took_s = run(main())
    for task, answer in zip(slow, found, strict=True):
        assert answer.tree.committed == target_alone(task)
    # 60 tokens, each after at most 3 passes without it and one with it, of some 42 ms.
    assert took_s < 60 * 4 * 0.045 + 1


def test_a_patient_operator_gives_nobody_passes_without_guesses() -> None:
    """An edge that asks for eager decoding anyway is granted the one token that an edge with nothing to say needs."""
    task = Task(seed=3, sampling=LONG, control="ratio", eager=True, gamma=None)

    async def main(session: SessionLimits) -> Answer:
        async with watched(2, PassLimits(), session) as (here, _):
            info = here.verifier.info()
            assert info.limits.allows_eager is (session.max_run_ahead > 1)
            allowed = replace(task, eager=task.drafting().under(info.limits).is_eager)
            answer = make_answer(allowed, info, here.port.connect(LinkProfile.of_rtt(20), 1))
            await drain(answer)
            return answer

    eager, patient = run(main(SessionLimits())), run(main(SessionLimits(max_run_ahead=PATIENT_RUN_AHEAD)))
    assert eager.tree.committed == patient.tree.committed == target_alone(task)
    assert patient.stats.passes < 0.8 * eager.stats.passes


def test_without_a_drafter_a_patient_operator_still_answers() -> None:
    task = Task(seed=4, sampling=LONG, control="fixed", eager=True, deviation=0.0, gamma=1)

    async def main() -> Answer:
        async with watched(2, PassLimits(), SessionLimits(max_run_ahead=PATIENT_RUN_AHEAD)) as (here, _):
            answer = make_answer(task, here.verifier.info(), here.port.connect(LinkProfile.of_rtt(20), 1))
            answer._can_draft = False  # as after a drafter that failed
            async with asyncio.timeout(60):
                await drain(answer)
            return answer

    assert run(main()).tree.committed == target_alone(task)
