"""How often guesses of that confidence have been right: an online logistic regression from what a drafter says of its
first choice, and from how it has done lately, to the chance that the target chooses it.

It is fitted only where the text before the guess was right, which is up to the first rejection of a path; what
was guessed further down says nothing, as the target was never asked about it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from outrider.edge.drafters.base import Proposal

# Weights before anything has been seen: of the confidence's log-odds, of 1, of ln q, of level and trend of the answer's
# own history. Between what the three shipped sets of recordings of greedy and sampled answers lead to.
PRIOR = (0.9, 0.3, 0.3, 0.0, 0.0)
# How many answered positions of middling confidence they count as.
PRIOR_STRENGTH = 20.0
_PRIOR_PRECISION = PRIOR_STRENGTH / 4 * np.eye(len(PRIOR))
# Most log-odds, and least ln q, that are told apart.
LIMIT, LEAST_LOG_Q = 9.0, -10.0
# Share of a new position in the fast and in the slow mean of the history.
FAST, SLOW = 0.2, 0.05
# Share of what was learned that a position leaves.
KEPT = 0.9995


@dataclass(slots=True)
class History:
    """An answer's acceptance as a short time series: how much better than expected guesses have been, lately and over
    a longer while. Their difference is the trend.
    """

    fast: float = 0.0
    slow: float = 0.0

    def observe(self, right: bool, expected: float) -> None:
        """A guess that was `expected` to be right with that probability was, or was not."""
        surprise = right - expected
        self.fast += FAST * (surprise - self.fast)
        self.slow += SLOW * (surprise - self.slow)


class Calibration:
    """The regression of one drafter; it outlives answers."""

    def __init__(self, weights: Sequence[float] = PRIOR, precision: npt.ArrayLike | None = None) -> None:
        self._weights = np.array(weights, np.float64)
        self._precision = _PRIOR_PRECISION if precision is None else np.array(precision, np.float64)

    def calibrated(self, proposals: Sequence[Proposal], history: History) -> list[float]:
        """The chance of each proposal, in their order. The first one's is learned; the others share what it leaves as
        the drafter sees it. Where the first would fall behind, it is pooled with others: the drafter's order stays.
        """
        first = proposals[0].probability
        chance = _logistic(float(self._weights @ _features(proposals[0], history)))
        # There may be more proposals than likelihoods were normalised over: they share it all the same.
        others = sum(proposal.probability for proposal in proposals[1:])
        rest = (1.0 - chance) / max(1e-9, 1.0 - first, others)
        return _pooled([chance, *(proposal.probability * rest for proposal in proposals[1:])])

    def observe(self, proposals: Sequence[Proposal], history: History, chosen: int) -> float:
        """The target chose `chosen` where these were proposed, with the history as it was then: a Newton step on
        everything seen so far. Returns the chance that the first one would have been given.
        """
        features = _features(proposals[0], history)
        chance = _logistic(float(self._weights @ features))
        right = proposals[0].token == chosen
        seen = chance * (1 - chance) * np.outer(features, features)
        self._precision = KEPT * self._precision + seen + (1 - KEPT) * _PRIOR_PRECISION
        self._weights = self._weights + np.linalg.solve(self._precision, features * (right - chance))
        return chance

    def as_lists(self) -> tuple[list[float], list[list[float]]]:
        """Weights and precision, to be kept."""
        return self._weights.tolist(), self._precision.tolist()


def _pooled(chances: list[float]) -> list[float]:
    """Chances that do not rise: the first few share their mean, as far as that is needed."""
    count, total = 1, chances[0]
    while count < len(chances) and chances[count] > total / count:
        total += chances[count]
        count += 1
    # Those that the answer's options rule out come last, and may claim more than those before them.
    return [total / count] * count + list(accumulate(chances[count:], min, initial=total / count))[1:]


def _features(first: Proposal, history: History) -> npt.NDArray[np.float64]:
    odds = math.log(max(first.probability, 1e-9) / max(1.0 - first.probability, 1e-9))
    log_q = math.log(first.q) if first.q > 0 else LEAST_LOG_Q
    return np.array(
        (
            max(-LIMIT, min(LIMIT, odds)),
            1.0,
            max(LEAST_LOG_Q, log_q),
            history.fast,
            history.fast - history.slow,
        )
    )


def _logistic(odds: float) -> float:
    return 1.0 / (1.0 + math.exp(-max(-30.0, min(30.0, odds))))
