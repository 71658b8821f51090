"""Where an answer's time went, told by the product itself on a clock on which every step's time is known."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import astuple, replace

import pytest

from outrider.cloud.scheduler import FIRST_WORD_S
from outrider.edge.answer import Answer
from outrider.edge.profile import Split
from outrider.harness.links import LinkProfile
from outrider.harness.virtual_time import run
from outrider.shared.sampling.options import Sampling
from outrider.shared.tiny import END
from simulation.world import Task, make_answer, world

PASS_MS, DRAFT_MS, RTT_MS, GAMMA, ROUNDS = 40.0, 9.0, 20.0, 5, 6
# The verifier waits so long for a word of the edge before it reads the prompt.
WORD_MS = 1000 * FIRST_WORD_S
SAMPLING = Sampling(max_tokens=(GAMMA + 1) * ROUNDS, logit_bias={END: -100})
RIGHT = Task(deviation=0, draft_ms=DRAFT_MS, gamma=GAMMA, sampling=SAMPLING)


def forty(rows: int, sessions: int) -> float:
    return PASS_MS


def milliseconds(split: Split) -> list[float]:
    """Drafting only, drafting and waiting, pass, queue, link, idle; link in all."""
    return [round(1000 * seconds, 3) for seconds in astuple(split)]


def answer_of(task: Task, link: LinkProfile) -> Answer:
    async def main() -> Answer:
        async with world(pass_ms=forty) as here:
            return await here.answer(task, link)

    return run(main())


@pytest.mark.parametrize(("up_ms", "down_ms"), [(10, 10), (2, 18), (20, 0)])
def test_a_patient_answer_is_draft_flight_and_pass_in_turn(up_ms: float, down_ms: float) -> None:
    """The prompt's pass runs while the first guesses are made; how the round trip is shared out makes no difference."""
    stats = answer_of(RIGHT, LinkProfile(up_ms=up_ms, down_ms=down_ms)).stats
    drafting = GAMMA * DRAFT_MS
    # The guesses reach the verifier just as it has read the prompt, and the second pass follows.
    assert drafting == WORD_MS + PASS_MS
    later = ROUNDS - 1
    # The edge does not know what the verifier waited for, and takes it for the link.
    first_pass, first_link = PASS_MS + RTT_MS / 2 - WORD_MS, RTT_MS / 2 + WORD_MS
    assert milliseconds(stats.profile.split()) == [
        later * drafting, drafting, first_pass + later * PASS_MS, 0, first_link + later * RTT_MS, 0,
        RTT_MS + WORD_MS + later * RTT_MS,
    ]  # fmt: skip
    assert milliseconds(stats.profile.split_after_first()) == [
        later * drafting, 0, later * PASS_MS, 0, later * RTT_MS, 0, later * RTT_MS,
    ]  # fmt: skip
    assert stats.draft_s * 1000 == pytest.approx(ROUNDS * drafting)
    assert stats.link_s * 1000 == pytest.approx(WORD_MS + ROUNDS * RTT_MS)
    profile = stats.profile
    assert profile.step_s is not None
    assert profile.pass_s is not None
    assert (profile.step_s * 1000, profile.pass_s * 1000) == pytest.approx((DRAFT_MS, PASS_MS))
    assert profile.prompt_s * 1000 == pytest.approx(RTT_MS + PASS_MS)


@pytest.mark.parametrize("draft_ms", [4, 30])
def test_the_prompt_is_read_before_or_after_the_first_guesses_arrive(draft_ms: float) -> None:
    """Too quick guesses wait for it at the verifier, slow ones find the verifier waiting."""
    stats = answer_of(replace(RIGHT, draft_ms=draft_ms), LinkProfile.of_rtt(RTT_MS)).stats
    drafting, later = GAMMA * draft_ms, ROUNDS - 1
    read = RTT_MS / 2 + PASS_MS
    first = [0, drafting, RTT_MS / 2 + 2 * PASS_MS - drafting, 0, RTT_MS / 2 + WORD_MS, 0, RTT_MS + WORD_MS]
    if drafting > read:
        first = [drafting - read, read, PASS_MS, 0, RTT_MS, 0, RTT_MS + RTT_MS / 2]
    rest = [later * drafting, 0, later * PASS_MS, 0, later * RTT_MS, 0, later * RTT_MS]
    assert milliseconds(stats.profile.split()) == [one + other for one, other in zip(first, rest, strict=True)]


@pytest.mark.parametrize("jitter_ms", [0.0, 8.0])
def test_an_eager_verifier_computes_all_the_time(jitter_ms: float) -> None:
    """A drafter that is never right: passes follow each other, and late commits cost nothing."""
    task = replace(RIGHT, eager=True, deviation=50, draft_ms=1000.0)
    link = LinkProfile.of_rtt(RTT_MS, jitter="uniform" if jitter_ms else "none", jitter_ms=jitter_ms)
    stats = answer_of(task, link).stats
    passes_ms = task.sampling.max_tokens * PASS_MS
    assert stats.passes == task.sampling.max_tokens
    assert stats.seconds * 1000 == pytest.approx(passes_ms + RTT_MS, abs=2 * jitter_ms + 1)
    split = stats.profile.split()
    assert split.idle_s * 1000 == pytest.approx(0, abs=0.001)
    assert split.draft_only_s * 1000 == pytest.approx(0, abs=0.001)
    assert split.draft_and_wait_s == pytest.approx(stats.seconds, abs=0.001), "it drafts from first to last"
    assert split.link_total_s * 1000 == pytest.approx(RTT_MS, abs=2 * jitter_ms + 0.001)


def test_waiting_behind_another_answer_is_the_queue() -> None:
    """The other one reads its prompt in a pass of its own; ours has to wait until it is over."""

    async def main() -> tuple[Answer, float]:
        async with world(pass_ms=forty) as here:
            link = LinkProfile.of_rtt(RTT_MS)
            task = replace(RIGHT, sampling=SAMPLING.model_copy(update={"max_tokens": GAMMA + 1}))
            alone = await here.answer(task, link)
            other = asyncio.create_task(here.answer(replace(task, seed=2), link))
            # The other one's pass over its prompt begins at 15 ms; our prompt comes at 25 and waits for its end at 55.
            await asyncio.sleep(0.015)
            mine = await here.answer(replace(task, seed=3), link)
            await other
            return mine, alone.stats.seconds

    mine, alone_s = run(main())
    split = mine.stats.profile.split()
    assert mine.stats.queue_s > 0.020
    assert split.queue_only_s + split.draft_and_wait_s > 0.020
    assert mine.stats.link_s * 1000 == pytest.approx(WORD_MS + RTT_MS), "no more than alone"
    waited_s = mine.stats.seconds - alone_s
    assert mine.stats.queue_s >= waited_s - 1e-6


def test_the_parts_add_up_whatever_happens() -> None:
    """Every policy and pace, over a link that jitters, and answers that are left early."""
    link = LinkProfile.of_rtt(60, jitter="uniform", jitter_ms=25)
    tasks = [
        Task(seed=seed, control=control, eager=eager, deviation=deviation, draft_ms=draft_ms)
        for seed, (control, eager, deviation, draft_ms) in enumerate(
            (control, eager, deviation, draft_ms)
            for control in ("fixed", "ratio", "proportional")
            for eager in (False, True)
            for deviation in (0.0, 3.0)
            for draft_ms in (2.0, 90.0)
        )
    ]

    async def main() -> list[Answer]:
        async with world(slots=len(tasks), pass_ms=forty) as here:
            answers = [await here.answer(task, link) for task in tasks]
            for number, task in enumerate(tasks):
                answer = make_answer(task, here.verifier.info(), here.port.connect(link, number))
                async with contextlib.aclosing(answer.committed()) as commits:
                    async for _ in commits:
                        if len(answer.tree.committed) >= number:
                            break
                answers.append(answer)
            return answers

    for answer in run(main()):
        stats = answer.stats
        assert stats.profile.split().whole_s == pytest.approx(stats.seconds, abs=1e-9)
        assert min(astuple(stats.profile.split())) >= 0
        assert stats.draft_s > 0
