"""The rule of thumb that a draft model should have a tenth of its target's size, put to the test."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from outrider.harness.simulation.planning import LEAST_GAIN

WANTED_RATIO = 10.0
# Farther from a tenth than this, either way, and the rule's choice is only the nearest there is.
NEAR_FACTOR = 2.0


@dataclass(frozen=True, slots=True)
class Contender:
    """A candidate as the rule and the clock see it. Ratios say how many times bigger the target is; None: unknown."""

    name: str
    parameter_ratio: float | None
    file_ratio: float | None
    ms_per_token: float

    @property
    def ratio(self) -> float | None:
        """By weights where their number is known, which is what the rule speaks of, else by file."""
        return self.file_ratio if self.parameter_ratio is None else self.parameter_ratio


@dataclass(frozen=True, slots=True)
class Verdict:
    """`pick` is what the rule takes (None: no sizes are known), `fastest` what is; `slower_by` how much longer a token
    takes with the pick (0.12: 12 %). `held` is None where the rule had nothing to choose from, or nothing near a tenth:
    that the best of a bad lot is fastest says nothing of the rule.
    """

    pick: Contender | None
    fastest: Contender
    slower_by: float | None
    held: bool | None
    streaming_ms: float
    is_alone: bool = False

    @property
    def is_near(self) -> bool:
        """Whether the pick is anything like a tenth."""
        return self.pick is not None and _is_near(self.pick.ratio)

    @property
    def sentence(self) -> str:
        """All of it in words."""
        return f"{self._about_the_rule()} {self._about_streaming()}".strip()

    def _about_the_rule(self) -> str:
        fastest = f"{self.fastest.name} is fastest here with {self.fastest.ms_per_token:.1f} ms a token"
        if self.pick is None:
            return f"The 1:10 rule picks none, as the models' sizes are not known; {fastest}."
        nearest = "" if self.is_near else ", the nearest there is"
        picked = f"The 1:10 rule would pick {self.pick.name} (1:{self.pick.ratio:.1f}{nearest})"
        if self.is_alone:
            return f"{picked}, the only one that can draft, so the rule is not put to the test."
        slower = f"its choice takes {self.slower_by:.0%} longer"
        if self.held is None:
            outcome = f"{fastest}, {slower}"
            if self.pick == self.fastest:
                outcome = f"it is fastest here with {self.fastest.ms_per_token:.1f} ms a token"
            return f"{picked}; {outcome}. As none is near a tenth, this does not put the rule to the test."
        if self.pick == self.fastest:
            return f"{picked}, and it is fastest here with {self.fastest.ms_per_token:.1f} ms a token: the rule held."
        if self.held:
            return f"{picked}; {fastest}, but {slower}, which is no difference: the rule held."
        return f"{picked}; {fastest}: the rule did not hold, {slower}."

    def _about_streaming(self) -> str:
        if self.streaming_ms / self.fastest.ms_per_token >= LEAST_GAIN:
            return ""
        return f"None is worth its drafting: plain streaming takes {self.streaming_ms:.1f} ms."


def judge(contenders: Sequence[Contender], streaming_ms: float) -> Verdict:
    """The rule's choice among `contenders`, of which there is at least one, beside the fastest."""
    fastest = min(contenders, key=lambda contender: contender.ms_per_token)
    known = [contender for contender in contenders if contender.ratio is not None]
    if not known:
        return Verdict(None, fastest, None, None, streaming_ms)
    # Quantisations of one model have the same weights: then their files decide.
    pick = min(known, key=lambda contender: (_distance(contender.ratio), _distance(contender.file_ratio)))
    slower_by = pick.ms_per_token / fastest.ms_per_token - 1
    is_alone = len(contenders) == 1
    tested = not is_alone and _is_near(pick.ratio)
    held = slower_by < LEAST_GAIN - 1 if tested else None
    return Verdict(pick, fastest, slower_by, held, streaming_ms, is_alone)


def _is_near(ratio: float | None) -> bool:
    return _distance(ratio) <= math.log(NEAR_FACTOR)


def _distance(ratio: float | None) -> float:
    """From a tenth, on a scale where half and double are equally far."""
    return math.inf if not ratio else abs(math.log(ratio / WANTED_RATIO))
