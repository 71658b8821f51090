"""What a caller has open and has used: sessions, windows that are set aside for them, tokens a second, and when those
who were refused should come again.
"""

from __future__ import annotations

import asyncio
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.cloud.accounts import MANY_ACCOUNTS, Account, Accounts
from outrider.cloud.bucket import TokenBucket
from outrider.cloud.principal import Principal
from outrider.cloud.quotas import Quota, Quotas
from outrider.cloud.retry import MOST_S, RetryDelay
from outrider.cloud.session import Session, SessionLimits
from outrider.harness import virtual_time
from outrider.shared.errors import OutriderError, Reason
from outrider.shared.messages import INITIAL_WINDOW, FinishReason, Open
from outrider.shared.sampling.options import Sampling
from outrider.shared.tiny import tiny_vocabulary
from support.refusal import refused

WINDOW = 256


def session() -> Session:
    return Session("s", 0, Open((257, 258), Sampling(), 1, 40), tiny_vocabulary(), 40, SessionLimits())


async def open_sessions(account: Account, count: int) -> list[int]:
    """The windows of so many more sessions."""
    windows = []
    for _ in range(count):
        windows.append(account.window(WINDOW))
        account.join(session(), windows[-1])
    return windows


async def test_one_session_too_many_is_refused_with_a_time_to_retry() -> None:
    account = Account("phone", Quota(sessions=2))
    assert await open_sessions(account, 2) == [WINDOW, WINDOW]
    with pytest.raises(OutriderError) as caught:
        account.window(WINDOW)
    assert caught.value.reason is Reason.QUOTA_EXCEEDED
    assert caught.value.status == "RESOURCE_EXHAUSTED"
    assert caught.value.retry_after_s
    assert "2 sessions of 'phone' are open, of 2" in caught.value.message


async def test_who_has_ended_or_left_its_stream_makes_room_at_once() -> None:
    """The session of an answer that is complete may still be in a pass, and its edge may ask for another."""
    account = Account("phone", Quota(sessions=1))
    for end in ("finished", "released", "left"):
        one = session()
        account.join(one, account.window(WINDOW))
        with refused(Reason.QUOTA_EXCEEDED):
            account.window(WINDOW)
        if end == "finished":
            one.finish(FinishReason.CANCELLED)
        elif end == "released":
            one.released = True
        else:
            account.leave(one)


async def test_sessions_share_the_live_nodes_alike_where_their_number_is_known() -> None:
    account = Account("phone", Quota(sessions=4, live_nodes=400))
    assert await open_sessions(account, 4) == [100] * 4


async def test_else_one_more_gets_half_of_what_is_left_and_never_less_than_an_edge_sends_unasked() -> None:
    account = Account("phone", Quota(live_nodes=256))
    assert await open_sessions(account, 4) == [128, 64, 32, 32]
    with refused(Reason.QUOTA_EXCEEDED, "256 live nodes, of 256"):
        account.window(WINDOW)


@given(live_nodes=st.integers(32, 5000), sessions=st.none() | st.integers(1, 20), most=st.integers(32, 4096))
def test_windows_never_exceed_the_live_nodes_nor_stop_a_session_that_the_quota_allows(
    live_nodes: int, sessions: int | None, most: int
) -> None:
    if sessions is not None and live_nodes < INITIAL_WINDOW * sessions:
        return

    async def main() -> list[int]:
        account, windows = Account("phone", Quota(live_nodes=live_nodes, sessions=sessions)), list[int]()
        try:
            while len(windows) < 200:
                windows.append(account.window(most))
                account.join(session(), windows[-1])
        except OutriderError:
            pass
        return windows

    windows = virtual_time.run(main())
    assert sum(windows) <= live_nodes
    assert all(INITIAL_WINDOW <= window <= most for window in windows)
    if sessions is not None:
        assert len(windows) == sessions
    else:
        assert len(windows) == 200 or live_nodes - sum(windows) < INITIAL_WINDOW


async def test_streams_that_say_nothing_are_counted_until_they_do() -> None:
    account = Account("phone", Quota(opening=2))
    with account.opening():
        with account.opening(), refused(Reason.QUOTA_EXCEEDED, "2 streams of 'phone'"), account.opening():
            pass
        with account.opening():
            pass
    assert account.opening_count == 0


def test_a_bucket_gives_its_burst_at_once_and_then_its_rate() -> None:
    bucket = TokenBucket(rate=10, burst=5)
    assert bucket.wait_s(5, 100.0) == 0
    bucket.take(5, 100.0)
    assert bucket.wait_s(1, 100.0) == pytest.approx(0.1)
    assert bucket.wait_s(1, 100.1) == 0
    bucket.take(21, 100.1)
    assert bucket.wait_s(1, 100.1) == pytest.approx(2.1), "what was taken ahead is paid back first"
    assert bucket.wait_s(100, 1000.0) == 0, "nobody waits for more than it can hold"
    bucket.take(5, 1000.0)
    assert bucket.wait_s(1, 1000.0) == pytest.approx(0.1), "no more than the burst is saved up"


@given(
    rate=st.floats(0.5, 1000),
    burst=st.floats(1, 100),
    steps=st.lists(st.tuples(st.integers(0, 20), st.floats(0, 3)), max_size=60),
)
def test_in_no_time_is_more_used_than_burst_and_rate_allow_but_for_what_one_pass_took(
    rate: float, burst: float, steps: list[tuple[int, float]]
) -> None:
    bucket, now_s, used, largest = TokenBucket(rate, burst), 0.0, 0, 0
    for wanted, pause_s in steps:
        if not bucket.wait_s(1, now_s):
            bucket.take(wanted, now_s)
            used, largest = used + wanted, max(largest, wanted)
        assert used <= burst + rate * now_s + largest + 1e-6 * (1 + rate)
        now_s += pause_s


def test_accounts_that_hold_nothing_are_forgotten_and_debts_are_not() -> None:
    accounts = Accounts(Quotas(Quota(tokens_per_s=1.0, burst_tokens=10)))
    indebted = accounts.of(Principal("indebted"), 0.0)
    indebted.spend(3600, 0.0)
    open_one = accounts.of(Principal("open"), 0.0)
    open_one.join(session(), WINDOW)
    for number in range(3 * MANY_ACCOUNTS):
        accounts.of(Principal(f"passing by {number}"), 1.0)
    assert len(accounts) <= 2 * MANY_ACCOUNTS
    assert accounts.of(Principal("indebted"), 1.0) is indebted
    assert accounts.of(Principal("open"), 1.0) is open_one


async def _delays(places: int, count: int, apart_s: float) -> list[float]:
    retry, delays = RetryDelay(places), list[float]()
    for _ in range(count):
        delays.append(retry.next_s())
        await asyncio.sleep(apart_s)
    return delays


def test_many_who_are_refused_at_once_are_spread_over_the_time_that_their_turns_take() -> None:
    few, many = (virtual_time.run(_delays(8, count, 0.0)) for count in (8, 192))
    assert all(0.125 <= delay <= 0.75 for delay in few)
    assert statistics.mean(many) > 5 * statistics.mean(few), "the more the later"
    assert len({round(delay, 3) for delay in many}) > 150, "and not in step"
    in_a_tenth = max(sum(start <= delay < start + 0.1 for delay in many) for start in [n / 10 for n in range(120)])
    assert in_a_tenth <= 24, "so many who were refused at one moment come again within a tenth of a second"
    assert max(many) <= 1.5 * MOST_S


def test_who_is_refused_now_and_then_comes_again_soon() -> None:
    delays = virtual_time.run(_delays(8, 20, 60.0))
    assert max(delays) <= 0.375
    assert max(delays) - min(delays) > 0.1, "but not in step with others"
