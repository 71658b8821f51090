"""When the ratio policy asks a patient verifier for a pass: as soon as drafting on gains less than the answer does."""

from __future__ import annotations

import asyncio
import math

import pytest

from outrider.edge.control.base import DraftBounds, Expand, Send, Step, Wait
from outrider.edge.control.ratio import RatioControl
from outrider.edge.control.row_price import RowPrice
from outrider.harness import virtual_time
from outrider.shared.messages import Commit
from outrider.shared.token_tree import DraftTree

BOUNDS = DraftBounds(window=64, max_branches=8, stop_ids=frozenset(), end=1000)
STEP_S = 0.010


def step_after(
    control: RatioControl, *, tokens: int, round_s: float, waited_s: float, guess: float, rounds: int = 6
) -> Step:
    """What it does with one unsent guess, right with probability `guess`, after rounds of an answer that each took that
    long and brought so many tokens.
    """

    async def main() -> Step:
        control.on_drafted(1, 1.0)
        control.on_drafted(1, STEP_S)
        for number in range(rounds):
            await asyncio.sleep(round_s)
            base = number * tokens
            control.on_commit(
                Commit(base, 0, (1,) * tokens, base + tokens, 0, queue_ns=round(waited_s * 1e9), pass_ns=1000)
            )
        tree = DraftTree(())
        tree.root.expanded = True
        tree.add(tree.root, 7, math.log(guess))
        return control.next_step(tree, BOUNDS)

    return virtual_time.run(main())


@pytest.mark.parametrize(("guess", "asks"), [(0.5, False), (0.3, False), (0.2, True), (0.05, True)])
def test_a_pass_is_asked_for_when_drafting_on_gains_less_than_the_answer_does(guess: float, asks: bool) -> None:
    """Two tokens in 100 ms: a step of 10 ms has to gain 0.2, and gains nine tenths of what its text is likely."""
    step = step_after(RatioControl(eager=False), tokens=2, round_s=0.1, waited_s=0.0, guess=guess)
    assert isinstance(step, Send if asks else Expand)


@pytest.mark.parametrize(("waited_s", "asks"), [(0.0, False), (0.05, True), (5.0, True)])
def test_time_that_a_pass_waited_for_others_is_no_reason_to_take_longer(waited_s: float, asks: bool) -> None:
    step = step_after(RatioControl(eager=False), tokens=2, round_s=0.1, waited_s=waited_s, guess=0.3)
    assert isinstance(step, Send if asks else Expand)


class _Dear(RowPrice):
    """Rows of one's own cost so much that a guess has to be that likely."""

    least_probability = 0.6
    least_first_probability = 0.6


@pytest.mark.parametrize(("guess", "expected"), [(0.9, Expand), (0.65, Send), (0.5, Wait), (0.1, Wait)])
def test_where_no_guess_is_worth_its_row_a_pass_is_asked_for_without_one(guess: float, expected: type) -> None:
    """Below 0.6 the guess itself is not; below 0.67 none that hangs below it is likely to be."""
    step = step_after(RatioControl(eager=False, price=_Dear()), tokens=2, round_s=0.1, waited_s=0.0, guess=guess)
    assert isinstance(step, expected)


def test_an_eager_verifier_is_sent_what_is_worth_its_row_and_nothing_else() -> None:
    for guess, expected in ((0.65, Send), (0.5, Expand)):
        step = step_after(RatioControl(eager=True, price=_Dear()), tokens=2, round_s=0.1, waited_s=0.0, guess=guess)
        assert isinstance(step, expected)
