"""Fair queueing of passes over accounts: where not everybody's rows fit, accounts get rows by weight, however many
sessions each of them has; inside an account sessions take turns. Without such a shortage it changes nothing.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from outrider.cloud.accounts import Account
from outrider.cloud.session import Session

# In so many passes in a row others of its account may take the room that was too little for whose turn it was.
MOST_PASSED_OVER = 2


class FairShares:
    """Start-time fair queueing. Each account has had `served` rows by weight; the one that had least comes next.

    An account that wanted nothing for a while saves nothing up: it begins where those stand who have been waiting. So
    two accounts that both always want more stay within a few passes of each other, each by its weight: one, and as many
    as `MOST_PASSED_OVER` in which small ones fill gaps.
    """

    def __init__(self) -> None:
        self._accounts: dict[Session, Account] = {}
        # Accounts of which the last pass left somebody out, with how much less than the best they have had since.
        self._behind: dict[Account, float] = {}
        self._gained: dict[Account, float] = {}
        # Whose turn it was in their accounts and who did not fit, and how often in a row.
        self._passed_over: dict[Session, int] = {}
        self._floor = 0.0

    def join(self, session: Session, account: Account) -> None:
        """The session's rows are the account's."""
        self._accounts[session] = account

    def leave(self, session: Session) -> None:
        """The session has ended."""
        self._passed_over.pop(session, None)
        del self._accounts[session]

    def account_of(self, session: Session) -> Account:
        """Whose the session is."""
        return self._accounts[session]

    def begin(self, in_turn: Iterable[Session]) -> None:
        """A pass is being packed, and these want to be in it."""
        self._gained = {self._accounts[session]: 0.0 for session in in_turn}
        for account in self._gained:
            if account not in self._behind:
                account.served = max(account.served, self._floor)

    def is_far_behind(self, session: Session, rows: int) -> bool:
        """Whether, in the passes in a row that left somebody of its account out, another had so many rows more."""
        account = self._accounts[session]
        return self._behind.get(account, 0.0) * account.quota.weight >= rows

    def serve(self, in_turn: Iterable[Session], pack: Callable[[Session], int]) -> None:
        """Offer the pass to these sessions, those of one account in this order. `pack` returns the rows that it found
        room for.
        """
        queues: dict[Account, deque[tuple[int, Session]]] = {}
        for turn, session in enumerate(in_turn):
            queues.setdefault(self._accounts[session], deque()).append((turn, session))
        # Of accounts that had equally much the one comes first whose session has waited longest.
        heads = [(account.served, queue[0][0], account) for account, queue in queues.items()]
        heapq.heapify(heads)
        firsts = {queue[0][1] for queue in queues.values()}
        while heads:
            _, _, account = heapq.heappop(heads)
            queue = queues[account]
            session = queue.popleft()[1]
            gained = pack(session) / account.quota.weight
            account.served += gained
            self._gained[account] += gained
            if not gained and session in firsts:
                self._passed_over[session] = self._passed_over.get(session, 0) + 1
                if self._passed_over[session] > MOST_PASSED_OVER and len(queues) > 1:
                    # With what small ones take into every gap the account would never come first, where big ones fit.
                    continue
            if queue:
                heapq.heappush(heads, (account.served, queue[0][0], account))

    def end(self, left_out: Sequence[Session]) -> None:
        """The pass is packed, without these."""
        best = max(self._gained.values(), default=0.0)
        still = dict.fromkeys(left_out)
        self._passed_over = {session: count for session, count in self._passed_over.items() if session in still}
        left_out_accounts = {self._accounts[session]: None for session in left_out}
        self._behind = {
            account: self._behind.get(account, 0.0) + best - self._gained[account] for account in left_out_accounts
        }
        if self._behind:
            self._floor = max(self._floor, min(account.served for account in self._behind))
        elif self._gained:
            self._floor = max(self._floor, *(account.served for account in self._gained))
