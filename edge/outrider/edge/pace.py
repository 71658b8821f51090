"""Notices when guessing costs an answer more than it brings. An answer begins patiently, which is cheapest for the
verifier; where that turns out slower than the verifier's own streaming, it goes on eagerly, and where guesses then
become no text, without guessing. So whoever leaves the pace open gets at worst plain streaming, a few passes late.
"""

from __future__ import annotations

from collections import deque

from outrider.shared.messages import Commit

# Commits that are looked at, and by how much they may be slower than streaming: as a factor, and in seconds a token, as
# nobody notices less.
COMMITS, SLOWER, LEAST_S = 8, 1.2, 0.005
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
        # Tokens and seconds of the last patient commits.
        self._patient: deque[tuple[int, float]] = deque(maxlen=COMMITS)
        self._eager_tokens = self._eager_guesses = 0

    def on_commit(self, commit: Commit, guessed_count: int, now_s: float) -> None:
        """A commit has come, `guessed_count` of whose tokens had been sent as guesses."""
        if not self._may_change:
            return
        tokens = commit.committed_length - commit.base
        if self.is_eager:
            self._judge_guesses(tokens, guessed_count)
        elif self._last_s is not None:
            # The first commit carries the time of the prompt's passes too.
            self._pass_s = min(self._pass_s, commit.pass_ns / 1e9)
            self._patient.append((tokens, now_s - self._last_s))
            self._judge_patience()
        self._last_s = now_s

    def _judge_patience(self) -> None:
        """Streaming takes a pass a token, and the shortest pass seen is the nearest to one over a single row."""
        if len(self._patient) < COMMITS:
            return
        token_s = sum(seconds for _, seconds in self._patient) / sum(tokens for tokens, _ in self._patient)
        if token_s > max(SLOWER * self._pass_s, self._pass_s + LEAST_S):
            self.is_eager = True
            self.notes.append(
                f"waiting for guesses took {1000 * token_s:.0f} ms a token and the target's own streaming takes about "
                f"{1000 * self._pass_s:.0f}: going on eagerly"
            )

    def _judge_guesses(self, tokens: int, guessed_count: int) -> None:
        if not self.guesses:
            return
        self._eager_tokens += tokens
        self._eager_guesses += guessed_count
        if self._eager_tokens >= TOKENS:
            if self._eager_guesses < LEAST_SHARE * self._eager_tokens:
                self.guesses = False
                self.notes.append(
                    f"{self._eager_guesses} of {self._eager_tokens} tokens were guesses: guessing no further"
                )
            self._eager_tokens = self._eager_guesses = 0
