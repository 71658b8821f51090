"""The temperature of the drafter's distribution, over that of the answer: with 1.2 it is flatter than the target's own
options make it, below 1 sharper. What to set is found out from positions that the target has answered.

As both sides add the same noise, another temperature need not be drawn again: a proposal's score is ln q + noise, so
the noise is known, and with it the guess at any temperature.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

from outrider.edge.drafters.base import NORMALISED, Proposal
from outrider.shared.errors import OutriderError, Reason

GRID = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.35, 1.5)
LEAST, MOST = 0.25, 4.0
AUTO, KL = "auto", "kl"
# Share of the past that a position leaves, so the last two hundred or so count.
KEPT = 0.995
# So many guesses more must have been right than at the present temperature before it is left.
LEAD = 1.5
# The original article's rule: below the first number up, above the second down, by that share; looked at again after so
# many positions.
KL_LOW, KL_HIGH, KL_STEP, KL_WINDOW = 0.05, 0.15, 0.05, 20


def reheated(proposals: Sequence[Proposal], temperature: float) -> list[Proposal]:
    """The proposals as they would be at `temperature`, best first. Those the target's options rule out (q is 0) stay
    behind the others.
    """
    inside = [proposal for proposal in proposals if proposal.q > 0]
    if temperature == 1.0 or not inside:
        return list(proposals)
    scores = {p.token: _score(p, temperature) for p in inside}
    best = max(scores.values())
    weights = {p.token: _power(p.q, temperature) for p in inside}
    # The rest of the vocabulary is left out of the sum: what it weighs at another temperature is not known here.
    total = sum(weights.values()) / min(1.0, sum(p.q for p in inside))
    ordered = sorted(inside, key=lambda p: -scores[p.token])
    distances = [best - scores[p.token] for p in ordered]
    qs = [weights[p.token] / total for p in ordered]
    outside = [proposal for proposal in proposals if proposal.q <= 0]
    lead = proposals[0].probability
    distances += [abs(math.log(max(p.probability, 1e-12) / lead)) for p in outside]
    normaliser = sum(math.exp(-distance) for distance in distances[:NORMALISED])
    tokens = [p.token for p in (*ordered, *outside)]
    return [
        Proposal(token, math.exp(-distance) / normaliser, q)
        for token, distance, q in zip(tokens, distances, [*qs, *([0.0] * len(outside))], strict=True)
    ]


def first_choice(proposals: Sequence[Proposal], temperature: float) -> int:
    """The token that would be guessed first at `temperature`."""
    best = proposals[0]
    if temperature != 1.0:
        inside = [proposal for proposal in proposals if proposal.q > 0]
        best = max(inside, key=lambda p: _score(p, temperature), default=best)
    return best.token


class DraftTemperature(ABC):
    """A way to set it. `value` is what to draft with now."""

    value: float = 1.0

    @abstractmethod
    def observe(self, proposals: Sequence[Proposal], chosen: int) -> None:
        """The target chose `chosen` where the drafter had proposed these, at temperature 1, best first."""


class FixedTemperature(DraftTemperature):
    """Always the same."""

    def __init__(self, value: float) -> None:
        self.value = value

    def observe(self, proposals: Sequence[Proposal], chosen: int) -> None:
        """See `DraftTemperature.observe`."""


class TunedTemperature(DraftTemperature):
    """That value of a grid at which most guesses would have been right lately."""

    def __init__(self) -> None:
        self._right = [0.0] * len(GRID)

    def observe(self, proposals: Sequence[Proposal], chosen: int) -> None:
        """See `DraftTemperature.observe`."""
        # Where no temperature of the grid would have guessed otherwise, nothing is to be learned.
        picks = [first_choice(proposals, temperature) for temperature in GRID]
        if all(pick == picks[0] for pick in picks):
            return
        self._right = [KEPT * right + (pick == chosen) for right, pick in zip(self._right, picks, strict=True)]
        best = max(self._right)
        if best > self._right[GRID.index(self.value)] + LEAD:
            # Of equals the one nearest to the drafter's own.
            self.value = min(
                (t for t, right in zip(GRID, self._right, strict=True) if right == best), key=lambda t: abs(math.log(t))
            )


class KlTemperature(DraftTemperature):
    """The original article's rule, to compare with: up 5 % while draft and target differ by less than 0.05 nat, down
    5 % above 0.15.

    The target's distribution does not travel, so the divergence is estimated from its choices: how much less likely
    than they were expected to be the drafter found them, -ln q(chosen) - H(q), on average over `KL_WINDOW` positions.
    """

    def __init__(self) -> None:
        self._excess: list[float] = []

    def observe(self, proposals: Sequence[Proposal], chosen: int) -> None:
        """See `DraftTemperature.observe`."""
        heated = reheated(proposals, self.value)
        known = [p.q for p in heated if p.q > 0]
        # What is not among the proposals shares what they leave.
        rest = max(1e-6, 1.0 - sum(known))
        q = next((p.q for p in heated if p.token == chosen and p.q > 0), rest)
        entropy = -sum(share * math.log(share) for share in (*known, rest))
        self._excess.append(-math.log(q) - entropy)
        if len(self._excess) < KL_WINDOW:
            return
        divergence = sum(self._excess) / len(self._excess)
        self._excess.clear()
        if divergence < KL_LOW:
            self.value = min(MOST, self.value * (1 + KL_STEP))
        elif divergence > KL_HIGH:
            self.value = max(LEAST, self.value * (1 - KL_STEP))


def parse_draft_temperature(text: str) -> float | str:
    """`auto`, `kl` or a number from `LEAST` to `MOST`; raises USAGE."""
    if text in (AUTO, KL):
        return text
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not LEAST <= value <= MOST:
        raise OutriderError(
            Reason.USAGE, f"--draft-temperature {text!r}: expected {AUTO}, {KL} or a number from {LEAST} to {MOST}."
        )
    return value


def make_draft_temperature(choice: float | str) -> DraftTemperature:
    """The way that `parse_draft_temperature` found."""
    if isinstance(choice, float):
        return FixedTemperature(choice)
    return TunedTemperature() if choice == AUTO else KlTemperature()


def _score(proposal: Proposal, temperature: float) -> float:
    """Score at `temperature`, up to a constant: ln q changes, the noise (the rest) stays."""
    log_q = math.log(proposal.q)
    return log_q / temperature + math.log(max(proposal.probability, 1e-12)) - log_q


def _power(q: float, temperature: float) -> float:
    return float(q ** (1.0 / temperature))
