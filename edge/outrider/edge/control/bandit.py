"""Finds out by trying which limits a drafting policy does best with. Each limit is a bandit of its own, whose arms are
scored by ratios of sums: tokens committed over milliseconds taken, in the stretches of answers that were drafted so.

The policy's own settings stand until another arm is better by more than chance would explain, and a few stretches go to
arms that are not the best one: links, verifiers and texts change. Only so many stretches of an arm count, the newest.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, field_validator

from outrider.edge.control.row_price import RowPrice

# Arms of each limit; the first is what the policy does by itself.
PATHS: tuple[int | None, ...] = (None, 6, 12)
CHILDREN: tuple[int | None, ...] = (None, 1, 5)
TEMPERATURES: tuple[float | None, ...] = (None, 0.8, 1.2)
# Stretches of an arm that count, and how many it takes to judge it.
COUNTED, ENOUGH = 40, 4
# An arm has to be ahead by so many standard errors to be taken.
CLEARLY = 1.5
# In a file: JSON knows no larger whole numbers.
MOST_PULLS = (1 << 53) - 1
# Share of stretches that try another arm that may be the best one: at first, and at least; and of those that try any.
FIRST_SHARE, LEAST_SHARE, HOPELESS_SHARE = 0.3, 0.04, 0.01


@dataclass(frozen=True, slots=True)
class Arm:
    """Limits of a stretch: longest path, children of a node, draft temperature; None is the policy's own."""

    path: int | None = None
    children: int | None = None
    temperature: float | None = None


@dataclass(frozen=True, slots=True)
class _Pull:
    """The arms of one stretch, by their numbers."""

    path: int
    children: int
    temperature: int


class Bandit:
    """What was found so far. It outlives answers, and several may pull at the same time. `price` is what rows cost at
    the verifier lately, for every policy that heeds it; it is not kept.
    """

    def __init__(self) -> None:
        self.price = RowPrice()
        self._limits = (_Limit(len(PATHS)), _Limit(len(CHILDREN)), _Limit(len(TEMPERATURES)))
        self._pulls = 0

    def pull(self) -> tuple[Arm, _Pull]:
        """How to draft the next stretch, and what to credit it to. At most one limit is not the best one."""
        self._pulls += 1
        dice = random.Random(self._pulls)
        numbers = [limit.best() for limit in self._limits]
        others = [(i, n) for i, limit in enumerate(self._limits) for n in range(limit.arms) if n != numbers[i]]
        hopeful = [(i, n) for i, n in others if self._limits[i].may_be_best(n)]
        chance, share = dice.random(), FIRST_SHARE / math.sqrt(1 + self._pulls / 10)
        if chance < HOPELESS_SHARE:
            tried, number = dice.choice(others)
            numbers[tried] = number
        elif hopeful and chance < max(LEAST_SHARE, share):
            tried, number = dice.choice(hopeful)
            numbers[tried] = number
        pull = _Pull(*numbers)
        return Arm(PATHS[pull.path], CHILDREN[pull.children], TEMPERATURES[pull.temperature]), pull

    def credit(self, pull: _Pull, tokens: int, milliseconds: float) -> None:
        """A stretch drafted so committed `tokens` in that time."""
        for limit, number in zip(self._limits, (pull.path, pull.children, pull.temperature), strict=True):
            limit.credit(number, tokens, milliseconds)

    @property
    def best(self) -> Arm:
        """What does best so far."""
        path, children, temperature = (limit.best() for limit in self._limits)
        return Arm(PATHS[path], CHILDREN[children], TEMPERATURES[temperature])

    def kept(self) -> KeptBandit:
        """What was found, to be kept."""
        return KeptBandit(pulls=min(self._pulls, MOST_PULLS), limits=[limit.as_lists() for limit in self._limits])

    @classmethod
    def of(cls, kept: KeptBandit) -> Bandit:
        """One that goes on from there."""
        bandit = cls()
        bandit._pulls = kept.pulls
        for limit, arms in zip(bandit._limits, kept.limits, strict=True):
            for number, stretches in enumerate(arms):
                for tokens, milliseconds in stretches:
                    limit.credit(number, tokens, milliseconds)
        return bandit


class _Limit:
    """The stretches of each arm of one limit: tokens and milliseconds."""

    def __init__(self, arms: int) -> None:
        self._stretches: list[deque[tuple[int, float]]] = [deque(maxlen=COUNTED) for _ in range(arms)]

    @property
    def arms(self) -> int:
        """How many there are."""
        return len(self._stretches)

    def credit(self, number: int, tokens: int, milliseconds: float) -> None:
        """Count a stretch of that arm."""
        if milliseconds > 0:
            self._stretches[number].append((tokens, milliseconds))

    def best(self) -> int:
        """The fastest of those that are clearly faster than the policy's own, or that one, number 0."""
        own, own_error = _rate(self._stretches[0])
        best, best_rate = 0, own
        for number, stretches in enumerate(self._stretches[1:], start=1):
            rate, error = _rate(stretches)
            lead = CLEARLY * math.hypot(error, own_error)
            if len(stretches) >= ENOUGH and rate > own + lead and rate > best_rate:
                best, best_rate = number, rate
        return best

    def may_be_best(self, number: int) -> bool:
        """Whether that arm may yet turn out to be faster than the one that stands."""
        standing, standing_error = _rate(self._stretches[self.best()])
        rate, error = _rate(self._stretches[number])
        return len(self._stretches[number]) < ENOUGH or rate + CLEARLY * math.hypot(error, standing_error) > standing

    def as_lists(self) -> list[list[tuple[int, float]]]:
        """To be kept."""
        return [list(stretches) for stretches in self._stretches]


def _rate(stretches: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """Tokens a millisecond as a ratio of sums, and its standard error (the usual one of ratio estimates)."""
    count = len(stretches)
    if count < 2:
        return 0.0, math.inf
    milliseconds = sum(time for _, time in stretches)
    rate = sum(tokens for tokens, _ in stretches) / milliseconds
    squares = sum((tokens - rate * time) ** 2 for tokens, time in stretches)
    return rate, math.sqrt(squares * count / (count - 1)) / milliseconds


_Stretch = tuple[Annotated[int, Field(ge=0, lt=1 << 31)], Annotated[float, Field(gt=0, lt=1e12)]]


class KeptBandit(BaseModel):
    """The stretches of each arm of each limit, newest last."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    pulls: Annotated[int, Field(ge=0, le=MOST_PULLS)]
    limits: list[list[list[_Stretch]]]

    @field_validator("limits")
    @classmethod
    def _has_these_arms(cls, limits: list[list[list[_Stretch]]]) -> list[list[list[_Stretch]]]:
        if [len(arms) for arms in limits] != [len(PATHS), len(CHILDREN), len(TEMPERATURES)]:
            raise ValueError("other arms than this version has")
        return limits
