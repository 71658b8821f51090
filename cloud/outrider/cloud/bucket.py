"""A bucket of tokens that fills at a steady rate. Pure: times are seconds of one clock and come from the caller."""

from __future__ import annotations

import math

# What a timer may be early by, in seconds.
_CLOCK_TICK_S = 1e-6


class TokenBucket:
    """Holds up to `burst` tokens and gains `rate` a second. What is taken out is known only afterwards, so the level
    may fall below zero: that is paid back before anything else.
    """

    def __init__(self, rate: float, burst: float) -> None:
        self._rate = rate
        self._burst = burst
        self._level = burst
        self._at_s = -math.inf

    def take(self, count: int, now_s: float) -> None:
        """So many tokens have been used."""
        self._fill(now_s)
        self._level -= count

    def wait_s(self, count: int, now_s: float) -> float:
        """Seconds until it holds `count` tokens (or all it ever can): 0 if it does."""
        self._fill(now_s)
        missing_s = (min(count, self._burst) - self._level) / self._rate
        return missing_s if missing_s > _CLOCK_TICK_S else 0.0

    def is_full(self, now_s: float) -> bool:
        """Whether a new bucket would be no better."""
        self._fill(now_s)
        return self._level >= self._burst

    def _fill(self, now_s: float) -> None:
        if now_s > self._at_s:
            if self._at_s > -math.inf:
                self._level = min(self._burst, self._level + self._rate * (now_s - self._at_s))
            self._at_s = now_s
