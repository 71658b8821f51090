"""What a round costs without models: tiny pseudo models, one session, γ 5, gRPC over loopback, two processes.

A round is the time from one commit to the next: drafting, Grow, pass, Commit and both trees.
"""

from __future__ import annotations

import argparse
import asyncio
import time

import numpy as np

from outrider.edge.agent import Agent
from outrider.edge.private_verifier import private_verifier
from outrider.shared.sampling.options import Sampling

ANSWERS = 40
TOKENS = 400
WARM_UP_ROUNDS = 100


async def measure(temperature: float) -> np.ndarray:
    """Milliseconds of each round of 40 answers, shape [rounds]."""
    rounds: list[float] = []
    async with (
        private_verifier(["--target", "tiny", "--max-sessions", "2"]) as address,
        Agent.connect(address, drafter="tiny:0.5", control="fixed", gamma=5) as agent,
    ):
        for seed in range(ANSWERS):
            sampling = Sampling(temperature=temperature, seed=seed, max_tokens=TOKENS, logit_bias={256: -100.0})
            began = None
            async for chunk in agent.stream("overhead", sampling):
                now = time.perf_counter()
                # Several chunks of one commit arrive in one go.
                if chunk.result is None and began is not None and now - began > 50e-6:
                    rounds.append((now - began) * 1000)
                began = now
    return np.array(rounds[WARM_UP_ROUNDS:])


def main() -> None:
    """Print the distribution."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--temperature", type=float, default=0.0)
    milliseconds = asyncio.run(measure(parser.parse_args().temperature))
    p50, p95, p99 = np.percentile(milliseconds, [50, 95, 99])
    print(f"{len(milliseconds)} rounds: p50 {p50:.2f} ms, p95 {p95:.2f} ms, p99 {p99:.2f} ms")


if __name__ == "__main__":
    main()
