"""Who wants a pass: sessions in the order of their turns, since when they wait, and whether somebody among them is not
to be kept waiting. Nothing here looks at sessions that want nothing, so any number of them may stay open.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any

from outrider.cloud.session import Session


class Line:
    """A session that has joined has a turn; while it wants a pass it stands in the line. One that finishes by itself
    may still stand there: it is passed over.
    """

    def __init__(self) -> None:
        self._turns: dict[Session, int] = {}
        self._first_turn = self._next_turn = 0
        # In the order in which they began to want; deleting at the front is cheap.
        self._wanting: OrderedDict[Session, None] = OrderedDict()
        self._eager: OrderedDict[Session, None] = OrderedDict()
        # Until when the first word of those is waited for.
        self._fresh: OrderedDict[Session, float] = OrderedDict()

    def __contains__(self, session: Session) -> bool:
        """Whether the session has joined and not left."""
        return session in self._turns

    def __len__(self) -> int:
        """How many want a pass, a first word waited for or not."""
        return len(self._wanting) + len(self._fresh)

    def is_wanting(self, session: Session) -> bool:
        """Whether the session wants a pass."""
        return session in self._wanting or session in self._fresh

    def join(self, session: Session) -> None:
        """Give the session a turn after all others."""
        self._turns[session] = self._next_turn
        self._next_turn += 1

    def leave(self, session: Session) -> None:
        """The session has ended."""
        del self._turns[session]
        self.rest(session)

    def want_with_first_word(self, session: Session, until_s: float) -> None:
        """The session wants a pass, and a better one when its edge has spoken, which it may do until then."""
        self._fresh[session] = until_s

    def want(self, session: Session) -> None:
        """The session wants a pass, since its `ready_since`."""
        self._fresh.pop(session, None)
        self._wanting[session] = None
        if session.is_eager:
            self._eager[session] = None

    def rest(self, session: Session) -> None:
        """The session wants no pass any more."""
        self._fresh.pop(session, None)
        self._wanting.pop(session, None)
        self._eager.pop(session, None)

    def in_turn(self) -> list[Session]:
        """Those that want a pass; whose turn it is comes first."""
        return sorted([*self._wanting, *self._fresh], key=lambda session: self._turns[session])

    def take_turns(self, served: Iterable[Session], left_out: Sequence[Session]) -> None:
        """Those left out come first next time, those served last."""
        self._first_turn -= len(left_out)
        for turn, session in enumerate(left_out, self._first_turn):
            self._turns[session] = turn
        for session in served:
            self.join(session)

    @property
    def has_eager(self) -> bool:
        """Whether somebody wants a pass who waits for nobody."""
        return _first(self._eager) is not None

    @property
    def since_s(self) -> float | None:
        """Since when a pass is wanted; None if none is, or only one that waits for a first word."""
        first = _first(self._wanting)
        return None if first is None else first.ready_since

    @property
    def next_fresh(self) -> tuple[Session, float] | None:
        """Whose first word is waited for no longer than that of others, and until when."""
        first = _first(self._fresh)
        return None if first is None else (first, self._fresh[first])


def _first(sessions: OrderedDict[Session, Any]) -> Session | None:
    """The first one that has not finished; those before it are dropped."""
    while sessions:
        session = next(iter(sessions))
        if not session.finished:
            return session
        del sessions[session]
    return None
