"""A thousand open sessions of which most are idle: what one costs in memory, and how long a round takes at the server
while rounds arrive at a fixed rate. The target is the tiny one, whose cache is next to nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import time

from outrider.harness.load.open_loop import at_rate, open_all
from outrider.harness.load.server import load_server, percentiles
from outrider.harness.load.streams import raw_channels


async def measure(sessions: int, rounds_per_s: float, seconds: float, channels: int) -> None:
    """Print memory, times and processor time; any error ends it."""
    count = round(rounds_per_s * seconds)
    async with load_server("--target", "tiny", "--max-sessions", str(sessions + 24)) as server:
        # What is made once, by the first few sessions, belongs to none.
        async with raw_channels(server.address, channels) as links:
            await at_rate(await open_all(links, channels, 100), rounds_per_s, 50)
        before = await server.ask("numbers")
        async with raw_channels(server.address, channels) as links:
            opened = await open_all(links, sessions, 2 + 4 * count // sessions + 100)
            idle = await server.ask("numbers")
            memory = (idle["rss_bytes"] - before["rss_bytes"]) / sessions / 1024
            print(f"{sessions} sessions open: {memory:.1f} KiB each, {idle['tasks']} tasks")
            client_s = time.process_time()
            round_s, took_s = await at_rate(opened, rounds_per_s, count)
            client_s = time.process_time() - client_s
            after = await server.ask("numbers")
        cpu = (after["cpu_s"] - idle["cpu_s"]) / took_s
        print(
            f"{count / took_s:.0f} rounds/s, no error in {after['rounds']}; at the server {after['round_ms']} ms, "
            f"at the client {percentiles([1000 * value for value in round_s])} ms; processors: server {cpu:.2f}, "
            f"client {client_s / took_s:.2f}; the server's threads waited for one for "
            f"{after['waited_s'] - idle['waited_s']:.1f} s"
        )


def main() -> None:
    """Measure once."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=1000)
    parser.add_argument("--rounds-per-s", type=float, default=500)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--channels", type=int, default=16)
    options = parser.parse_args()
    asyncio.run(measure(options.sessions, options.rounds_per_s, options.seconds, options.channels))


if __name__ == "__main__":
    main()
