"""Shares follow who was right; a mixture is never far behind its best member."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.edge.guesses.ensemble import Ensemble, Opinion


def first(chances: dict[int, float]) -> int:
    return max(chances, key=lambda token: chances[token])


def test_a_good_drafter_is_not_outvoted_by_worse_ones_that_agree() -> None:
    ensemble, dice = Ensemble(), random.Random(4)
    right = 0
    for index in range(1000):
        # The good one is right four times of five, the others together two times of five; all are as sure.
        good = 1 if dice.random() < 0.8 else 2
        bad = 1 if dice.random() < 0.4 else 2
        said = [Opinion("a", {bad: 0.6, 3 - bad: 0.4}), Opinion("b", {bad: 0.6, 3 - bad: 0.4})]
        said.append(Opinion("good", {good: 0.6, 3 - good: 0.4}))
        right += index >= 200 and first(ensemble.mixed(said)) == 1
        ensemble.observe(said, 1)
    # 640 of 800 expected; the standard deviation is 11.
    assert right > 600


def test_the_share_of_who_is_right_grows() -> None:
    ensemble = Ensemble()
    said = [Opinion("right", {1: 0.8, 2: 0.2}), Opinion("wrong", {2: 0.8, 1: 0.2})]
    for _ in range(100):
        ensemble.observe(said, 1)
    shares = ensemble.shares()
    assert shares["right"] > 5 * shares["wrong"]
    assert first(ensemble.mixed(said)) == 1
    for _ in range(200):
        ensemble.observe(said, 2)
    shares = ensemble.shares()
    assert shares["wrong"] > shares["right"], "who was worse may become better"


def test_a_mixture_is_not_behind_its_best_member_and_ahead_where_they_complement_each_other() -> None:
    """Two drafters that are each sure on another half of the positions; log-likelihood of what is chosen."""
    ensemble, dice = Ensemble(), random.Random(1)
    scores = dict.fromkeys(("mixed", "a", "b"), 0.0)
    for index in range(2000):
        chosen = dice.choice((1, 2))
        other = 3 - chosen
        sure, unsure = {chosen: 0.9, other: 0.1}, {1: 0.5, 2: 0.5}
        a, b = (sure, unsure) if index % 2 else (unsure, sure)
        said = [Opinion("a", a), Opinion("b", b)]
        for name, chances in (("mixed", ensemble.mixed(said)), ("a", a), ("b", b)):
            scores[name] += math.log(chances[chosen])
        ensemble.observe(said, chosen)
    assert scores["mixed"] > max(scores["a"], scores["b"]) + 50


def test_one_that_speaks_of_its_own_token_only_leaves_the_rest_to_the_others() -> None:
    said = [Opinion("model", {1: 0.6, 2: 0.3}), Opinion("lookup", {3: 0.5}, partial=True)]
    mixed = Ensemble({"model": 0.5, "lookup": 0.5}).mixed(said)
    assert mixed[3] == pytest.approx(0.25)
    assert mixed[1] == pytest.approx(0.5 * 0.6 + 0.5 * 0.5 * 0.6)
    assert mixed[1] / mixed[2] == pytest.approx(2)


CHANCES = st.dictionaries(st.integers(0, 5), st.floats(0.001, 1), min_size=1, max_size=5).map(
    lambda weights: {token: weight / sum(weights.values()) for token, weight in weights.items()}
)


@given(st.lists(CHANCES, min_size=1, max_size=3), st.none() | st.tuples(st.integers(0, 5), st.floats(0.01, 1)))
def test_mixed_chances_are_probabilities(members: list[dict[int, float]], lookup: tuple[int, float] | None) -> None:
    said = [Opinion(str(index), chances) for index, chances in enumerate(members)]
    if lookup is not None:
        said.append(Opinion("lookup", {lookup[0]: lookup[1]}, partial=True))
    ensemble = Ensemble()
    for chosen in (0, 1, 9):
        mixed = ensemble.mixed(said)
        assert all(0 <= chance <= 1 + 1e-9 for chance in mixed.values())
        assert sum(mixed.values()) <= 1 + 1e-6
        ensemble.observe(said, chosen)
        assert all(0 < share < 10 for share in ensemble.shares().values())
