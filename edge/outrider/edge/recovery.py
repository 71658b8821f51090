"""Finds the way back to a verifier for one answer whose stream broke: where, how, after which wait, and when to give
up. An answer is a function of prompt, options and seed, so it may go on at any verifier of the same target.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

from outrider.shared.errors import OutriderError, Reason
from outrider.shared.link import EdgeLink
from outrider.shared.messages import Limits

# Well below what it takes to notice a peer that has vanished, well above what passes take.
SILENT_S = 1.5


@dataclass(frozen=True, slots=True)
class Patience:
    """An answer may be without a verifier for `limit_s` seconds. Waits between tries begin at up to `first_wait_s`,
    double up to `most_wait_s`, and are drawn between half and whole, so that edges do not come back in step. Before it
    has begun, an answer is refused for want of room that often at most; and as often, without any progress, because of
    faults.
    """

    limit_s: float = 30.0
    first_wait_s: float = 0.2
    most_wait_s: float = 3.0
    refusals: int = 6
    faults: int = 2


class Verifiers(Protocol):
    """Where an answer may go on. One of them is the current one."""

    @property
    def count(self) -> int:
        """How many there are."""
        ...

    def open_stream(self) -> EdgeLink:
        """A new stream to the current one; whether that can be reached shows when something is received."""
        ...

    async def find(self, *, elsewhere: bool) -> Limits:
        """Make one that can be reached and serves the same target the current one, with `elsewhere` any other first.

        Returns what it allows. Raises VERIFIER_UNREACHABLE or TARGET_DIFFERS.
        """
        ...

    async def pause(self, seconds: float) -> None:
        """Sleep, but no longer than until the device's network has changed."""
        ...


@dataclass(frozen=True, slots=True)
class Way:
    """A new stream; to a session that is to be resumed, or (with the limits there) to a verifier that knows nothing."""

    link: EdgeLink
    limits: Limits | None


class _Fate(Enum):
    """What an error says of the session and of its verifier."""

    BROKEN = auto()
    GONE = auto()
    FAULT = auto()
    FULL = auto()
    AWAY = auto()


_FATES = {
    Reason.VERIFIER_UNREACHABLE: _Fate.BROKEN,
    Reason.SESSION_IDLE: _Fate.BROKEN,
    Reason.SESSION_NOT_FOUND: _Fate.GONE,
    # A verifier of an earlier version.
    Reason.MESSAGE_UNKNOWN: _Fate.GONE,
    Reason.PEER_VIOLATION: _Fate.FAULT,
    Reason.INTERNAL: _Fate.FAULT,
    Reason.CAPACITY_EXHAUSTED: _Fate.FULL,
    Reason.QUOTA_EXCEEDED: _Fate.FULL,
    Reason.DRAINING: _Fate.AWAY,
}


class Recovery:
    """Of one answer. Tell it of progress; ask it for a way back after each error."""

    def __init__(self, verifiers: Verifiers, patience: Patience | None = None, seed: int | None = None) -> None:
        """`seed` makes the waits repeatable."""
        self._verifiers = verifiers
        self._patience = patience or Patience()
        self._random = random.Random(seed)
        self._has_begun = False
        self._since_s: float | None = None
        self._tries = self._faults = self._refusals = 0
        # Whether the last try was to resume the session where it is.
        self._was_here = False

    def on_progress(self) -> None:
        """The answer goes on."""
        self._has_begun = True
        self._since_s = None
        self._tries = self._faults = self._refusals = 0
        self._was_here = False

    async def way_back(
        self, error: OutriderError, *, can_resume: bool, silent_s: float = 0.0, is_needed: Callable[[], bool] = bool
    ) -> Way:
        """A new stream, after the last one ended with `error`; raises the error that leaves none.

        `can_resume` says whether the current verifier may still have the session, `silent_s` how long nothing had come
        from it. For as long as `is_needed` says so the time for it does not run out.
        """
        if self._since_s is None:
            self._since_s = _now()
        is_silent = silent_s > SILENT_S
        while True:
            fate = self._judge(error, can_resume=can_resume)
            can_resume = can_resume and fate is _Fate.BROKEN
            wait_s = self._wait_s(error, fate)
            # A verifier that does not know the session can be reached: that is no time to give up.
            is_late = _now() + wait_s - self._since_s > self._patience.limit_s
            if is_late and fate is not _Fate.GONE and not is_needed():
                raise error
            await self._verifiers.pause(wait_s)
            self._tries += 1
            # With one verifier, that one may come back with the session. With others at hand they take turns with it,
            # and come first if it has fallen silent: it would take seconds to find that it still is.
            is_turn = self._verifiers.count == 1 or not (self._was_here or is_silent)
            self._was_here = can_resume and is_turn
            if self._was_here:
                return Way(self._verifiers.open_stream(), None)
            is_silent = False
            try:
                limits = await self._verifiers.find(elsewhere=fate is not _Fate.GONE)
            except OutriderError as failure:
                error = failure
                continue
            return Way(self._verifiers.open_stream(), limits)

    def _judge(self, error: OutriderError, *, can_resume: bool) -> _Fate:
        fate = _FATES.get(error.reason)
        if error.reason is Reason.TARGET_DIFFERS and error.from_peer and self._verifiers.count > 1:
            # It serves another target by now; the others may not.
            fate = _Fate.AWAY
        if fate is None:
            raise error
        if fate is _Fate.GONE and not can_resume:
            fate = _Fate.FAULT
        self._faults += fate is _Fate.FAULT
        self._refusals += fate is _Fate.FULL and not self._has_begun
        if self._faults > self._patience.faults or self._refusals > self._patience.refusals:
            raise error
        return fate

    def _wait_s(self, error: OutriderError, fate: _Fate) -> float:
        if fate is _Fate.GONE or (self._tries == 0 and fate is not _Fate.FULL):
            return 0.0
        longest_s = min(self._patience.most_wait_s, self._patience.first_wait_s * 2.0 ** (self._tries - 1))
        wait_s = longest_s * self._random.uniform(0.5, 1.0)
        # What the verifier asks for is the least.
        return max(wait_s, (error.retry_after_s or 0.0) * self._random.uniform(1.0, 1.5))


def _now() -> float:
    return asyncio.get_running_loop().time()
