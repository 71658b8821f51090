"""Counts and times of one answer, and the keys under which they are reported."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from outrider.shared.convert import grow_payload_bytes
from outrider.shared.messages import Commit, Grow
from outrider.shared.token_tree import CommittedToken, Origin


@dataclass(slots=True)
class AnswerStats:
    """What happened during one answer. Times in seconds, sizes in bytes.

    `passes` counts target forwards that held rows of this answer, prefill left out: the verifier sends one commit
    for each. `rounds` counts Grow messages.
    """

    passes: int = 0
    drafted: int = 0
    accepted: int = 0
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

    def on_sent(self, grow: Grow) -> None:
        """Count a Grow message."""
        self.rounds += 1
        self.drafted += len(grow.tokens)
        self.grow_payload_bytes += grow_payload_bytes(grow)

    def on_commit(self, commit: Commit, tokens: list[CommittedToken], waited_s: float) -> None:
        """Count a commit; `waited_s` is how long the edge waited since the message that it answers."""
        accepted = sum(1 for token in tokens if token.origin is Origin.DRAFTED)
        self.passes += 1
        self.accepted += accepted
        self.checked += commit.checked_count
        self.accepted_histogram[accepted] += 1
        pass_s, queue_s = commit.pass_ns / 1e9, commit.queue_ns / 1e9
        self.pass_s += pass_s
        self.queue_s += queue_s
        self.link_s += max(0.0, waited_s - pass_s - queue_s)

    def report(self, token_count: int) -> dict[str, Any]:
        """The keys of the command-line contract; `token_count` tokens are in the answer as given out."""
        most = max(self.accepted_histogram, default=0)
        return {
            "tokens": token_count,
            "passes": self.passes,
            "tokens_per_pass": _ratio(token_count, self.passes),
            "drafted": self.drafted,
            "accepted": self.accepted,
            "checked": self.checked,
            "acceptance_rate": _ratio(self.accepted, self.drafted),
            "alpha": _ratio(self.accepted, self.checked),
            "accepted_histogram": [self.accepted_histogram[count] for count in range(most + 1)],
            "grow_payload_bytes": self.grow_payload_bytes,
            "uplink_bytes": self.uplink_bytes,
            "downlink_bytes": self.downlink_bytes,
            "rounds": self.rounds,
            "open_bytes": self.open_bytes,
            "reused_tokens": self.reused_tokens,
            "draft_ms": _milliseconds(self.draft_s),
            "pass_ms": _milliseconds(self.pass_s),
            "queue_ms": _milliseconds(self.queue_s),
            "link_ms": _milliseconds(self.link_s),
            "seconds": round(self.seconds, 4),
            "ttft_ms": _milliseconds(self.ttft_s),
        }


def _ratio(part: int, whole: int) -> float:
    return round(part / whole, 4) if whole else 0.0


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 3)
