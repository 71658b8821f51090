"""Steps of a replayed drafter over several texts: rows are counted as a model with side branches counts them."""

from __future__ import annotations

import asyncio

import pytest

from outrider.edge.drafters.base import Proposal, propose_one
from outrider.harness import virtual_time
from outrider.harness.profiles import DrafterProfile
from outrider.harness.replay_drafter import DeviceClock, ReplayDrafter, ReplayDraftSession
from outrider.shared.sampling.choose import Chooser
from unit.harness_recording.tiny_recordings import no_time, tiny_set

RECORDING = tiny_set().recordings[0]
PROMPT = len(RECORDING.prompt_ids)
ANSWER = list(RECORDING.answer_ids)


def opened(drafter: ReplayDrafter) -> ReplayDraftSession:
    size = RECORDING.header.vocabulary.size
    return drafter.open(RECORDING.prompt_ids, Chooser(RECORDING.header.sampling, 1, RECORDING.prompt_ids, size))


def rows_of(*steps: list[list[int]]) -> list[int]:
    """Rows that each step feeds."""
    fed: list[int] = []

    def cost(rows: int, busy_s: float) -> float:
        fed.append(rows)
        return 1.0

    async def draft() -> None:
        session = opened(ReplayDrafter(tiny_set(), DeviceClock(cost)))
        for texts in steps:
            assert len(await session.propose(texts, 2)) == len(texts)

    virtual_time.run(draft())
    return fed


def test_the_prompt_is_read_once_however_many_texts_begin_with_it() -> None:
    assert rows_of([[]], [[1], [2]]) == [PROMPT, 2]
    assert rows_of([[1], [2], [3]], [[1]]) == [PROMPT + 3, 1]


def test_each_text_feeds_what_no_text_before_it_has_fed_and_at_least_its_last_token() -> None:
    assert rows_of([[]], [[1, 2, 3], [1, 2, 4], [1, 2]]) == [PROMPT, 3 + 1 + 1]
    assert rows_of([[]], [[1, 2, 3]], [[1, 2, 3], [1, 2, 3, 4], [5]]) == [PROMPT, 3, 1 + 1 + 1]


def test_side_branches_stay_fed() -> None:
    steps: list[list[list[int]]] = [[[]], [[1], [2]], [[1, 3], [2, 3]], [[2, 3, 4]], [[1, 3, 4]], [[1, 9, 9]]]
    assert rows_of(*steps) == [PROMPT, 2, 2, 1, 1, 2]


def test_every_step_feeds_something() -> None:
    assert rows_of([[]], [[]]) == [PROMPT, 1]


@pytest.mark.parametrize("text_count", [1, 2, 8])
def test_a_step_takes_its_time_once_and_a_little_more_for_each_further_text(text_count: int) -> None:
    device = DrafterProfile(token_ms=8, prompt_token_ms=0.5)

    async def draft() -> list[float]:
        drafter = ReplayDrafter(tiny_set(), DeviceClock(device.draft_ms))
        session = opened(drafter)
        await propose_one(session, [], 2)
        await session.propose([[n] for n in range(text_count)], 2)
        assert [guess.reads_prompt for guess in drafter.clock.guesses] == [True, False]
        return [guess.ended_s - guess.began_s for guess in drafter.clock.guesses]

    prompt_s, step_s = virtual_time.run(draft())
    assert prompt_s == pytest.approx((8 + 0.5 * (PROMPT - 1)) / 1000)
    assert step_s == pytest.approx((8 + 0.5 * (text_count - 1)) / 1000)


def test_a_text_gets_the_same_guesses_alone_and_among_others() -> None:
    texts = [ANSWER[:3], [*ANSWER[:2], 5], ANSWER[:2], []]

    async def ask() -> tuple[list[list[Proposal]], list[list[Proposal]]]:
        together = await opened(ReplayDrafter(tiny_set(), DeviceClock(no_time))).propose(texts, 3)
        return together, [
            await propose_one(opened(ReplayDrafter(tiny_set(), DeviceClock(no_time))), text, 3) for text in texts
        ]

    together, alone = asyncio.run(ask())
    assert together == alone
