"""Replay against what was recorded: for a fixed policy the same passes, acceptance and ids; off the path what the
drafter really said, as far as that was kept.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence

import pytest

from outrider.cloud.target import PassWork
from outrider.cloud.targets.base import SlotRows
from outrider.cloud.targets.tiny import TinyEngine
from outrider.cloud.walk import WalkRules
from outrider.edge.control.fixed import FixedControl
from outrider.edge.drafters.base import Proposal, propose_one
from outrider.edge.drafters.tiny import TinyDrafter
from outrider.harness import virtual_time
from outrider.harness.inline_target import InlineTarget
from outrider.harness.recording.format import BRANCH_WIDTH, DEPTH, Recording
from outrider.harness.recording.library import RecordingSet
from outrider.harness.replay_drafter import DeviceClock, ReplayDrafter, off_path_confidence
from outrider.harness.replay_target import ReplayTarget
from outrider.shared.errors import Reason
from outrider.shared.messages import FinishReason
from outrider.shared.sampling.choose import Chooser
from support.refusal import refused
from unit.harness_recording.tiny_recordings import (
    DEVIATION,
    SAMPLINGS,
    TimedTiny,
    draft_ms,
    no_time,
    pass_ms,
    play,
    tiny_recording,
    tiny_set,
)

# What must agree; `drafted` and bytes may differ where the drafter would have ended a hopeless chain by a stop id.
SAME = ("tokens", "passes", "accepted", "checked", "alpha", "accepted_histogram", "rounds", "draft_ms", "pass_ms")


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("branch", [1, 2, 3])
@pytest.mark.parametrize(("gamma", "eager"), [*((gamma, False) for gamma in range(1, 9)), (2, True), (5, True)])
def test_a_fixed_policy_meets_the_same_verdicts_as_with_the_models(
    sampling: str, branch: int, gamma: int, eager: bool
) -> None:
    recordings = tiny_set(sampling)
    requests = [dataclasses.replace(r.open_request(), want_gaps=True) for r in recordings]
    control = FixedControl(gamma, branch)
    real = play(
        lambda: InlineTarget(TinyEngine(max_branches=8), pass_ms),
        lambda: TimedTiny(DEVIATION),
        requests,
        control,
        eager=eager,
    )
    again = play(
        lambda: ReplayTarget(recordings, pass_ms),
        lambda: ReplayDrafter(recordings, DeviceClock(draft_ms)),
        requests,
        control,
        eager=eager,
    )
    for one, other, recording in zip(real, again, recordings, strict=True):
        assert tuple(one.ids) == recording.answer_ids
        assert (other.ids, other.finish_reason) == (one.ids, one.finish_reason)
        assert {key: other.report[key] for key in SAME} == {key: one.report[key] for key in SAME}
        assert other.seconds == pytest.approx(one.seconds)
        assert other.gaps == pytest.approx(one.gaps, rel=2e-3)


def test_a_session_may_ask_for_less_or_for_more_than_was_recorded() -> None:
    recordings = tiny_set()
    recording = recordings.recordings[0]
    assert recording.header.finish_reason is FinishReason.LENGTH
    shorter = recording.open_request(10)
    longer = dataclasses.replace(recording.open_request(), max_tokens=500)
    short, long = play(
        lambda: ReplayTarget(recordings, pass_ms),
        lambda: ReplayDrafter(recordings, DeviceClock(draft_ms)),
        [shorter, longer],
        FixedControl(4, 2),
    )
    assert (tuple(short.ids), short.finish_reason) == (recording.answer_ids[:10], "length")
    assert (tuple(long.ids), long.finish_reason) == (recording.answer_ids, "length")


def test_a_slot_plays_one_prompt_after_the_other() -> None:
    recordings = tiny_set()
    requests = [recording.open_request() for recording in recordings] * 2
    played = play(
        lambda: ReplayTarget(recordings, pass_ms, max_slots=1),
        lambda: ReplayDrafter(recordings, DeviceClock(draft_ms)),
        requests,
        FixedControl(4, 1),
    )
    assert [tuple(one.ids) for one in played] == [recording.answer_ids for recording in recordings] * 2


def test_a_pass_takes_its_time_for_rows_and_sessions() -> None:
    recordings = tiny_set()
    seen: list[tuple[int, int]] = []

    def cost(rows: int, sessions: int) -> float:
        seen.append((rows, sessions))
        return 10.0 * rows + sessions

    async def passes() -> float:
        target = ReplayTarget(recordings, cost)
        work = []
        for slot, recording in enumerate(recordings.recordings[:2]):
            rules = WalkRules(chooser_of(recording), recordings.vocabulary.stop_ids, 50)
            rows = SlotRows(slot, recording.prompt_ids, recording.answer_ids[:2], (-1, 0))
            work.append(PassWork(rows, (), rules))
        results = await target.run_pass(work)
        for slot, recording in enumerate(recordings.recordings[:2]):
            result = results[slot]
            assert result is not None
            assert (result.path, result.correction) == ((0, 1), recording.answer_ids[2])
            assert target.cached_length(slot) == len(recording.prompt_ids) + 2
        return asyncio.get_running_loop().time()

    rows = sum(len(recording.prompt_ids) + 2 for recording in recordings.recordings[:2])
    assert virtual_time.run(passes()) == pytest.approx((10 * rows + 2) / 1000)
    assert seen == [(rows, 2)]


def test_a_prompt_or_text_that_was_not_recorded_is_refused() -> None:
    recordings = tiny_set()
    recording = recordings.recordings[0]
    rules = WalkRules(chooser_of(recording), recordings.vocabulary.stop_ids, 50)

    async def one_pass(rows: Sequence[int], answer: tuple[int, ...]) -> None:
        target = ReplayTarget(recordings, pass_ms)
        await target.run_pass([PassWork(SlotRows(0, rows), answer, rules)])

    with refused(Reason.FILE_UNREADABLE, "no recording of this prompt"):
        virtual_time.run(one_pass([1, 2, 3], ()))
    wrong = (recording.answer_ids[0] ^ 1,)
    with refused(Reason.FILE_UNREADABLE, "other ids"):
        virtual_time.run(one_pass([*recording.prompt_ids, *wrong], wrong))
    with refused(Reason.FILE_UNREADABLE, "other ids"):
        virtual_time.run(one_pass([*recording.prompt_ids, *recording.answer_ids], recording.answer_ids))
    with refused(Reason.FILE_UNREADABLE, "no recording of this prompt"):
        ReplayDrafter(recordings, DeviceClock(no_time)).open([1, 2, 3], chooser_of(recording))


def test_a_replayed_target_declares_the_pair_and_knows_the_answers_pieces() -> None:
    recordings = tiny_set()
    target = ReplayTarget(recordings, pass_ms, max_slots=3, max_branches=5)
    assert (target.spec.kind, target.spec.model, target.spec.numerics) == ("replay", "tiny", "exact")
    assert (target.spec.max_slots, target.spec.max_branches) == (3, 5)
    real = TinyEngine().vocabulary
    assert target.vocabulary.fingerprint == real.fingerprint
    assert (target.vocabulary.size, target.vocabulary.stop_ids) == (real.size, real.stop_ids)
    for token in recordings.recordings[2].answer_ids:
        assert target.vocabulary.pieces[token] == real.pieces[token]


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_the_drafter_says_on_the_path_and_three_steps_off_it_what_the_real_one_says(sampling: str) -> None:
    recordings = tiny_set(sampling)
    recording = recordings.recordings[1]
    texts: list[list[int]] = []
    answer = list(recording.answer_ids)
    for position, rank in zip(recording.branches.positions, recording.branches.ranks, strict=True):
        texts.append([*answer[:position], int(recording.draft.ids[position, rank])])
    stops = recordings.vocabulary.stop_ids
    assert len(texts) > len(answer) // 2

    async def compare() -> None:
        real = TinyDrafter(DEVIATION).open(recording.prompt_ids, chooser_of(recording))
        session = ReplayDrafter(recordings, DeviceClock(no_time)).open(recording.prompt_ids, chooser_of(recording))
        for length in range(len(answer)):
            assert_same(await propose_one(session, answer[:length], 12), await propose_one(real, answer[:length], 12))
        for start in texts:
            text = start
            for _ in range(DEPTH):
                expected = await propose_one(real, text, BRANCH_WIDTH)
                assert_same(await propose_one(session, text, BRANCH_WIDTH), expected)
                if expected[0].token in stops:
                    break
                text = [*text, expected[0].token]

    asyncio.run(compare())


def test_stand_ins_are_never_the_truth_nor_a_stop_nor_twice_and_carry_the_mean_confidence() -> None:
    recordings = with_stop_ids(tiny_set("full"), [*range(ord("a"), ord("h"))])
    recording = recordings.recordings[0]
    means = off_path_confidence(recordings)
    assert 0 < means[0][1] < means[0][0] < 1
    stops = recordings.vocabulary.stop_ids

    async def check() -> None:
        session = ReplayDrafter(recordings, DeviceClock(no_time)).open(recording.prompt_ids, chooser_of(recording))
        end = len(recording.answer_ids)
        for length in (0, 1, 7, end - 1, end):
            # A wrong guess that is neither of the first two choices, and then more of them than were recorded.
            position = min(length, end - 1)
            rest = [token for token in recording.draft.ids[position, 2:9].tolist() if token not in stops]
            wrong = next(token for token in rest if token != recording.answer_ids[position])
            for depth in range(6):
                text = [*recording.answer_ids[:length], wrong, *[wrong] * depth]
                proposals = await propose_one(session, text, 5)
                tokens = [proposal.token for proposal in proposals]
                assert len(tokens) == len(set(tokens)) == 5
                assert not stops.intersection(tokens)
                if len(text) < len(recording.answer_ids):
                    assert recording.answer_ids[len(text)] not in tokens
                row = means[min(depth, DEPTH - 1)]
                assert [proposal.probability for proposal in proposals] == [*row, row[-1]]
                assert proposals == await propose_one(session, text, 5), "deterministic"

    asyncio.run(check())


def test_a_tail_that_the_drafter_did_not_choose_itself_meets_stand_ins() -> None:
    recordings = tiny_set("full")
    recording = recordings.recordings[0]
    means = off_path_confidence(recordings)
    ranking = recording.branches.ranking

    async def check() -> None:
        session = ReplayDrafter(recordings, DeviceClock(no_time)).open(recording.prompt_ids, chooser_of(recording))
        for index, position in enumerate(recording.branches.positions.tolist()):
            wrong = int(recording.draft.ids[position, recording.branches.ranks[index]])
            text = [*recording.answer_ids[:position], wrong, int(ranking.ids[index, 0, 1])]
            proposals = await propose_one(session, text, 3)
            assert [proposal.probability for proposal in proposals] == means[1][:3]

    asyncio.run(check())


def test_a_guess_costs_what_had_to_be_fed_and_guesses_wait_for_each_other() -> None:
    recordings = tiny_set()
    one, two = recordings.recordings[:2]
    fed: list[int] = []

    def cost(rows: int, busy_s: float) -> float:
        assert busy_s == pytest.approx(0.01 * len(fed))
        fed.append(rows)
        return 10.0

    async def draft() -> list[float]:
        loop = asyncio.get_running_loop()
        drafter = ReplayDrafter(recordings, DeviceClock(cost))
        first = drafter.open(one.prompt_ids, chooser_of(one))
        second = drafter.open(two.prompt_ids, chooser_of(two))
        answer = list(one.answer_ids)
        times = []
        for text in (answer[:0], answer[:1], answer[:2], [*answer[:1], 5], answer[:3], answer[:3]):
            await propose_one(first, text, 1)
            times.append(loop.time())
        await asyncio.gather(propose_one(first, answer[:4], 1), propose_one(second, [], 1))
        times.append(loop.time())
        cancelled = asyncio.create_task(propose_one(first, answer[:5], 1))
        await asyncio.sleep(0.004)
        cancelled.cancel()
        await propose_one(second, list(two.answer_ids[:1]), 1)
        return [*times, loop.time()]

    times = virtual_time.run(draft())
    assert fed == [len(one.prompt_ids), 1, 1, 1, 1, 1, 1, len(two.prompt_ids), 1, 1]
    assert times == pytest.approx([0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1])


def test_a_drafter_that_has_reached_the_end_says_nothing() -> None:
    recording = tiny_recording()

    async def ask() -> list[Proposal]:
        session = ReplayDrafter(tiny_set(), DeviceClock(no_time)).open(recording.prompt_ids, chooser_of(recording))
        return await propose_one(session, recording.answer_ids, 2)

    assert asyncio.run(ask()) == []


def test_sets_of_different_pairs_or_of_one_prompt_twice_are_refused() -> None:
    one, two = tiny_recording(), tiny_recording("full", 1)
    with refused(Reason.FILE_UNREADABLE, "two and one differ in sampling"):
        RecordingSet([one, two])
    with refused(Reason.FILE_UNREADABLE, "two recordings of one prompt"):
        RecordingSet([one, one])
    with refused(Reason.FILE_UNREADABLE, "no recording"):
        RecordingSet([])


def with_stop_ids(recordings: RecordingSet, more: list[int]) -> RecordingSet:
    """The same recordings of a vocabulary in which more ids end an answer."""
    changed = []
    for recording in recordings:
        stop_ids = (*recording.header.vocabulary.stop_ids, *more)
        vocabulary = recording.header.vocabulary.model_copy(update={"stop_ids": stop_ids})
        header = recording.header.model_copy(update={"vocabulary": vocabulary})
        changed.append(dataclasses.replace(recording, header=header))
    return RecordingSet(changed)


def chooser_of(recording: Recording) -> Chooser:
    header = recording.header
    return Chooser(header.sampling, recording.seed, recording.prompt_ids, header.vocabulary.size)


def assert_same(recorded: Sequence[Proposal], real: Sequence[Proposal]) -> None:
    assert [proposal.token for proposal in recorded] == [proposal.token for proposal in real]
    expected = [proposal.probability for proposal in real]
    assert [proposal.probability for proposal in recorded] == pytest.approx(expected, rel=6e-3, abs=1e-7)
