"""Counts and times of one answer, and the keys under which they are reported."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from outrider.edge.profile import Profile
from outrider.shared.convert import grow_payload_bytes
from outrider.shared.messages import Commit, Grow


@dataclass(slots=True)
class AnswerStats:
    """What happened during one answer. Times in seconds, sizes in bytes.

    `passes` counts target forwards that held rows of this answer, prefill left out: the verifier sends one commit
    for each. `streams` counts those that the answer took; more than one means that it was resumed. `walked` counts
    nodes that passes accepted. `rounds` counts Grow messages. `draft_error` says why drafting stopped before the answer
    was complete. `profile` knows when things happened; `link_s` and `seconds` come from it when the answer ends.
    """

    passes: int = 0
    streams: int = 1
    prefill_passes: int = 0
    drafted: int = 0
    walked: int = 0
    checked: int = 0
    accepted_histogram: Counter[int] = field(default_factory=Counter)
    rounds: int = 0
    grow_payload_bytes: int = 0
    uplink_bytes: int = 0
    downlink_bytes: int = 0
    open_bytes: int = 0
    reused_tokens: int = 0
    draft_s: float = 0.0
    pass_s: float = 0.0
    queue_s: float = 0.0
    link_s: float = 0.0
    seconds: float = 0.0
    ttft_s: float = 0.0
    draft_error: str = ""
    pace_notes: list[str] = field(default_factory=list)
    profile: Profile = field(default_factory=Profile, repr=False, compare=False)

    def on_sent(self, grow: Grow, at_s: float) -> None:
        """Count a Grow message that goes out at `at_s`."""
        self.profile.on_sent(at_s)
        self.rounds += 1
        self.drafted += len(grow.tokens)
        self.grow_payload_bytes += grow_payload_bytes(grow)

    def on_drafted(self, began_s: float, ended_s: float) -> None:
        """Count a step of the drafter."""
        self.profile.on_drafted(began_s, ended_s)
        self.draft_s += ended_s - began_s

    def on_commit(self, commit: Commit, accepted_count: int) -> None:
        """Count a commit of a pass that accepted `accepted_count` nodes."""
        self.passes += 1
        self.walked += accepted_count
        self.checked += commit.checked_count
        self.accepted_histogram[accepted_count] += 1
        self.pass_s += commit.pass_ns / 1e9
        self.queue_s += commit.queue_ns / 1e9

    def on_verdict(self, commit: Commit, at_s: float, *, in_flight: bool) -> None:
        """A commit has come at `at_s`; `in_flight` says whether another will follow without a message from here."""
        self.profile.on_commit(at_s, commit.pass_ns / 1e9, commit.queue_ns / 1e9, in_flight=in_flight)

    def on_end(self, at_s: float) -> None:
        """The answer has ended."""
        self.profile.end(at_s)
        self.link_s = self.profile.split().link_total_s
        self.seconds = self.profile.wall_s

    def report(self, token_count: int, drafted_count: int) -> dict[str, Any]:
        """The keys of the command-line contract; `token_count` tokens are in the answer as given out, and
        `drafted_count` of them are guesses that were sent.
        """
        most = max(self.accepted_histogram, default=0)
        return {
            "tokens": token_count,
            "passes": self.passes,
            "prefill_passes": self.prefill_passes,
            "tokens_per_pass": _ratio(token_count, self.passes),
            "drafted": self.drafted,
            "accepted": drafted_count,
            "walked": self.walked,
            "checked": self.checked,
            "acceptance_rate": _ratio(drafted_count, self.drafted),
            "alpha": _ratio(self.walked, self.checked),
            "accepted_histogram": [self.accepted_histogram[count] for count in range(most + 1)],
            "grow_payload_bytes": self.grow_payload_bytes,
            "uplink_bytes": self.uplink_bytes,
            "downlink_bytes": self.downlink_bytes,
            "rounds": self.rounds,
            "streams": self.streams,
            "open_bytes": self.open_bytes,
            "reused_tokens": self.reused_tokens,
            "draft_ms": _milliseconds(self.draft_s),
            "pass_ms": _milliseconds(self.pass_s),
            "queue_ms": _milliseconds(self.queue_s),
            "link_ms": _milliseconds(self.link_s),
            "seconds": round(self.seconds, 4),
            "ttft_ms": _milliseconds(self.ttft_s),
            "draft_error": self.draft_error or None,
            "pace_notes": self.pace_notes,
        }


def _ratio(part: int, whole: int) -> float:
    return round(part / whole, 4) if whole else 0.0


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 3)
