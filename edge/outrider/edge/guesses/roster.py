"""Whom to ask: several drafters guess better than the best of them, and take longer where they share a device. Others
are asked as long as what they add is worth the time that they take, and now and then to see whether it has become so.
"""

from __future__ import annotations

from collections.abc import Sequence

from outrider.edge.guesses.ensemble import Ensemble

# Steps that ask everybody before anything is decided, and steps from one with everybody to the next afterwards.
FIRST_STEPS, LOOK_AGAIN = 24, 64
# Positions that have to be answered before records tell anything.
ENOUGH = 30.0
# Share of the running mean of step times that a step leaves.
KEPT = 0.9


class Roster:
    """For the drafters of one agent; it outlives answers."""

    def __init__(self, ensemble: Ensemble) -> None:
        self._ensemble = ensemble
        self._steps = 0
        self._all_s: float | None = None
        self._one_s: float | None = None

    def asked(self, names: Sequence[str]) -> list[str]:
        """Those to ask in the next step."""
        if len(names) < 2:
            return list(names)
        self._steps += 1
        if self._steps <= FIRST_STEPS or self._ensemble.answered < ENOUGH or self._steps % LOOK_AGAIN == 0:
            return list(names)
        best = self._ensemble.best(names)
        # What one step over it alone takes is found out by doing it.
        if self._one_s is None or self._all_s is None:
            return [best]
        return list(names) if self._gain(best) >= self._all_s / self._one_s else [best]

    def observe(self, asked: Sequence[str], names: Sequence[str], seconds_a_text: float) -> None:
        """A step that asked these of `names` took so many seconds for each of its texts."""
        if len(asked) == len(names):
            self._all_s = _mean(self._all_s, seconds_a_text)
        else:
            self._one_s = _mean(self._one_s, seconds_a_text)

    def _gain(self, best: str) -> float:
        """How many times as long as with `best` alone guesses stay right in a row with all of them together."""
        return (1 - self._ensemble.rate(best)) / max(1e-3, 1 - self._ensemble.rate(None))


def _mean(old: float | None, new: float) -> float:
    return new if old is None else KEPT * old + (1 - KEPT) * new
