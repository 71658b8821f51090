"""Confidences become what they say: checked on drafters that are right more or less often than they claim."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.edge.drafters.base import Proposal
from outrider.edge.guesses.calibration import Calibration, History


def said(confidence: float, q: float | None = None) -> list[Proposal]:
    rest = (1 - confidence) / 2
    return [Proposal(1, confidence, confidence if q is None else q), Proposal(2, rest, rest), Proposal(3, rest, rest)]


@pytest.mark.parametrize(("claimed", "true"), [(0.9, 0.5), (0.5, 0.9), (0.99, 0.9)])
def test_the_chance_becomes_how_often_it_was_right(claimed: float, true: float) -> None:
    calibration, history, dice = Calibration(), History(), random.Random(1)
    for _ in range(1500):
        right = dice.random() < true
        history.observe(right, calibration.observe(said(claimed), history, 1 if right else 2))
    # Standard error of the share: at most 0.013 a thousand; four of them and the weight of the prior.
    assert calibration.calibrated(said(claimed), History())[0] == pytest.approx(true, abs=0.07)


def test_two_levels_of_confidence_are_told_apart() -> None:
    calibration, dice = Calibration(), random.Random(2)
    for _ in range(1500):
        for claimed, true in ((0.6, 0.3), (0.95, 0.97)):
            calibration.observe(said(claimed), History(), 1 if dice.random() < true else 2)
    assert calibration.calibrated(said(0.6), History())[0] == pytest.approx(0.3, abs=0.1)
    assert calibration.calibrated(said(0.95), History())[0] == pytest.approx(0.97, abs=0.05)


def test_a_drafter_that_has_just_begun_to_fail_is_believed_less() -> None:
    """Runs of right and of wrong guesses at one claimed confidence: only the history tells them apart."""
    calibration, dice, history = Calibration(), random.Random(3), History()
    for run in range(200):
        true = 0.95 if run % 2 else 0.3
        for _ in range(20):
            right = dice.random() < true
            history.observe(right, calibration.observe(said(0.8), history, 1 if right else 2))
    good, bad = History(fast=0.3, slow=0.1), History(fast=-0.3, slow=-0.1)
    assert calibration.calibrated(said(0.8), good)[0] > calibration.calibrated(said(0.8), bad)[0] + 0.2


@given(
    confidences=st.lists(st.floats(0.0001, 1.0), min_size=1, max_size=8),
    q=st.floats(0, 1),
    fast=st.floats(-1, 1),
    slow=st.floats(-1, 1),
)
def test_chances_are_probabilities_in_the_drafters_order(
    confidences: list[float], q: float, fast: float, slow: float
) -> None:
    total = sum(confidences)
    shares = sorted((value / total for value in confidences), reverse=True)
    proposals = [Proposal(token, share, q) for token, share in enumerate(shares)]
    chances = Calibration().calibrated(proposals, History(fast, slow))
    assert all(0 <= chance <= 1 for chance in chances)
    assert chances == sorted(chances, reverse=True)


def test_chances_add_up_to_no_more_than_one_however_many_proposals_there_are() -> None:
    """A drafter that was sure and is no more: what it leaves is shared by far more than its likelihoods told of."""
    calibration = Calibration()
    sure = [Proposal(token, 1.0 if token == 0 else 1e-4, 0.5) for token in range(8)]
    for _ in range(40):
        calibration.observe(sure, History(), 99)
    chances = calibration.calibrated(sure, History())
    assert chances[0] < 0.5
    assert sum(chances) <= 1 + 1e-9


def test_it_can_be_kept_and_taken_up_again() -> None:
    calibration = Calibration()
    for right in (1, 2, 1, 1, 2, 2, 2):
        calibration.observe(said(0.7), History(), right)
    again = Calibration(*calibration.as_lists())
    assert again.calibrated(said(0.7), History()) == calibration.calibrated(said(0.7), History())
    assert again.observe(said(0.7), History(), 2) == calibration.observe(said(0.7), History(), 2)
    assert again.as_lists() == calibration.as_lists()
