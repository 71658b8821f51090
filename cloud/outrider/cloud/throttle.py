"""Sessions that want a pass and whose account has had its tokens for now: they stand aside until it may have more."""

from __future__ import annotations

import heapq
import itertools

from outrider.cloud.accounts import Account
from outrider.cloud.session import Session


class Throttle:
    """Times are seconds of one clock. However many sessions an account has aside, there is one time to wake up for."""

    def __init__(self) -> None:
        self._aside: dict[Account, dict[Session, None]] = {}
        self._until: list[tuple[float, int, Account]] = []
        self._numbers = itertools.count()

    def holds(self, session: Session, account: Account, now_s: float) -> bool:
        """Whether the session must stand aside; if so it does until `due` names it."""
        wait_s = account.wait_s(1, now_s)
        if not wait_s:
            return False
        if account not in self._aside:
            self._wake_at(now_s + wait_s, account)
        self._aside.setdefault(account, {})[session] = None
        return True

    def forget(self, session: Session, account: Account) -> None:
        """The session has ended, or wants nothing."""
        self._aside.get(account, {}).pop(session, None)

    def due(self, now_s: float) -> list[Session]:
        """Those who need not stand aside any longer, in the order in which they came."""
        due: list[Session] = []
        while self._until and self._until[0][0] <= now_s + 1e-6:
            _, _, account = heapq.heappop(self._until)
            wait_s = account.wait_s(1, now_s)
            if wait_s and self._aside[account]:
                # A pass that ran meanwhile took more.
                self._wake_at(now_s + wait_s, account)
            else:
                due += self._aside.pop(account)
        return due

    @property
    def until_s(self) -> float | None:
        """When to look at `due` next."""
        return self._until[0][0] if self._until else None

    def _wake_at(self, until_s: float, account: Account) -> None:
        heapq.heappush(self._until, (until_s, next(self._numbers), account))
