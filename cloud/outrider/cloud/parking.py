"""Sessions without a stream: suspended ones that their edge may resume, and finished ones, whose cache a later session
of the same caller may take over. Each keeps its slot until that is needed or its time is over.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from outrider.cloud.principal import Principal
from outrider.cloud.session import Session


@dataclass(frozen=True, slots=True)
class ParkingLimits:
    """For how many seconds a suspended session is kept and for how many a finished one. For the first `grace_s` of
    suspension its slot goes to its own caller only: whoever changes networks is back by then.
    """

    suspended_s: float = 300.0
    finished_s: float = 600.0
    grace_s: float = 10.0


@dataclass(frozen=True, slots=True)
class _Place:
    session: Session
    principal: Principal
    since_s: float
    expiry: asyncio.TimerHandle


class Parking:
    """`on_expiry` is called with each session whose time is over."""

    def __init__(self, limits: ParkingLimits, on_expiry: Callable[[Session], None]) -> None:
        self._limits = limits
        self._on_expiry = on_expiry
        # The longest there comes first.
        self._places: OrderedDict[str, _Place] = OrderedDict()

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[Session]:
        """The longest there comes first."""
        return (place.session for place in self._places.values())

    def park(self, session: Session, principal: Principal) -> None:
        """Keep a session whose stream has ended and which is in no pass."""
        loop = asyncio.get_running_loop()
        limit_s = self._limits.finished_s if session.finished else self._limits.suspended_s
        expiry = loop.call_later(limit_s, self._expire, session.session_id)
        self._places[session.session_id] = _Place(session, principal, loop.time(), expiry)

    def find(self, session_id: str, principal: Principal) -> Session | None:
        """The caller's session of this id, if it is here."""
        place = self._places.get(session_id)
        return None if place is None or place.principal != principal else place.session

    def take(self, session: Session) -> None:
        """The session is parked no longer."""
        self._places.pop(session.session_id).expiry.cancel()

    def give_up(self, principal: Principal) -> Session | None:
        """Take out the session that a new one of `principal` may displace: of the finished ones the longest there, then
        of the caller's own suspended ones, then of the others that have been there for long. None if there is none.
        """
        now_s = asyncio.get_running_loop().time()

        def rank(place: _Place) -> int | None:
            if place.session.finished:
                return 0
            if place.principal == principal:
                return 1
            return 2 if now_s - place.since_s >= self._limits.grace_s else None

        ranked = [(found, place.session) for place in self._places.values() if (found := rank(place)) is not None]
        if not ranked:
            return None
        _, session = min(ranked, key=lambda entry: entry[0])
        self.take(session)
        return session

    def clear(self) -> None:
        """Forget all of them."""
        for place in self._places.values():
            place.expiry.cancel()
        self._places.clear()

    def _expire(self, session_id: str) -> None:
        self._on_expiry(self._places.pop(session_id).session)
