"""When those who were refused should come again: later the more of them there are, and never all at once."""

from __future__ import annotations

import asyncio
import math
import random

LEAST_S, MOST_S = 0.25, 30.0
# In this time a refusal comes to count half.
HALF_LIFE_S = 2.0
# Of the mean delay: from so much less to so much more.
JITTER = 0.5


class RetryDelay:
    """Delays for edges that found `places` places taken. A place is taken to be free again after about `LEAST_S`, so of
    many who wait the last ones are told to wait for as many turns. The same in every run: jitter is there to keep edges
    apart, not to be secret.
    """

    def __init__(self, places: int) -> None:
        self._places = places
        self._random = random.Random(places)
        self._recent = 0.0
        self._at_s = 0.0

    def next_s(self) -> float:
        """Seconds after which one more edge that is refused now should try again."""
        now_s = asyncio.get_running_loop().time()
        self._recent = 1 + self._recent * math.pow(0.5, (now_s - self._at_s) / HALF_LIFE_S)
        self._at_s = now_s
        mean_s = min(MOST_S, LEAST_S * (1 + (self._recent - 1) / self._places))
        return mean_s * self._random.uniform(1 - JITTER, 1 + JITTER)
