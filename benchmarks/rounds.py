"""How many rounds a second the verifier's own code takes: gRPC, session and scheduler around a target that chooses
without computing. A round is a Grow with four guesses and the Commit back. Beside it a bare echo of as many bytes over
the same gRPC, in the same run: the machine may be busy, the ratio of the two hardly depends on it.
"""

from __future__ import annotations

import argparse
import asyncio
import time

from outrider.harness.load.server import ECHO_METHOD, load_server, percentiles
from outrider.harness.load.streams import (
    DECODE_METHOD,
    TOKENS_A_ROUND,
    all_at_once,
    committed_length,
    grow_bytes,
    open_bytes,
    raw_calls,
)


async def measure(sessions: int, rounds: int, channels: int, profile: list[str]) -> None:
    """Print rates, times and processor time of both sides, of the echo and of the verifier."""
    grows = [grow_bytes(index) for index in range(rounds)]
    async with load_server("--max-sessions", str(sessions), *profile) as server:
        for name in ("echo", "verifier", "echo", "verifier"):
            address = server.address if name == "verifier" else server.said["echo"]
            method = DECODE_METHOD if name == "verifier" else ECHO_METHOD
            async with raw_calls(address, method, sessions, channels) as calls:
                await all_at_once(calls, [open_bytes(rounds)])
                before, client_before = await server.ask("numbers"), time.process_time()
                took_s, seconds, answers = await all_at_once(calls, grows)
                client_s, after = time.process_time() - client_before, await server.ask("numbers")
            if name == "verifier":
                assert all(committed_length(answer) == rounds * TOKENS_A_ROUND for answer in answers)
            count = sessions * rounds
            at_client = percentiles([1000 * value for value in seconds])
            print(
                f"{name:8} {count / took_s:6.0f} rounds/s; at the client {at_client} ms, "
                f"at the server {after['round_ms']} ms; processor per round: server "
                f"{1e6 * (after['cpu_s'] - before['cpu_s']) / count:.0f} µs, client {1e6 * client_s / count:.0f} µs"
            )


def main() -> None:
    """Measure twice, in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=300, help="of each session")
    parser.add_argument("--channels", type=int, default=4)
    parser.add_argument("--profile", help="file for what cProfile sees in the server")
    options = parser.parse_args()
    profile = ["--profile", options.profile] if options.profile else []
    asyncio.run(measure(options.sessions, options.rounds, options.channels, profile))


if __name__ == "__main__":
    main()
