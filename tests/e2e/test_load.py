"""Many sessions at once on a verifier of its own process: all are served, rightly, and an idle one costs little."""

from __future__ import annotations

import pytest

from outrider.harness.load.open_loop import at_rate, open_all
from outrider.harness.load.server import ECHO_METHOD, load_server, percentiles
from outrider.harness.load.streams import (
    DECODE_METHOD,
    TOKENS_A_ROUND,
    all_at_once,
    committed_length,
    grow_bytes,
    open_bytes,
    raw_calls,
    raw_channels,
)

MOST_KIB_A_SESSION = 64


async def rounds_per_s(sessions: int, rounds: int) -> tuple[float, float]:
    """Of a bare echo and of the verifier, whose answers must be the null target's."""
    rates = []
    async with load_server("--max-sessions", str(sessions)) as server:
        for address, method in ((server.said["echo"], ECHO_METHOD), (server.address, DECODE_METHOD)):
            async with raw_calls(address, method, sessions, 4) as calls:
                await all_at_once(calls, [open_bytes(rounds)])
                took_s, _, answers = await all_at_once(calls, [grow_bytes(index) for index in range(rounds)])
            rates.append(sessions * rounds / took_s)
        assert [committed_length(answer) for answer in answers] == [rounds * TOKENS_A_ROUND] * sessions
        assert (await server.ask("numbers"))["rounds"] == sessions * rounds
    return rates[0], rates[1]


async def test_sixty_four_sessions_get_what_the_target_says_in_every_round() -> None:
    echo, verifier = await rounds_per_s(64, 20)
    # On two idle processors it is half of what a bare echo makes. Here only what is out of all proportion counts.
    assert verifier > echo / 20


async def kib_a_session(sessions: int, rate: float, count: int) -> tuple[float, float]:
    """Memory of an idle session, and p99 of a round in milliseconds at the server, while rounds arrive."""
    async with load_server("--target", "tiny", "--max-sessions", str(sessions + 16)) as server:
        async with raw_channels(server.address, 8) as channels:
            await at_rate(await open_all(channels, 8, 100), rate, 40)
        before = await server.ask("numbers")
        async with raw_channels(server.address, 8) as channels:
            opened = await open_all(channels, sessions, 2 + 4 * count // sessions + 100)
            idle = await server.ask("numbers")
            seconds, _ = await at_rate(opened, rate, count)
            after = await server.ask("numbers")
    assert len(seconds) == after["rounds"] == count
    assert percentiles(seconds)["p99"] < 10
    return (idle["rss_bytes"] - before["rss_bytes"]) / sessions / 1024, after["round_ms"]["p99"]


async def test_three_hundred_idle_sessions_cost_little_and_rounds_among_them_are_answered() -> None:
    kib, _ = await kib_a_session(300, 200, 400)
    assert kib <= MOST_KIB_A_SESSION


@pytest.mark.slow
async def test_three_thousand_rounds_a_second_over_sixty_four_sessions() -> None:
    _, verifier = await rounds_per_s(64, 300)
    assert verifier >= 3000


@pytest.mark.slow
async def test_a_thousand_sessions_and_five_hundred_rounds_a_second() -> None:
    kib, p99_ms = await kib_a_session(1000, 500, 10_000)
    assert kib <= MOST_KIB_A_SESSION
    assert p99_ms <= 50
