"""Notices when guessing costs an answer more than it brings. An answer begins patiently, which is cheapest for the
verifier; where that turns out slower than the verifier's own streaming, it goes on eagerly, and where guesses then
become no text, without guessing. So whoever leaves the pace open gets at worst plain streaming, a few passes late.
"""

from __future__ import annotations

from collections import deque

from outrider.shared.messages import Commit

# Commits that are looked at, at most and at least. They may be slower than streaming by this much in seconds a token
# (nobody notices less), and by this share, which is larger the fewer there are.
MOST_COMMITS, LEAST_COMMITS = 8, 3
LEAST_S, SLACK = 0.005, 1.6
# Eager tokens that are looked at, and the least share of them that has to be guesses.
TOKENS, LEAST_SHARE = 64, 0.02


class Pace:
    """Of one answer. `is_eager` says whether the verifier may go on by itself, `guesses` whether to guess at all; both
    change only if `may_change`, and `notes` then say why.
    """

    def __init__(self, *, eager: bool, may_change: bool) -> None:
        self.is_eager = eager
        self.guesses = True
        self.notes: list[str] = []
        self._may_change = may_change
        self._last_s: float | None = None
        self._pass_s = float("inf")
        self._seen_s = 0.0
        # Tokens and seconds of the last commits since the pace changed.
        self._commits: deque[tuple[int, float]] = deque(maxlen=MOST_COMMITS)
        self._eager_tokens = self._eager_guesses = 0

    def on_commit(self, commit: Commit, guessed_count: int, now_s: float) -> None:
        """A commit has come, `guessed_count` of whose tokens had been sent as guesses."""
        if not self._may_change or not self.guesses:
            return
        tokens = commit.committed_length - commit.base
        # The first commit carries the time of the prompt's passes too.
        if self._last_s is not None:
            self._pass_s = min(self._pass_s, commit.pass_ns / 1e9)
            self._commits.append((tokens, now_s - self._last_s - commit.queue_ns / 1e9))
            if self.is_eager:
                self._judge_guesses(tokens, guessed_count)
            else:
                self._judge_patience()
        self._last_s = now_s

    def on_break(self) -> None:
        """The stream broke: the time until the next commit says nothing."""
        self._last_s = None

    def _judge_patience(self) -> None:
        if self._is_slow():
            self.is_eager = True
            self._commits.clear()
            self.notes.append(f"waiting for guesses took {self._comparison()}: going on eagerly")

    def _judge_guesses(self, tokens: int, guessed_count: int) -> None:
        self._eager_tokens += tokens
        self._eager_guesses += guessed_count
        if self._is_slow():
            # A verifier that never waits is slower only if guessing itself slows it, as on a device that both share.
            self.guesses = False
            self.notes.append(f"with guessing the verifier took {self._comparison()}: guessing no further")
        elif self._eager_tokens >= TOKENS:
            if self._eager_guesses < LEAST_SHARE * self._eager_tokens:
                self.guesses = False
                self.notes.append(
                    f"{self._eager_guesses} of {self._eager_tokens} tokens were guesses: guessing no further"
                )
            self._eager_tokens = self._eager_guesses = 0

    def _token_s(self) -> float:
        return sum(seconds for _, seconds in self._commits) / sum(tokens for tokens, _ in self._commits)

    def _is_slow(self) -> bool:
        """Streaming takes a pass a token, and the shortest pass seen is the nearest to one over a single row."""
        count = len(self._commits)
        allowed_s = max(self._pass_s * (1 + SLACK / max(1, count)), self._pass_s + LEAST_S)
        is_slow = count >= LEAST_COMMITS and self._token_s() > allowed_s
        if is_slow:
            self._seen_s = self._token_s()
        return is_slow

    def _comparison(self) -> str:
        return (
            f"{1000 * self._seen_s:.0f} ms a token and the target's own streaming takes about {1000 * self._pass_s:.0f}"
        )
