"""The lanes of a llama.cpp drafter over a stand-in for its cache: whatever texts come in whatever order, guesses are
those after just these texts, what is cached is not fed again, and cells do not run out.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.edge.drafters.base import Proposal
from outrider.edge.drafters.llama_cpp import LANES, SIDE_CELLS, LlamaDraftSession, _Lane, _Stream
from outrider.edge.drafters.tiny import TinyDraftSession
from outrider.shared.errors import Reason
from outrider.shared.llama.runtime import LlamaContext
from outrider.shared.sampling.choose import Chooser
from outrider.shared.sampling.options import Sampling
from outrider.shared.tiny import TINY_SIZE
from outrider.shared.worker import Worker
from support.cell_context import CellContext
from support.refusal import refused

DEVIATION = 0.5
PROMPT = [*b"a prompt of some length"]
LENGTH = 400


class Drafting:
    """Drafting sessions in one stream."""

    def __init__(self, length: int = LENGTH, batch_size: int = 64, streams: int = 1) -> None:
        self.context = CellContext(length, streams * (length + SIDE_CELLS), batch_size, DEVIATION)
        self.streams = [
            _Stream([_Lane(sequence) for sequence in range(first, first + LANES)])
            for first in range(0, streams * LANES, LANES)
        ]
        self.worker = Worker("unused")

    def open(self, prompt: Sequence[int] = PROMPT, stream: int = 0) -> LlamaDraftSession:
        context: LlamaContext = self.context  # type: ignore[assignment]
        self.streams[stream].users += 1
        chooser = chooser_of(prompt)
        return LlamaDraftSession(context, self.worker, self.streams[stream], list(prompt), chooser)

    def check(self) -> None:
        """Assert that every lane holds what it says, and that no cell is lost."""
        lanes = [lane for stream in self.streams for lane in stream.lanes]
        assert sorted(lane.sequence for lane in lanes) == list(range(len(lanes)))
        for lane in lanes:
            assert self.context.held(lane.sequence) == lane.cached
        assert self.context.cells <= sum(len(lane.cached) for lane in lanes)


def chooser_of(prompt: Sequence[int]) -> Chooser:
    return Chooser(Sampling(temperature=1.0), 5, prompt, TINY_SIZE)


def fresh(texts: Sequence[list[int]], prompt: Sequence[int] = PROMPT, count: int = 3) -> list[list[Proposal]]:
    """What a drafter without a cache says."""
    return [TinyDraftSession(list(prompt), chooser_of(prompt), DEVIATION)._propose(text, count) for text in texts]


def step(drafting: Drafting, session: LlamaDraftSession, texts: list[list[int]], prompt: Sequence[int] = PROMPT) -> int:
    """Let the session answer `texts` and check what it says; returns the rows that were fed."""
    before = drafting.context.fed_count
    assert session.propose_now(texts, 3) == fresh(texts, prompt)
    drafting.check()
    return drafting.context.fed_count - before


def test_a_chain_feeds_the_prompt_once_and_then_a_row_a_step() -> None:
    drafting = Drafting()
    session = drafting.open()
    fed = [step(drafting, session, [[*range(length)]]) for length in range(9)]
    assert fed == [len(PROMPT), *[1] * 8]


def test_the_last_token_is_fed_again_as_its_logits_are_wanted() -> None:
    drafting = Drafting()
    session = drafting.open()
    step(drafting, session, [[1, 2, 3]])
    assert step(drafting, session, [[1, 2, 3]]) == 1
    assert step(drafting, session, [[1]]) == 1
    assert step(drafting, session, [[]]) == 1


def test_siblings_share_what_they_begin_with() -> None:
    drafting = Drafting()
    session = drafting.open()
    step(drafting, session, [[1, 2, 3]])
    cells = drafting.context.cells
    assert step(drafting, session, [[1, 2, 3, n] for n in range(8)]) == 8
    assert drafting.context.cells == cells + 8


@pytest.mark.parametrize("text_count", [2, 8, LANES, LANES + 1, 3 * LANES])
def test_texts_of_a_first_step_read_the_prompt_once(text_count: int) -> None:
    drafting = Drafting()
    session = drafting.open()
    fed = step(drafting, session, [[7, 8, n] for n in range(text_count)])
    assert fed == len(PROMPT) + 2 + text_count


def test_one_of_the_texts_may_be_where_all_others_begin() -> None:
    drafting = Drafting()
    session = drafting.open()
    assert step(drafting, session, [[1, 2, 3], [1], [1, 2], []]) <= len(PROMPT) + 3 + 4
    assert step(drafting, session, [[], [1], [1, 2], [1, 2, 3]]) <= 4 + 3


def test_side_branches_of_a_growing_tree_stay_cached() -> None:
    """Eight nodes anywhere in the tree are expanded a step: few tokens are fed twice."""
    rng = random.Random(7)
    drafting = Drafting(batch_size=512)
    session = drafting.open()
    step(drafting, session, [[]])
    committed: list[int] = []
    frontier: list[list[int]] = [[1], [2], [3]]
    fed = texts = 0
    for number in range(100):
        chosen = rng.sample(frontier, min(8, len(frontier)))
        fed += step(drafting, session, chosen)
        texts += len(chosen)
        frontier = [text for text in frontier if text not in chosen]
        frontier += [[*text, token] for text in chosen for token in rng.sample(range(200), 2)]
        if number % 4 == 3:
            committed = max(chosen, key=len)[: len(committed) + 3]
            frontier = [text for text in frontier if text[: len(committed)] == committed]
    assert fed <= 1.25 * texts


def test_a_text_goes_on_in_the_lane_that_it_continues_if_there_is_one() -> None:
    drafting = Drafting()
    session = drafting.open()
    step(drafting, session, [[1, 2, 3], [1, 2]])
    step(drafting, session, [[1, 2, 4]])
    held = sorted(tuple(lane.cached[len(PROMPT) :]) for lane in drafting.streams[0].lanes if lane.cached)
    assert held == [(1, 2, 3), (1, 2, 4)]


def test_branches_that_are_drafted_in_turn_stay_cached() -> None:
    """As on a device on which a further text costs as much as a step of its own."""
    drafting = Drafting()
    session = drafting.open()
    step(drafting, session, [[1]])
    for length in range(1, 12):
        for token in range(2, 6):
            assert step(drafting, session, [[1, *[token] * length]]) == 1


def test_the_branch_that_was_not_used_for_longest_goes_first() -> None:
    drafting = Drafting(length=600, batch_size=512)
    session = drafting.open()
    old, newer = ([*range(10), *[token] * (SIDE_CELLS // 2 + 1)] for token in (50, 51))
    for text in ([*range(10)], old, newer, [*range(11)]):
        step(drafting, session, [text])
    assert step(drafting, session, [newer]) == 1
    assert step(drafting, session, [old]) > SIDE_CELLS // 2


def test_a_long_answer_with_many_side_branches_keeps_within_its_cells() -> None:
    """Each step leaves branches of 20 to 38 tokens behind, in all lanes far more than the room there is for them."""
    drafting = Drafting(length=200, batch_size=512)
    session = drafting.open()
    answer = [*range(40)]
    step(drafting, session, [answer])
    for number in range(60):
        branches = [[*answer[:-back], 200 + number, *range(back)] for back in range(20, 40, 6)]
        step(drafting, session, [answer, *branches])
        assert drafting.context.cells <= len(PROMPT) + len(answer) + SIDE_CELLS
        answer = [*answer, number]
    assert drafting.context.cells > len(PROMPT) + len(answer) + SIDE_CELLS // 2, "branches stay while there is room"


def test_after_a_long_answer_another_prompt_has_the_cells() -> None:
    drafting = Drafting(length=300, batch_size=512)
    session = drafting.open()
    for begin in range(0, 200, 20):
        step(drafting, session, [[*range(begin), n] for n in range(8)])
    other = [*range(100, 250)]
    session = drafting.open(other)
    for length in range(0, 140, 7):
        step(drafting, session, [[*range(length), n] for n in range(8)], other)


def test_two_answers_in_one_stream_do_not_hear_of_each_other() -> None:
    """More answers at once than streams: each step may find its text gone, but reads it once, however many texts."""
    drafting = Drafting(length=600, batch_size=512)
    prompts = [[5] * 290, [6] * 290]
    sessions = [drafting.open(prompt) for prompt in prompts]
    for length in range(12):
        for session, prompt in zip(sessions, prompts, strict=True):
            texts = [[*range(length), n] for n in range(8)]
            assert step(drafting, session, texts, prompt) <= len(prompt) + length + len(texts)


def test_a_text_that_fills_the_context_gets_no_guesses() -> None:
    drafting = Drafting(length=len(PROMPT) + 5)
    session = drafting.open()
    assert step(drafting, session, [[1, 2, 3, 4]]) > 0
    assert session.propose_now([[1, 2], [1, 2, 3, 4, 5]], 3) == [[], []]


@pytest.mark.parametrize("texts", [[[1, 2, 3, 4]], [[1, 2, 3, n] for n in range(LANES)], [[9], [8]]])
def test_a_failed_step_leaves_the_drafter_usable_and_no_cell_behind(texts: list[list[int]]) -> None:
    drafting = Drafting()
    session = drafting.open()
    step(drafting, session, [[]])
    step(drafting, session, [[1, 2], [1, 3]])
    drafting.context.fails_next = True
    with refused(Reason.INTERNAL, "no room"):
        session.propose_now(texts, 3)
    drafting.check()
    step(drafting, session, texts)
    step(drafting, session, [[1, 2], [1, 3]])


def test_a_step_that_failed_for_want_of_cells_can_be_followed_by_one_that_fits() -> None:
    drafting = Drafting(length=900, batch_size=512)
    session = drafting.open()
    # Far more than branches of guesses ever hold: eight texts that have nothing in common.
    with refused(Reason.INTERNAL, "no room"):
        session.propose_now([[n] * 200 for n in range(8)], 3)
    step(drafting, session, [[7] * 400])


def test_a_prompt_longer_than_a_batch_is_read_in_parts() -> None:
    drafting = Drafting(batch_size=32)
    prompt = [*range(150)]
    session = drafting.open(prompt)
    texts = [[n, *[3] * (10 * n)] for n in range(5)]
    assert step(drafting, session, texts, prompt) == len(prompt) + sum(map(len, texts))
    assert step(drafting, session, texts, prompt) == len(texts)


SMALL_TEXTS = st.lists(st.lists(st.integers(1, 3), max_size=6), min_size=1, max_size=LANES + 3, unique_by=tuple)


@given(steps=st.lists(st.tuples(st.integers(0, 1), SMALL_TEXTS, st.booleans()), max_size=12), batch=st.integers(27, 60))
@settings(max_examples=60, deadline=None)
def test_any_texts_in_any_order_get_the_guesses_of_a_fresh_session(
    steps: list[tuple[int, list[list[int]], bool]], batch: int
) -> None:
    drafting = Drafting(batch_size=batch)
    prompts = [PROMPT, [*PROMPT[:5], 1, 2]]
    sessions = [drafting.open(prompt) for prompt in prompts]
    for which, texts, fails in steps:
        drafting.context.fails_next = fails
        if fails:
            with refused(Reason.INTERNAL, "no room"):
                sessions[which].propose_now(texts, 3)
            drafting.check()
        else:
            step(drafting, sessions[which], texts, prompts[which])
