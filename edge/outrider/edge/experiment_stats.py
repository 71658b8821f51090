"""Confidence intervals for the arms of an experiment. The answer is the independent unit: tokens of one answer share
its prompt, its length and its moment, so they are never counted as if they were draws of their own.

A metric of an arm is a ratio of sums over answers (milliseconds over tokens). Its standard error is the delete-one
jackknife's, for the ratio of two arms on the logarithm of the metric, and the interval takes Student's t with Welch's
degrees of freedom. Sources: Efron and Stein 1981, Welch 1947; for shares Newcombe 1998, method 10.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

# "About N more answers" are enough to see a difference of that size four times in five.
POWER = 0.8
LEAST_ANSWERS = 2
# From here on Student's t is the normal distribution to four digits.
MANY_DEGREES = 1000.0
_LARGEST_LOG = 700.0
_ROUNDING = 1e-9
_ANGLES = np.linspace(-math.pi / 2, math.pi / 2, 8001)


@dataclass(frozen=True, slots=True)
class Sample:
    """A metric of one arm: the sum of `parts` over the sum of `wholes`, one of each an answer, none negative."""

    parts: NDArray[np.float64]
    wholes: NDArray[np.float64]

    @property
    def count(self) -> int:
        """Answers that have the metric."""
        return len(self.parts)

    @property
    def value(self) -> float | None:
        """The metric; None without an answer to tell it from."""
        whole = float(self.wholes.sum())
        return float(self.parts.sum()) / whole if whole > 0 else None

    def left_out(self) -> NDArray[np.float64] | None:
        """The metric without each answer in turn; None where that leaves nothing to tell it from."""
        parts, wholes = self.parts.sum() - self.parts, self.wholes.sum() - self.wholes
        enough = self.count >= LEAST_ANSWERS and parts.min() > 0 and wholes.min() > 0
        return parts / wholes if enough else None


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate, its confidence interval and its standard error (of the logarithm for a ratio)."""

    estimate: float
    low: float
    high: float
    error: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """Arm b against arm a in one metric: `ratio` is b / a, `difference` b - a in the metric's unit."""

    ratio: Interval
    difference: Interval
    answers: int

    @property
    def is_distinguishable(self) -> bool:
        """Whether the ratio's interval leaves out 1."""
        return not self.ratio.low - _ROUNDING <= 1.0 <= self.ratio.high + _ROUNDING

    def more_answers(self) -> int | None:
        """About how many more answers, split as so far, would tell a difference of the size seen from none; 0 if they
        do already, None if none is seen. Standard errors shrink with the root of the number of answers.
        """
        if self.is_distinguishable:
            return 0
        size = abs(math.log(self.ratio.estimate))
        if size <= _ROUNDING:
            return None
        reach = math.log(self.ratio.high / self.ratio.estimate)
        factor = ((reach + NormalDist().inv_cdf(POWER) * self.ratio.error) / size) ** 2
        return math.ceil((factor - 1) * self.answers)


def compare(a: Sample, b: Sample, confidence: float) -> Comparison | None:
    """Arm b against arm a; None where an arm has fewer than two answers with the metric."""
    left_a, left_b = a.left_out(), b.left_out()
    if left_a is None or left_b is None:
        return None
    value_a, value_b = a.value, b.value
    assert value_a and value_b, "what is left out leaves something"
    log_ratio = _difference(
        math.log(value_b) - math.log(value_a), _variance(np.log(left_a)), _variance(np.log(left_b)), a, b, confidence
    )
    ratio = Interval(_exp(log_ratio.estimate), _exp(log_ratio.low), _exp(log_ratio.high), log_ratio.error)
    difference = _difference(value_b - value_a, _variance(left_a), _variance(left_b), a, b, confidence)
    return Comparison(ratio, difference, a.count + b.count)


def _exp(logarithm: float) -> float:
    """The bounds of an interval from very few answers may reach past what a float holds."""
    return math.exp(min(logarithm, _LARGEST_LOG))


def _variance(left_out: NDArray[np.float64]) -> float:
    """The jackknife's variance of a statistic from its values without each answer."""
    count = len(left_out)
    return float((count - 1) / count * np.square(left_out - left_out.mean()).sum())


def _difference(
    estimate: float, variance_a: float, variance_b: float, a: Sample, b: Sample, confidence: float
) -> Interval:
    """Welch's interval for a difference of two independent estimates."""
    variance = variance_a + variance_b
    if variance <= 0.0:
        return Interval(estimate, estimate, estimate, 0.0)
    share_a, share_b = variance_a / variance, variance_b / variance
    degrees = 1.0 / (share_a**2 / (a.count - 1) + share_b**2 / (b.count - 1))
    error = math.sqrt(variance)
    reach = t_quantile((1 + confidence) / 2, degrees) * error
    return Interval(estimate, estimate - reach, estimate + reach, error)


def t_quantile(probability: float, degrees: float) -> float:
    """Quantile of Student's t distribution for degrees of freedom from 1 on, to about three digits.

    With t = sqrt(degrees) tan(angle) the density is cos(angle) ** (degrees - 1), which is summed up.
    """
    if degrees >= MANY_DEGREES:
        return NormalDist().inv_cdf(probability)
    density = np.cos(_ANGLES) ** (degrees - 1)
    cumulated = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])
    angle = float(np.interp(probability * cumulated[-1], cumulated, _ANGLES))
    return math.sqrt(degrees) * math.tan(angle)


def compare_shares(count_a: int, total_a: int, count_b: int, total_b: int, confidence: float) -> Interval | None:
    """The share of b minus the share of a, which may be 0 or 1; None without an answer in an arm."""
    if not total_a or not total_b:
        return None
    share_a, low_a, high_a = _wilson(count_a, total_a, confidence)
    share_b, low_b, high_b = _wilson(count_b, total_b, confidence)
    estimate = share_b - share_a
    low = estimate - math.hypot(share_b - low_b, high_a - share_a)
    high = estimate + math.hypot(high_b - share_b, share_a - low_a)
    error = math.sqrt(share_a * (1 - share_a) / total_a + share_b * (1 - share_b) / total_b)
    return Interval(estimate, low, high, error)


def _wilson(count: int, total: int, confidence: float) -> tuple[float, float, float]:
    """A share and Wilson's score interval for it."""
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    share = count / total
    middle = (share + z * z / (2 * total)) / (1 + z * z / total)
    reach = z / (1 + z * z / total) * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    return share, max(0.0, middle - reach), min(1.0, middle + reach)
