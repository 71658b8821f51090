"""What each caller has open and has used, beside what it may have. No clock of its own: times are seconds and come from
the caller.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from outrider.cloud.bucket import TokenBucket
from outrider.cloud.principal import Principal
from outrider.cloud.quotas import Quota, Quotas
from outrider.cloud.retry import RetryDelay
from outrider.cloud.session import Session
from outrider.shared.errors import OutriderError, Reason
from outrider.shared.messages import INITIAL_WINDOW

# From so many accounts on those that nothing is open for are looked through.
MANY_ACCOUNTS = 1024


class Account:
    """One principal's. `served` is how many rows of passes it had, divided by its weight: see `FairShares`."""

    def __init__(self, name: str, quota: Quota) -> None:
        self.name = name
        self.quota = quota
        self.served = 0.0
        self.opening_count = 0
        # With the window of each.
        self._sessions: dict[Session, int] = {}
        self._retry = RetryDelay(quota.sessions or 1)
        rate = quota.tokens_per_s
        self._bucket = None if rate is None else TokenBucket(rate, quota.burst_tokens or max(1.0, rate))

    @contextlib.contextmanager
    def opening(self) -> Iterator[None]:
        """Around the time in which a stream has not said what it wants; raises QUOTA_EXCEEDED."""
        if self.opening_count >= self.quota.opening:
            raise self._exceeded(f"{self.opening_count} streams of {self.name!r} have not sent their Open yet")
        self.opening_count += 1
        try:
            yield
        finally:
            self.opening_count -= 1

    def window(self, most: int) -> int:
        """How many live nodes one more session may have, `most` at most; raises QUOTA_EXCEEDED.

        It is set aside for that session, so that no edge which keeps to its window is ever told that the account is
        used up. Where the number of sessions is limited each gets the same, otherwise one more gets half of what is
        left.
        """
        windows = [window for session, window in self._sessions.items() if not (session.finished or session.released)]
        allowed = self.quota.sessions
        if allowed is not None and len(windows) >= allowed:
            raise self._exceeded(f"{len(windows)} sessions of {self.name!r} are open, of {allowed} allowed")
        if self.quota.live_nodes is None:
            return most
        left = self.quota.live_nodes - sum(windows)
        if left < INITIAL_WINDOW:
            raise self._exceeded(
                f"{len(windows)} sessions of {self.name!r} may have {sum(windows)} live nodes, of "
                f"{self.quota.live_nodes} allowed"
            )
        share = left // (2 if allowed is None else allowed - len(windows))
        return min(most, max(INITIAL_WINDOW, share))

    def join(self, session: Session, window: int) -> None:
        """The session is open, with `window` live nodes at most."""
        self._sessions[session] = window

    def leave(self, session: Session) -> None:
        """The session has ended or is suspended."""
        self._sessions.pop(session, None)

    def spend(self, token_count: int, now_s: float) -> None:
        """So many tokens have been committed."""
        if self._bucket is not None:
            self._bucket.take(token_count, now_s)

    def wait_s(self, session_count: int, now_s: float) -> float:
        """Seconds until so many of its sessions may be in one pass, by the tokens that each is sure to get."""
        return 0.0 if self._bucket is None else self._bucket.wait_s(session_count, now_s)

    def is_forgettable(self, now_s: float) -> bool:
        """Whether a new account would be no different."""
        is_used = self._sessions or self.opening_count
        return not is_used and (self._bucket is None or self._bucket.is_full(now_s))

    def _exceeded(self, what: str) -> OutriderError:
        return OutriderError(Reason.QUOTA_EXCEEDED, f"{what}.", retry_after_s=self._retry.next_s())


class Accounts:
    """The accounts of all who have called lately."""

    def __init__(self, quotas: Quotas) -> None:
        self._quotas = quotas
        self._accounts: dict[str, Account] = {}
        self._sweep_at = MANY_ACCOUNTS

    def __len__(self) -> int:
        return len(self._accounts)

    def of(self, principal: Principal, now_s: float) -> Account:
        """The principal's account."""
        account = self._accounts.get(principal.name)
        if account is None:
            if len(self._accounts) >= self._sweep_at:
                self._sweep(now_s)
            account = self._accounts[principal.name] = Account(principal.name, self._quotas.of(principal))
        return account

    def _sweep(self, now_s: float) -> None:
        self._accounts = {n: account for n, account in self._accounts.items() if not account.is_forgettable(now_s)}
        self._sweep_at = max(MANY_ACCOUNTS, 2 * len(self._accounts))
