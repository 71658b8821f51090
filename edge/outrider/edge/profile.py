"""Where the time of one answer went: takes in what happened when, and splits the time into parts that exclude each
other. It knows no clock: all times are given to it, in seconds of the event loop's clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Split:
    """Seconds of one answer or of its end. The first six exclude each other and add up to the whole: the device drafts
    and nothing is in flight; it drafts and something is; it waits for a pass, in the verifier's queue, for the link;
    nothing of all that. `link_total_s` is the link's part while the device drafts as well as while it waits.
    """

    draft_only_s: float = 0.0
    draft_and_wait_s: float = 0.0
    pass_only_s: float = 0.0
    queue_only_s: float = 0.0
    link_only_s: float = 0.0
    idle_s: float = 0.0
    link_total_s: float = 0.0

    @property
    def whole_s(self) -> float:
        """The six together."""
        waits_s = self.draft_and_wait_s + self.pass_only_s + self.queue_only_s + self.link_only_s
        return self.draft_only_s + waits_s + self.idle_s


class _Part(IntEnum):
    """What can go on at a time. Of a pass, the queue and the link the first one counts."""

    PASS = 0
    QUEUE = 1
    LINK = 2
    DRAFT = 3


_WAITS = (_Part.PASS, _Part.QUEUE, _Part.LINK)


@dataclass(frozen=True, slots=True)
class _Verdict:
    """A commit: when it came, and how long its pass took and waited."""

    at_s: float
    pass_s: float
    queue_s: float


@dataclass(slots=True)
class _Flight:
    """From when on something is in flight without a gap, and the verdicts that have come of it."""

    since_s: float
    verdicts: list[_Verdict] = field(default_factory=list)


class Profile:
    """Feed it in the order in which things happen: `begin`, the `on_...` methods, `end`.

    A commit says how long its pass took and waited, not when. While something is in flight, passes and their queues are
    placed one after the other and as late as the commits allow: a commit that comes late costs nothing while the
    verifier goes on. What is left before the first pass is the link's, and one half of it is moved to the end.
    """

    def __init__(self) -> None:
        self._began_s = self._ended_s = 0.0
        self._opened_s: float | None = None
        self._first_commit_s: float | None = None
        self._last_commit_s = 0.0
        self._flight: _Flight | None = None
        self._intervals: list[tuple[float, float, _Part]] = []
        self._steps_s: list[float] = []
        self._passes_s: list[float] = []
        self._first_queue_s = 0.0
        self._trip_s = 0.0

    def begin(self, at_s: float) -> None:
        """Open goes out."""
        self._began_s = self._ended_s = self._last_commit_s = at_s

    def on_opened(self, at_s: float) -> None:
        """The verifier has said Opened: how long that took is what a round trip takes, at most."""
        self._opened_s = at_s

    def on_sent(self, at_s: float) -> None:
        """A Grow message goes out."""
        if self._flight is None:
            self._flight = _Flight(at_s)

    def on_drafted(self, began_s: float, ended_s: float) -> None:
        """The drafter took a step, whole or not."""
        self._steps_s.append(ended_s - began_s)
        self._add(_Part.DRAFT, began_s, ended_s)

    def on_commit(self, at_s: float, pass_s: float, queue_s: float, *, in_flight: bool) -> None:
        """A commit has come; `in_flight` says whether another will follow without a further message from here."""
        self._passes_s.append(pass_s)
        if self._flight is None:
            # A verifier may say what it was not asked for.
            self._flight = _Flight(self._last_commit_s)
        verdict = _Verdict(at_s, pass_s, queue_s)
        if self._first_commit_s is None:
            self._first_commit_s, self._first_queue_s = at_s, queue_s
            verdict = self._after_prompt(verdict, self._flight.since_s)
        self._flight.verdicts.append(verdict)
        self._last_commit_s = at_s
        if not in_flight:
            self._place(self._flight, at_s)
            self._flight = None

    def end(self, at_s: float) -> None:
        """The answer has ended, complete or not. A verdict that is still in flight was waited for on the link."""
        self._ended_s = at_s
        if self._first_commit_s is None:
            self._add(_Part.LINK, self._began_s, at_s)
        elif self._flight is not None:
            self._place(self._flight, at_s)

    @property
    def wall_s(self) -> float:
        """From Open sent to the end."""
        return self._ended_s - self._began_s

    @property
    def step_s(self) -> float | None:
        """Mean of a draft step. The first one reads the prompt, and counts only if it is alone."""
        return _mean_of_later(self._steps_s)

    @property
    def steps(self) -> int:
        """Number of draft steps."""
        return len(self._steps_s)

    @property
    def pass_s(self) -> float | None:
        """Mean of a pass. The first commit's holds the prompt's passes, and counts only if it is alone."""
        return _mean_of_later(self._passes_s)

    @property
    def prompt_s(self) -> float:
        """What the first token takes however the answer is made: a round trip, and passes over the prompt."""
        if not self._passes_s:
            return 0.0
        return self._trip_s + max(0.0, self._passes_s[0] + self._first_queue_s - (self.pass_s or 0.0))

    def split(self) -> Split:
        """The parts of the whole answer; call it after `end`."""
        return self._split(self._began_s, self._ended_s)

    def split_after_first(self) -> Split:
        """The parts from the first commit on; call it after `end`."""
        return self._split(self._ended_s if self._first_commit_s is None else self._first_commit_s, self._ended_s)

    def _split(self, began_s: float, ended_s: float) -> Split:
        clipped = [(max(first, began_s), min(last, ended_s), part) for first, last, part in self._intervals]
        changes = [(began_s, 0, _Part.LINK), (ended_s, 0, _Part.LINK)]
        for first_s, last_s, part in clipped:
            if first_s < last_s:
                changes += [(first_s, 1, part), (last_s, -1, part)]
        changes.sort()
        running = dict.fromkeys(_Part, 0)
        alone = dict.fromkeys(_Part, 0.0)
        both_s = idle_s = link_total_s = 0.0
        for (at_s, change, part), (next_s, _, _) in pairwise(changes):
            running[part] += change
            took_s = next_s - at_s
            waits_for = next((wait for wait in _WAITS if running[wait]), None)
            if waits_for is _Part.LINK:
                link_total_s += took_s
            if running[_Part.DRAFT] and waits_for is not None:
                both_s += took_s
            elif running[_Part.DRAFT]:
                alone[_Part.DRAFT] += took_s
            elif waits_for is not None:
                alone[waits_for] += took_s
            else:
                idle_s += took_s
        return Split(
            draft_only_s=alone[_Part.DRAFT],
            draft_and_wait_s=both_s,
            pass_only_s=alone[_Part.PASS],
            queue_only_s=alone[_Part.QUEUE],
            link_only_s=alone[_Part.LINK],
            idle_s=idle_s,
            link_total_s=link_total_s,
        )

    def _after_prompt(self, verdict: _Verdict, sent_s: float) -> _Verdict:
        """The first commit answers Open as well, with the prompt's passes, and the Grow that went out at `sent_s`. What
        the time after the Grow's arrival has no room for was done before; returns the rest.
        """
        busy_s = verdict.pass_s + verdict.queue_s
        slack_s = max(0.0, verdict.at_s - self._began_s - busy_s)
        self._trip_s = slack_s if self._opened_s is None else min(slack_s, self._opened_s - self._began_s)
        later_s = min(busy_s, max(0.0, verdict.at_s - sent_s - self._trip_s))
        later = later_s / busy_s if busy_s else 1.0
        arrived_s = self._began_s + self._trip_s / 2
        started_s = arrived_s + (1 - later) * verdict.queue_s
        self._add(_Part.LINK, self._began_s, arrived_s)
        self._add(_Part.QUEUE, arrived_s, started_s)
        self._add(_Part.PASS, started_s, started_s + (1 - later) * verdict.pass_s)
        return _Verdict(verdict.at_s, later * verdict.pass_s, later * verdict.queue_s)

    def _place(self, flight: _Flight, ended_s: float) -> None:
        self._add(_Part.LINK, flight.since_s, ended_s)
        done: list[tuple[float, _Verdict]] = []
        latest_s = ended_s
        for verdict in reversed(flight.verdicts):
            latest_s = min(latest_s, verdict.at_s)
            done.append((latest_s, verdict))
            latest_s -= verdict.pass_s + verdict.queue_s
        way_s = max(0.0, latest_s - flight.since_s) / 2
        for at_s, verdict in done:
            left_s = at_s - way_s
            started_s = left_s - verdict.pass_s
            self._add(_Part.PASS, max(flight.since_s, started_s), left_s)
            self._add(_Part.QUEUE, max(flight.since_s, started_s - verdict.queue_s), started_s)

    def _add(self, part: _Part, first_s: float, last_s: float) -> None:
        if first_s < last_s:
            self._intervals.append((first_s, last_s, part))


def _mean_of_later(values: list[float]) -> float | None:
    later = values[1:] or values
    return sum(later) / len(later) if later else None
