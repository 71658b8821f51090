"""The intervals of an experiment: they hold the truth as often as they say, and see nothing where there is nothing.

Seeds are fixed. The stated odds are those of a false alarm under a fresh seed if the method were exactly right.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from outrider.edge.experiment_stats import Sample, compare, compare_shares, t_quantile

RUNS = 2000


def answers(generator: np.random.Generator, count: int, ms: float = 20.0) -> Sample:
    """Skewed lengths, a speed of its own for each answer, and longer answers faster: all that real ones do."""
    tokens = np.minimum(512, generator.geometric(1 / 80, count) + 1).astype(np.float64)
    own_speed = generator.lognormal(-(0.3**2) / 2, 0.3, count)
    return Sample(tokens * ms * own_speed * (1 + 20 / (tokens + 20)), tokens)


def true_value(ms: float) -> float:
    value = answers(np.random.default_rng(99), 2_000_000, ms).value
    assert value is not None
    return value


@pytest.mark.parametrize(("confidence", "allowed"), [(0.95, 0.02), (0.8, 0.037)])
def test_intervals_hold_the_true_ratio_and_difference_as_often_as_they_say(confidence: float, allowed: float) -> None:
    """80 answers against 40, 2000 times: 4.1 standard deviations, odds of a false alarm 4 in 100,000 each."""
    generator = np.random.default_rng(1)
    slow, fast = true_value(20.0), true_value(17.0)
    held_ratio = held_difference = 0
    for _ in range(RUNS):
        compared = compare(answers(generator, 80), answers(generator, 40, 17.0), confidence)
        assert compared is not None
        held_ratio += compared.ratio.low <= fast / slow <= compared.ratio.high
        held_difference += compared.difference.low <= fast - slow <= compared.difference.high
    assert held_ratio / RUNS == pytest.approx(confidence, abs=allowed)
    assert held_difference / RUNS == pytest.approx(confidence, abs=allowed)


def test_with_few_answers_intervals_are_not_too_short() -> None:
    """Seven against seven: at least 92% for 95%, 6 standard deviations below (odds below 1 in a million)."""
    generator = np.random.default_rng(2)
    truth = true_value(17.0) / true_value(20.0)
    held = 0
    for _ in range(RUNS):
        compared = compare(answers(generator, 7), answers(generator, 7, 17.0), 0.95)
        assert compared is not None
        held += compared.ratio.low <= truth <= compared.ratio.high
    assert held / RUNS >= 0.92


def test_two_equal_arms_are_told_apart_no_more_often_than_the_nominal_rate() -> None:
    """A/A with a share of 0.25: 5% of 2000, 4.1 standard deviations either way, odds 4 in 100,000."""
    generator = np.random.default_rng(3)
    found = 0
    for _ in range(RUNS):
        every = answers(generator, 200)
        to_b = generator.random(200) < 0.25
        compared = compare(
            Sample(every.parts[~to_b], every.wholes[~to_b]), Sample(every.parts[to_b], every.wholes[to_b]), 0.95
        )
        assert compared is not None
        found += compared.is_distinguishable
    assert found / RUNS == pytest.approx(0.05, abs=0.02)


def test_tokens_of_one_answer_are_not_independent_draws() -> None:
    """Cutting each answer into ten equal ones would shorten the interval to a third; the truth is not known better."""
    generator = np.random.default_rng(4)
    a, b = answers(generator, 50), answers(generator, 50)
    whole = compare(a, b, 0.95)
    cut_a, cut_b = (Sample(np.repeat(s.parts / 10, 10), np.repeat(s.wholes / 10, 10)) for s in (a, b))
    cut = compare(cut_a, cut_b, 0.95)
    assert whole is not None
    assert cut is not None
    assert whole.ratio.estimate == pytest.approx(cut.ratio.estimate)
    assert whole.ratio.error == pytest.approx(cut.ratio.error * math.sqrt(10), rel=0.05)


def test_as_many_more_answers_as_said_show_the_difference_four_times_in_five() -> None:
    """300 experiments of the size that was said: 0.8 within 0.1, 4.3 standard deviations, odds 2 in 100,000."""
    generator = np.random.default_rng(5)
    ratio = true_value(18.5) / true_value(20.0)
    # Of many small experiments one that saw about the true difference.
    compared = None
    while compared is None or abs(compared.ratio.estimate / ratio - 1) > 0.002:
        compared = compare(answers(generator, 40), answers(generator, 40, 18.5), 0.95)
        assert compared is not None
    more = compared.more_answers()
    assert more is not None
    assert more > 0
    each = (80 + more) // 2
    found = 0
    for _ in range(300):
        larger = compare(answers(generator, each), answers(generator, each, 18.5), 0.95)
        assert larger is not None
        found += larger.is_distinguishable
        assert not larger.is_distinguishable or larger.more_answers() == 0
    assert found / 300 == pytest.approx(0.8, abs=0.1)


def test_arms_that_are_equal_in_every_answer_need_no_number_of_answers() -> None:
    a, b = (Sample(np.full(count, 0.3), np.full(count, 0.7)) for count in (5, 13))
    compared = compare(a, b, 0.95)
    assert compared is not None
    assert (compared.ratio.low, compared.ratio.high) == pytest.approx((1.0, 1.0), abs=1e-12)
    assert not compared.is_distinguishable
    assert compared.more_answers() is None


@pytest.mark.parametrize("count", [0, 1])
def test_there_is_no_interval_with_fewer_than_two_answers_in_an_arm(count: int) -> None:
    few, enough = Sample(np.ones(count), np.ones(count)), Sample(np.array([1.0, 2.0]), np.ones(2))
    assert compare(few, enough, 0.95) is None
    assert compare(enough, few, 0.95) is None
    assert compare(enough, enough, 0.95) is not None


def test_there_is_no_interval_where_one_answer_alone_has_a_part() -> None:
    """Without it the metric is 0, which has no logarithm."""
    one, enough = Sample(np.array([0.0, 3.0, 0.0]), np.ones(3)), Sample(np.array([1.0, 2.0]), np.ones(2))
    assert compare(one, enough, 0.95) is None
    assert compare(enough, one, 0.95) is None


def test_two_answers_that_could_not_differ_more_overflow_nothing() -> None:
    wild = Sample(np.array([1e-3, 1e9]), np.ones(2))
    compared = compare(wild, wild, 0.9999)
    assert compared is not None
    assert math.isfinite(compared.ratio.high)


@pytest.mark.parametrize(
    ("probability", "degrees", "expected"),
    [
        (0.975, 1, 12.706), (0.975, 2, 4.303), (0.975, 5, 2.571), (0.95, 10, 1.812), (0.995, 30, 2.750),
        (0.975, 100, 1.984), (0.975, 5000, 1.960), (0.5, 4, 0.0),
    ],
)  # fmt: skip
def test_quantiles_of_students_t_are_those_of_the_tables(probability: float, degrees: float, expected: float) -> None:
    assert t_quantile(probability, degrees) == pytest.approx(expected, abs=6e-4)


def test_the_interval_for_a_difference_of_shares_is_newcombes() -> None:
    """His table II, method 10: 56 of 70 against 48 of 80, and 0 of 10 against 0 of 20, where others have no length."""
    interval = compare_shares(48, 80, 56, 70, 0.95)
    assert interval is not None
    assert (interval.estimate, interval.low, interval.high) == pytest.approx((0.2, 0.0524, 0.3339), abs=1e-4)
    nothing = compare_shares(0, 20, 0, 10, 0.95)
    assert nothing is not None
    assert (nothing.low, nothing.high) == pytest.approx((-0.1611, 0.2775), abs=1e-4)
    assert compare_shares(0, 0, 0, 10, 0.95) is None
