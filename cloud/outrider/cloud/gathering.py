"""When to start a pass that is wanted: at once, or a little later, together with sessions whose guesses are about to
come. A pass costs nearly the same for one session as for many, so patient ones share it; eager ones never wait.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable
from dataclasses import dataclass

from outrider.cloud.session import Session

# Weight of the newest measurement in the running means.
NEWEST = 0.25
# A session is expected until so many times its usual time has passed.
PATIENCE = 1.5
# Shorter waits than this, in seconds, are none.
LEAST_S = 1e-6
# What is expected no more is swept out when it is more than this share of the whole, and not only a few.
MOST_STALE, FEW = 0.5, 16


@dataclass(slots=True)
class _Habit:
    """How long a session usually takes from a verdict to its next guesses, when it had the last verdict, and when its
    next guesses should be there: None if nothing is known or it is not its turn.
    """

    turnaround_s: float | None = None
    answered_s: float | None = None
    expected_s: float | None = None


class Gathering:
    """Holds passes up for at most as long as `gather_passes` of them take. All times are in seconds of one clock."""

    def __init__(self, gather_passes: float) -> None:
        self._gather_passes = gather_passes
        self._pass_s = 0.0
        self._habits: dict[Session, _Habit] = {}
        # Latest first: (-expected_s, number, session). What a habit no longer says is passed over.
        self._expected: list[tuple[float, int, Session]] = []
        self._numbers = itertools.count()

    def on_word(self, session: Session, now_s: float) -> None:
        """The edge has spoken: with guesses or credit, if they did not come too late."""
        # An edge may go on talking after its session has ended and been forgotten.
        habit = self._habits.get(session)
        if habit is not None and habit.answered_s is not None:
            habit.turnaround_s = _mean(habit.turnaround_s, now_s - habit.answered_s)
            habit.answered_s = habit.expected_s = None

    def on_pass(self, answered: Iterable[Session], began_s: float, ended_s: float) -> None:
        """A pass has ended; it was the turn of `answered` to speak then."""
        self._pass_s = _mean(self._pass_s or None, ended_s - began_s)
        for session in answered:
            habit = self._habits.setdefault(session, _Habit())
            habit.answered_s = ended_s
            if habit.turnaround_s is not None:
                habit.expected_s = ended_s + PATIENCE * habit.turnaround_s
                heapq.heappush(self._expected, (-habit.expected_s, next(self._numbers), session))
        if len(self._expected) * MOST_STALE > len(self._habits) + FEW:
            self._expected = [entry for entry in self._expected if self._is_expected(entry)]
            heapq.heapify(self._expected)

    def hold_s(self, since_s: float, now_s: float) -> float:
        """For how long a pass that has been wanted since then, by patient sessions, should wait for others' guesses."""
        deadline_s = since_s + self._gather_passes * self._pass_s
        hold_s = min(deadline_s, self._last_expected_s(now_s)) - now_s
        return hold_s if hold_s > LEAST_S else 0.0

    def forget(self, session: Session) -> None:
        """The session has ended."""
        self._habits.pop(session, None)

    def _last_expected_s(self, now_s: float) -> float:
        """When all guesses that are about to come should be there: `now_s` if none are."""
        while self._expected:
            expected_s = -self._expected[0][0]
            if expected_s <= now_s:
                # So are all the others: nobody waits for who is late.
                self._expected.clear()
                break
            if self._is_expected(self._expected[0]):
                return expected_s
            heapq.heappop(self._expected)
        return now_s

    def _is_expected(self, entry: tuple[float, int, Session]) -> bool:
        session = entry[2]
        habit = self._habits.get(session)
        return habit is not None and habit.expected_s == -entry[0] and not session.finished


def _mean(old: float | None, new: float) -> float:
    return new if old is None else (1 - NEWEST) * old + NEWEST * new
