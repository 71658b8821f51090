"""The product's promise on a virtual clock: whatever the link does, the ids are the target's own; two runs are one."""

from __future__ import annotations

import asyncio
import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest

from outrider.cloud.scheduler import FIRST_WORD_S
from outrider.edge.answer import Answer
from outrider.harness.links import Cut, LinkProfile, Stall
from outrider.harness.memory_link import Flight
from outrider.harness.virtual_time import run
from outrider.shared.errors import OutriderError, Reason
from outrider.shared.sampling.options import Sampling
from outrider.shared.tiny import END
from simulation.world import Task, World, drain, make_answer, target_alone, world

LINKS = {
    "none": LinkProfile(),
    "jitter": LinkProfile.of_rtt(20, jitter="exponential", jitter_ms=8, jitter_slot_ms=5),
    "stalls": LinkProfile.of_rtt(
        60, jitter="uniform", jitter_ms=25, loss_probability=0.1, loss_stall_ms=260,
        stalls=(Stall(at_s=0.3, length_ms=400, every_s=1.1),),
    ),
    "narrow": LinkProfile(up_ms=5, down_ms=90, up_mbit=0.02, down_mbit=0.05),
    "far": LinkProfile.of_rtt(600, jitter="uniform", jitter_ms=100),
}  # fmt: skip
SAMPLINGS = (
    Sampling(max_tokens=40),
    Sampling(max_tokens=40, temperature=0.7, top_p=0.8),
    Sampling(max_tokens=40, temperature=1.0, repetition_penalty=1.2, presence_penalty=0.4),
)


@pytest.mark.parametrize("link", LINKS)
def test_ids_are_the_targets_own_over_every_link(link: str) -> None:
    cases = itertools.product((1, 4, 7), (False, True), range(len(SAMPLINGS)))

    async def main() -> list[tuple[Task, Answer]]:
        async with world() as here:
            return [(task, await here.answer(task, LINKS[link])) for task in tasks]

    tasks = [
        Task(
            seed=100 + number, sampling=SAMPLINGS[index], gamma=gamma, eager=eager, branch=1 + number % 2,
            deviation=(0, 0.5, 3)[number % 3],
        )
        for number, (gamma, eager, index) in enumerate(cases)
    ]  # fmt: skip
    for task, answer in run(main()):
        assert answer.tree.committed == target_alone(task), task
        answer.tree.check_integrity()


def test_many_sessions_at_once_each_get_their_own_answer() -> None:
    tasks = [Task(seed=n, gamma=1 + n % 7, eager=n % 3 == 0, sampling=SAMPLINGS[n % 3]) for n in range(24)]
    links = list(LINKS.values())

    async def main() -> list[Answer]:
        async with world(slots=24) as here:
            return await asyncio.gather(*(here.answer(task, links[n % len(links)]) for n, task in enumerate(tasks)))

    for task, answer in zip(tasks, run(main()), strict=True):
        assert answer.tree.committed == target_alone(task), task


async def answer_through_cuts(here: World, task: Task, profile: LinkProfile) -> tuple[list[int], int]:
    """Reopen with the committed ids after each cut, until the answer is complete; the ids and how often it was cut."""
    committed: list[int] = []
    for cut_count in range(200):
        if committed and (committed[-1] == END or len(committed) == task.sampling.max_tokens):
            return committed, cut_count
        link = here.port.connect(profile, 1000 * task.seed + cut_count)
        answer = make_answer(task, here.verifier.info(), link, committed)
        try:
            await drain(answer)
        except OutriderError as error:
            assert error.reason is Reason.VERIFIER_UNREACHABLE, error
        committed = list(answer.tree.committed)
        await asyncio.sleep(0.01)
    raise AssertionError("no end after 200 streams")


@pytest.mark.parametrize("notices_ms", [(0, 0), (0, 700), (900, 0), (1500, 1500)])
def test_an_answer_through_many_cuts_is_the_targets_own(notices_ms: tuple[float, float]) -> None:
    """Cuts at odd times, some with an outage; streams that one side still believes in hold a slot meanwhile."""
    edge_ms, cloud_ms = notices_ms
    cuts = tuple(
        Cut(
            at_s=0.31 * n + 0.01 * (n * n % 7), outage_ms=90 * (n % 2), edge_notice_ms=edge_ms, cloud_notice_ms=cloud_ms
        )
        for n in range(1, 400)
    )
    profile = LINKS["jitter"].model_copy(update={"cuts": cuts})
    tasks = [Task(seed=n, gamma=1 + n % 5, eager=n % 2 == 0, sampling=SAMPLINGS[n % 3]) for n in range(8)]

    async def main() -> list[tuple[list[int], int]]:
        async with world(slots=128) as here:
            return [await answer_through_cuts(here, task, profile) for task in tasks]

    results = run(main())
    assert [ids for ids, _ in results] == [target_alone(task) for task in tasks]
    assert sum(cut_count for _, cut_count in results) > 40


@pytest.mark.parametrize(("rtt_ms", "draft_ms", "gamma"), [(0, 0, 3), (20, 8, 5), (150, 10, 2)])
def test_a_patient_answer_takes_draft_flight_and_pass_in_turn(rtt_ms: float, draft_ms: float, gamma: int) -> None:
    """A right drafter on a clean link: all times add up, to the nanosecond's rounding."""
    sampling = Sampling(max_tokens=(gamma + 1) * 6, logit_bias={END: -100.0})
    task = Task(deviation=0, draft_ms=draft_ms, gamma=gamma, sampling=sampling)

    async def main() -> tuple[Answer, float]:
        async with world(pass_ms=lambda rows, sessions: 40.0) as here:
            began = asyncio.get_running_loop().time()
            answer = await here.answer(task, LinkProfile.of_rtt(rtt_ms))
            return answer, asyncio.get_running_loop().time() - began

    answer, took_s = run(main())
    assert answer.stats.passes == 6
    # The prompt is read while the first guesses are made, or with them if they are there from the start.
    rounds_ms = 6 * (gamma * draft_ms + rtt_ms + 40)
    prefill_passes = 1 if draft_ms else 0
    prefill_ms = prefill_passes * max(0.0, FIRST_WORD_S * 1000 + 40 - gamma * draft_ms)
    assert took_s * 1000 == pytest.approx(rounds_ms + prefill_ms, abs=0.001)
    assert answer.stats.prefill_passes == prefill_passes
    assert answer.stats.pass_s == pytest.approx((6 + prefill_passes) * 0.040), "the prompt's pass counts too"


def test_who_comes_during_a_pass_is_opened_at_once_in_a_fresh_slot() -> None:
    """Only a slot whose old cache has to go waits for the pass."""

    async def main() -> list[float]:
        flights: list[Flight] = []
        async with world() as here:
            first = asyncio.create_task(here.answer(Task(seed=1), LinkProfile()))
            await asyncio.sleep(0.050)
            await here.answer(Task(seed=2), LinkProfile(), flights.append)
            await first
        return [flight.sent_s for flight in flights if flight.direction == "down"]

    opened_s = run(main())[0]
    assert opened_s == pytest.approx(0.050)


SCENARIO = """
import asyncio, sys
sys.path.insert(0, "tests")
from outrider.harness.virtual_time import run
from outrider.shared.sampling.options import Sampling
from simulation.test_answers_in_virtual_time import LINKS
from simulation.world import Task, world
async def main():
    log = []
    async with world(slots=6) as here:
        links = list(LINKS.values())
        tasks = [Task(seed=n, eager=n % 2 == 0, sampling=Sampling(max_tokens=30, temperature=0.8)) for n in range(6)]
        answers = await asyncio.gather(*(here.answer(t, links[n % 5], log.append) for n, t in enumerate(tasks)))
    for answer in answers:
        print(answer.tree.committed, answer.stats)
    for flight in log:
        print(flight)
run(main())
"""


def test_two_runs_agree_in_every_byte() -> None:
    """Other hash seed, other addresses: the same messages at the same nanoseconds."""
    said = [
        subprocess.run(
            [sys.executable, "-c", SCENARIO],
            env=os.environ | {"PYTHONHASHSEED": seed}, cwd=Path(__file__).parents[2],
            capture_output=True, text=True, check=True,
        ).stdout
        for seed in ("1", "77")
    ]  # fmt: skip
    assert len(said[0].splitlines()) > 150
    assert said[0] == said[1]
