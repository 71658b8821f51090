"""The proportional policy: γ goes where the accepted share drives it, one at a time, and stays in its range."""

from __future__ import annotations

from itertools import pairwise

import pytest

from outrider.edge.control.base import DraftBounds, Expand, Send
from outrider.edge.control.proportional import LEAST_GAMMA, MOST_GAMMA, ProportionalControl
from outrider.shared.messages import Commit
from outrider.shared.token_tree import DraftTree

WIDE = DraftBounds(window=64, max_branches=8, stop_ids=frozenset(), end=10_000)


def play_round(control: ProportionalControl, right: int) -> int:
    """Let a round of guesses be drafted and sent, and `right` of them be accepted; returns how many were sent."""
    tree = DraftTree([1])
    while isinstance(step := control.next_step(tree, WIDE), Expand):
        for node in step.nodes:
            node.expanded = True
            tree.add(node, 7)
    assert isinstance(step, Send)
    sent = len(step.nodes)
    accepted = min(right, sent)
    control.on_commit(Commit(base=0, accepted_node=accepted, tokens=(9,), committed_length=accepted + 1, hash=0))
    return sent


@pytest.mark.parametrize(("right", "end"), [(100, MOST_GAMMA), (0, LEAST_GAMMA)])
def test_gamma_moves_one_a_round_to_the_end_of_its_range(right: int, end: int) -> None:
    control = ProportionalControl(5, 1)
    sent = [play_round(control, right) for _ in range(10)]
    assert sent[0] == 5
    assert sent[-1] == end
    assert all(abs(after - before) <= 1 for before, after in pairwise(sent))


def test_gamma_stays_within_the_dead_band() -> None:
    control = ProportionalControl(7, 1)
    for _ in range(30):
        # 5 of 7: 0.71.
        assert play_round(control, 5) == 7


def test_old_rounds_are_forgotten() -> None:
    control = ProportionalControl(5, 1)
    for _ in range(60):
        play_round(control, 100)
    for _ in range(25):
        play_round(control, 0)
    assert control.gamma == LEAST_GAMMA


def test_what_the_verifier_decoded_alone_says_nothing_of_guesses() -> None:
    control = ProportionalControl(5, 1)
    for length in range(1, 40):
        control.on_commit(Commit(base=length - 1, accepted_node=0, tokens=(3,), committed_length=length, hash=0))
    assert control.gamma == 5
