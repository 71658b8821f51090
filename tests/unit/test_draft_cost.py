"""What a further text costs is learnt from steps as they come, in any order and with any times; and what the ratio
policy makes of it.
"""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.edge.control.base import DraftBounds, Expand
from outrider.edge.control.draft_cost import FIRST_GUESS, DraftCost
from outrider.edge.control.ratio import MAX_TEXTS, RatioControl
from outrider.shared.token_tree import DraftTree, Node

# No side branches: only the root's likeliest child can be sent.
CHAIN = DraftBounds(window=9, max_branches=0, stop_ids=frozenset(), end=99)


def after(*steps: tuple[int, float]) -> float:
    cost = DraftCost()
    for text_count, took_s in steps:
        cost.observe(text_count, took_s)
    return cost.further_share


def test_single_steps_and_further_texts_are_learnt() -> None:
    assert after((1, 9.0), (1, 0.010), (5, 0.018)) == pytest.approx(0.2)


def test_the_first_step_reads_the_prompt_and_tells_nothing() -> None:
    steps = [(1, 0.010), (5, 0.018)]
    assert after((1, 100.0), *steps) == after((8, 0.0), *steps) == pytest.approx(0.2)


@pytest.mark.parametrize(
    "steps", [(), ((1, 1.0),), ((1, 1.0), (1, 0.01)), ((1, 1.0), (4, 0.01)), ((1, 1.0), (4, 0.01), (1, 0.02))]
)
def test_until_both_have_been_seen_it_is_a_guess(steps: tuple[tuple[int, float], ...]) -> None:
    assert after(*steps) == FIRST_GUESS


def test_old_steps_are_forgotten_and_one_odd_step_does_not_count_for_much() -> None:
    old = [(1, 1.0), *[(1, 0.010), (3, 0.020)] * 20]
    assert after(*old) == pytest.approx(0.5)
    assert after(*old, (3, 0.060)) == pytest.approx(0.7)
    assert after(*old, *[(1, 0.010), (3, 0.012)] * 60) == pytest.approx(0.1, abs=0.01)


def test_several_texts_that_take_no_longer_than_one_cost_nothing() -> None:
    assert after((1, 1.0), (1, 0.010), (4, 0.008)) == 0.0


def test_times_of_zero_are_no_share() -> None:
    assert after((1, 0.0), (1, 0.0), (4, 0.0), (4, 1.0)) == FIRST_GUESS


def test_a_further_text_costs_no_more_than_a_step_of_its_own() -> None:
    assert after((1, 1.0), (1, 0.010), (2, 0.050)) == 1.0


@given(st.lists(st.tuples(st.integers(1, 8), st.floats(0, 1e6))))
def test_the_share_is_always_one(steps: list[tuple[int, float]]) -> None:
    assert 0.0 <= after(*steps) <= 1.0


def first_step(step_s: float, *probabilities: float) -> tuple[Expand, list[Node]]:
    """What is drafted below open nodes of these path probabilities where a step over two texts took that long, and one
    over one text 10 ms; and the nodes.
    """
    control = RatioControl()
    for text_count, took_s in ((1, 1.0), (1, 0.010), (2, step_s)):
        control.on_drafted(text_count, took_s)
    tree = DraftTree((1,))
    tree.root.expanded = True
    nodes = [tree.add(tree.root, 10 + n, math.log(p)) for n, p in enumerate(probabilities)]
    tree.compose(nodes[:1])
    step = control.next_step(tree, CHAIN)
    assert isinstance(step, Expand)
    return step, nodes


@pytest.mark.parametrize(
    ("step_s", "expected"), [(0.010, 4), (0.0112, 3), (0.014, 2), (0.0161, 1), (0.020, 1), (0.080, 1)]
)
def test_a_step_takes_the_texts_that_pay_for_themselves(step_s: float, expected: int) -> None:
    """The first one always: also where a further text was seen to cost more than a step of its own."""
    step, nodes = first_step(step_s, 0.5, 0.3, 0.13, 0.05)
    assert list(step.nodes) == nodes[:expected]


def test_a_step_takes_no_more_texts_than_the_limit() -> None:
    step, nodes = first_step(0.010, *[0.05] * 20)
    assert list(step.nodes) == nodes[:MAX_TEXTS]
