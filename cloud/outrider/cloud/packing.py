"""The next pass as it fills up: which sessions bring what to it, and whether there is room for more."""

from __future__ import annotations

from collections import Counter

from outrider.cloud.accounts import Account
from outrider.cloud.session import Session
from outrider.cloud.target import PassWork
from outrider.cloud.targets.contract import side_branches


class Packing:
    """At most `max_rows` rows and `max_branches` side branches over all sessions."""

    def __init__(self, max_rows: int, max_branches: int) -> None:
        self.work: dict[Session, PassWork] = {}
        # Of those that have guesses to check or a prompt to read.
        self.busy_rows = 0
        self.branches_left = max_branches
        self._sessions = Counter[Account]()
        self._rows = 0
        self._max_rows = max_rows

    def add(self, session: Session, work: PassWork, account: Account) -> int:
        """Take the session's work in if there is room, and for the first one there always is. Returns its rows."""
        needed = work.rows.count
        if self.work and self._rows + needed > self._max_rows:
            return 0
        self._rows += needed
        self.busy_rows += needed if needed > 1 else 0
        self.branches_left -= side_branches(work.rows.node_parents)
        self.work[session] = work
        self._sessions[account] += 1
        return needed

    def sessions_of(self, account: Account) -> int:
        """Sessions of the account that are in."""
        return self._sessions[account]
