"""What the sizes of commits tell somebody on the way, with and without padding: the real pair, one session.

Guesses how many tokens each commit makes final, and whether any guess was accepted, from its size alone, as well as the
answers themselves allow: the best guess for each size. Beside it how often the commonest case alone is right.
"""

from __future__ import annotations

import argparse
import asyncio
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from unittest.mock import patch

from outrider.edge import link
from outrider.edge.agent import Agent
from outrider.edge.private_verifier import private_verifier
from outrider.shared.convert import cloud_message_from_pb
from outrider.shared.messages import CloudMessage
from outrider.shared.sampling.options import Sampling
from outrider.v1 import verifier_pb2 as pb

PROMPTS = (
    "Write a Python function that merges two sorted lists into one sorted list.",
    "Explain the difference between TCP and UDP to a beginner.",
    "Write a short story about a lighthouse keeper.",
)
WAYS = (("fixed", "patient"), ("ratio", "eager"))


@dataclass(frozen=True, slots=True)
class Seen:
    """One commit: bytes of the message, tokens that it made final, and whether guesses were among them."""

    size: int
    tokens: int
    accepted: bool


@contextmanager
def watching() -> Iterator[list[Seen]]:
    """Every commit that arrives inside the context."""
    seen: list[Seen] = []

    def watch(response: pb.DecodeResponse) -> CloudMessage:
        if response.HasField("commit"):
            commit = response.commit
            seen.append(Seen(response.ByteSize(), commit.committed_length - commit.base, commit.accepted_node > 0))
        return cloud_message_from_pb(response)

    with patch.object(link, "cloud_message_from_pb", watch):
        yield seen


def told(facts: Sequence[tuple[int, Hashable]]) -> str:
    """How often the best guess for each size is right, and how often the commonest case."""
    by_size: defaultdict[int, Counter[Hashable]] = defaultdict(Counter)
    for size, fact in facts:
        by_size[size][fact] += 1
    right = sum(counts.most_common(1)[0][1] for counts in by_size.values())
    commonest = Counter(fact for _, fact in facts).most_common(1)[0][1]
    return f"{right / len(facts):.2f} ({commonest / len(facts):.2f})"


async def measure(tokens: int, target: str, drafter: str) -> None:
    """Print a row for each way, bare and padded."""
    print("| commits | way | number | sizes | tokens by size (commonest) | any accepted | bytes down a token |")
    print("|---|---|---|---|---|---|---|")
    for padding in ([], ["--pad-commits"]):
        async with private_verifier(["--target", target, *padding]) as address:
            for control, pace in WAYS:
                with watching() as seen:
                    async with Agent.connect(address, drafter, control=control, pace=pace) as agent:
                        sampling = Sampling(max_tokens=tokens, temperature=1.0, seed=1)
                        stats = [(await agent.answer(prompt, sampling)).stats for prompt in PROMPTS]
                sizes = sorted({one.size for one in seen})
                down = sum(one["downlink_bytes"] for one in stats) / sum(one["tokens"] for one in stats)
                print(
                    f"| {'padded' if padding else 'bare'} | {control}, {pace} | {len(seen)} | {sizes[0]}-{sizes[-1]} | "
                    f"{told([(one.size, one.tokens) for one in seen])} | "
                    f"{told([(one.size, one.accepted) for one in seen])} | {down:.0f} |",
                    flush=True,
                )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--target", default="llama:qwen2.5-coder-1.5b")
    parser.add_argument("--drafter", default="llama:qwen2.5-coder-0.5b")
    given = parser.parse_args()
    asyncio.run(measure(given.tokens, given.target, given.drafter))
