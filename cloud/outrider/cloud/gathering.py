"""When to start a pass that is wanted: at once, or a little later, together with sessions whose guesses are about to
come. A pass costs nearly the same for one session as for many, so patient ones share it; eager ones never wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from outrider.cloud.session import Session

# Weight of the newest measurement in the running means.
NEWEST = 0.25
# A session is expected until so many times its usual time has passed.
PATIENCE = 1.5
# Shorter waits than this, in seconds, are none.
LEAST_S = 1e-6


@dataclass(slots=True)
class _Habit:
    """How long a session usually takes from a verdict to its next guesses, and when it had the last verdict."""

    turnaround_s: float | None = None
    answered_s: float | None = None

    def expected_s(self) -> float | None:
        """When its next guesses should be there; None if nothing is known or it is not its turn."""
        if self.turnaround_s is None or self.answered_s is None:
            return None
        return self.answered_s + PATIENCE * self.turnaround_s


class Gathering:
    """Holds passes up for at most as long as `gather_passes` of them take. All times are in seconds of one clock."""

    def __init__(self, gather_passes: float) -> None:
        self._gather_passes = gather_passes
        self._pass_s = 0.0
        self._habits: dict[Session, _Habit] = {}

    def on_ready(self, session: Session, now_s: float) -> None:
        """The session has got something to check, or credit."""
        # An edge may go on talking after its session has ended and been forgotten.
        habit = self._habits.get(session)
        if habit is not None and habit.answered_s is not None:
            habit.turnaround_s = _mean(habit.turnaround_s, now_s - habit.answered_s)
            habit.answered_s = None

    def on_pass(self, sessions: Iterable[Session], began_s: float, ended_s: float) -> None:
        """A pass over these has ended."""
        self._pass_s = _mean(self._pass_s or None, ended_s - began_s)
        for session in sessions:
            if not session.has_work:
                self._habits.setdefault(session, _Habit()).answered_s = ended_s

    def hold_s(self, wanting: Sequence[Session], others: Iterable[Session], now_s: float) -> float:
        """For how long a pass that the patient sessions `wanting` want should wait for guesses of `others`."""
        if not wanting:
            return 0.0
        waits_since_s = min(session.ready_since for session in wanting if session.ready_since is not None)
        deadline_s = waits_since_s + self._gather_passes * self._pass_s
        expected = (self._habits[session].expected_s() for session in others if session in self._habits)
        coming = [time_s for time_s in expected if time_s is not None and now_s < time_s]
        hold_s = min(deadline_s, max(coming, default=now_s)) - now_s
        return hold_s if hold_s > LEAST_S else 0.0

    def forget(self, session: Session) -> None:
        """The session has ended."""
        self._habits.pop(session, None)


def _mean(old: float | None, new: float) -> float:
    return new if old is None else (1 - NEWEST) * old + NEWEST * new
