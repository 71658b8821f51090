"""The ratio policy in the simulated world: over any link the ids are the target's own, no answer hangs, and an eager
one is never slower than streaming, however useless the drafter.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.cloud.session import SessionLimits
from outrider.cloud.targets.tiny import TinyEngine
from outrider.cloud.verifier import Verifier, VerifierConfig
from outrider.edge.answer import Answer, AnswerSetup
from outrider.edge.control.ratio import RatioControl
from outrider.edge.drafters.base import DraftSession, Proposal
from outrider.edge.drafters.scripted import Script, ScriptedSession
from outrider.edge.drafters.tiny import TinyDrafter
from outrider.edge.guesses.experience import Experience
from outrider.edge.guesses.sources import Sources
from outrider.harness.inline_target import InlineTarget
from outrider.harness.links import LinkProfile, Stall
from outrider.harness.memory_link import MemoryPort
from outrider.harness.profiles import DrafterProfile
from outrider.harness.simulation.measures import measures
from outrider.harness.simulation.virtual_run import run_virtual
from outrider.harness.tiny_answers import PacedDraft, chooser_of
from outrider.harness.virtual_time import run
from outrider.shared.sampling.options import Sampling
from outrider.shared.tiny import END, TINY_SIZE
from simulation.world import Task, World, drain, forty_ms, target_alone, world
from unit.harness_simulation.setups import PASS_MS, make_setup

# Passes of 40 ms: an answer of 24 tokens that takes longer does not go on.
HANG_LIMIT_S = 200.0
SAMPLINGS = (
    Sampling(max_tokens=24),
    Sampling(max_tokens=24, temperature=0.7, top_p=0.8),
    Sampling(max_tokens=24, temperature=1.0, repetition_penalty=1.2, presence_penalty=0.4),
    Sampling(max_tokens=3, temperature=1.0),
)


class Silent:
    """A drafter that has nothing to say."""

    async def propose(self, texts: Sequence[Sequence[int]], count: int) -> list[list[Proposal]]:
        return [[] for _ in texts]

    async def close(self) -> None:
        pass


class Failing(Silent):
    """One whose steps fail after a few."""

    def __init__(self, inner: DraftSession) -> None:
        self._inner = inner
        self._left = 4

    async def propose(self, texts: Sequence[Sequence[int]], count: int) -> list[list[Proposal]]:
        self._left -= 1
        if self._left < 0:
            raise RuntimeError("out of order")
        return await self._inner.propose(texts, count)


async def answer_with(here: World, task: Task, draft: DraftSession, profile: LinkProfile) -> Answer:
    """Decode `task` with that drafter and the ratio policy."""
    info = here.verifier.info()
    setup = AnswerSetup(task.request(), info.limits, info.stop_ids, RatioControl(eager=task.eager), task.eager)
    sources = Sources.of({"tiny": PacedDraft(draft, task.draft_ms)}, task.request(), Experience())
    answer = Answer(setup, here.port.connect(profile, task.seed), sources)
    await drain(answer)
    return answer


def tiny_draft(task: Task, deviation: float = 0.5) -> DraftSession:
    request = task.request()
    return TinyDrafter(deviation).open(request.prompt_ids, chooser_of(request))


@st.composite
def links(draw: st.DrawFn) -> LinkProfile:
    stall = Stall(at_s=draw(st.floats(0, 1)), length_ms=draw(st.floats(1, 500)), every_s=draw(st.floats(0.6, 2)))
    mbit = st.sampled_from([None, 0.02, 0.5])
    loses = draw(st.booleans())
    jitter_ms = draw(st.sampled_from([0.0, 5.0, 80.0]))
    return LinkProfile(
        up_ms=draw(st.floats(jitter_ms, 300)),
        down_ms=draw(st.floats(jitter_ms, 300)),
        jitter="uniform",
        jitter_ms=jitter_ms,
        loss_probability=0.1 if loses else 0.0,
        loss_stall_ms=200 if loses else 0,
        stalls=(stall,) if draw(st.booleans()) else (),
        up_mbit=draw(mbit),
        down_mbit=draw(mbit),
    )


@given(
    link=links(),
    task=st.builds(
        Task,
        seed=st.integers(0, 2**32),
        sampling=st.sampled_from(SAMPLINGS),
        eager=st.booleans(),
        deviation=st.sampled_from([0, 0.2, 0.5, 1, 3, 50]),
        draft_ms=st.sampled_from([0, 2, 8, 39, 40, 90, 700]),
        control=st.just("ratio"),
    ),
)
@settings(max_examples=30, deadline=None)
def test_ids_are_the_targets_own_over_any_link_at_any_pace(link: LinkProfile, task: Task) -> None:
    async def main() -> Answer:
        async with world() as here:
            return await here.answer(task, link)

    answer = run(main(), limit_s=HANG_LIMIT_S)
    assert answer.tree.committed == target_alone(task)
    answer.tree.check_integrity()
    assert answer.stats.draft_error is None or not answer.stats.draft_error


def test_many_sessions_at_once_each_get_their_own_answer() -> None:
    tasks = [
        Task(seed=n, eager=n % 2 == 0, sampling=SAMPLINGS[n % 4], control=("ratio", "fixed")[n % 3 == 2])
        for n in range(9)
    ]

    async def main() -> list[Answer]:
        async with world(slots=9) as here:
            links = (LinkProfile(), LinkProfile.of_rtt(60, jitter="uniform", jitter_ms=20), LinkProfile.of_rtt(600))
            return await asyncio.gather(*(here.answer(task, links[n % 3]) for n, task in enumerate(tasks)))

    for task, answer in zip(tasks, run(main(), limit_s=HANG_LIMIT_S), strict=True):
        assert answer.tree.committed == target_alone(task), task


@pytest.mark.parametrize("eager", [False, True])
@pytest.mark.parametrize("max_branches", [0, 3])
@pytest.mark.parametrize("window", [32, 256])
def test_no_window_and_no_number_of_side_branches_is_too_small(window: int, max_branches: int, eager: bool) -> None:
    tasks = [
        Task(seed=seed, eager=eager, control="ratio", deviation=0.5, sampling=SAMPLINGS[seed % 4], draft_ms=3.0)
        for seed in range(2)
    ]

    async def main() -> list[Answer]:
        target = InlineTarget(TinyEngine(max_slots=4, max_branches=max_branches), forty_ms)
        verifier = Verifier(target, VerifierConfig(session=SessionLimits(window=window)))
        async with verifier.running(), MemoryPort.listening(verifier) as port:
            here = World(verifier, port)
            return [await here.answer(task, LinkProfile.of_rtt(90)) for task in tasks]

    for task, answer in zip(tasks, run(main(), limit_s=HANG_LIMIT_S), strict=True):
        assert answer.tree.committed == target_alone(task)


@pytest.mark.parametrize("rtt_ms", [0, 150])
@pytest.mark.parametrize("eager", [False, True])
def test_a_drafter_that_is_silent_or_fails_delays_an_answer_and_no_more(eager: bool, rtt_ms: float) -> None:
    task = Task(eager=eager)

    async def main() -> list[Answer]:
        async with world() as here:
            drafts = (Silent(), Failing(tiny_draft(task)))
            return [await answer_with(here, task, draft, LinkProfile.of_rtt(rtt_ms)) for draft in drafts]

    silent, failing = run(main(), limit_s=HANG_LIMIT_S)
    assert silent.tree.committed == failing.tree.committed == target_alone(task)
    assert "out of order" in (failing.stats.draft_error or "")


def test_guesses_go_out_while_verdicts_are_in_flight() -> None:
    """A right drafter on a long link: far more tokens are committed than one message could carry from here to there."""
    task = Task(sampling=Sampling(max_tokens=80, logit_bias={END: -100.0}), deviation=0, draft_ms=8.0, control="ratio")

    async def main() -> tuple[float, float]:
        async with world() as here:
            waiting = await here.answer(replace(task, control="fixed", gamma=8), LinkProfile.of_rtt(300))
            growing = await here.answer(task, LinkProfile.of_rtt(300))
            return waiting.stats.seconds, growing.stats.seconds

    waiting_s, growing_s = run(main(), limit_s=HANG_LIMIT_S)
    assert growing_s < 0.8 * waiting_s


RTTS = (0, 20, 150, 600)
DRAFTS = (2, 8, 39, 90)


@pytest.mark.parametrize("rtt_ms", RTTS)
@pytest.mark.parametrize("draft_ms", DRAFTS)
def test_an_eager_answer_with_a_drafter_that_is_always_wrong_takes_as_long_as_streaming(
    rtt_ms: float, draft_ms: float
) -> None:
    task = Task(eager=True, draft_ms=draft_ms, sampling=Sampling(max_tokens=60, logit_bias={END: -100.0}))
    wrong = ScriptedSession(target_alone(task), Script(0), TINY_SIZE)

    async def main() -> Answer:
        async with world(pass_ms=lambda rows, sessions: PASS_MS) as here:
            return await answer_with(here, task, wrong, LinkProfile.of_rtt(rtt_ms))

    answer = run(main(), limit_s=HANG_LIMIT_S)
    streaming_s = (rtt_ms + (1 + 60) * PASS_MS) / 1000
    assert answer.stats.seconds <= 1.03 * streaming_s
    assert answer.stats.passes == 60


@pytest.mark.parametrize("rtt_ms", RTTS)
@pytest.mark.parametrize("draft_ms", DRAFTS)
def test_an_eager_answer_whose_first_guesses_are_never_right_is_no_slower_than_streaming(
    rtt_ms: float, draft_ms: float
) -> None:
    """Over the harness's own setup, with steps that take longer for more texts."""
    setup = make_setup(0.0, rtt_ms=rtt_ms, answers=1, pace="eager").with_drafting(control="ratio", gamma=None)
    setup = replace(setup, device=DrafterProfile(token_ms=draft_ms, prompt_token_ms=draft_ms / 10))
    streaming = measures(run_virtual(setup.with_drafting(drafter="none")))
    result = measures(run_virtual(setup))
    assert result["ms_per_token"] <= 1.03 * streaming["ms_per_token"]
    assert result["ttft_ms"] <= 1.03 * streaming["ttft_ms"]
