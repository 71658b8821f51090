"""Stream an answer and show where its words came from.

outrider verifier &                      # the target, on 127.0.0.1:7071
python examples/stream.py "Why is the sky blue?"
"""

import asyncio
import sys

from outrider.edge import Agent, Sampling


async def main(prompt: str) -> None:
    """Print guessed words plain and the target's own in brackets, then the counts."""
    async with Agent.connect("127.0.0.1:7071", drafter="llama:qwen2.5-coder-0.5b") as agent:
        messages = [{"role": "user", "content": prompt}]
        async for chunk in agent.stream(messages, sampling=Sampling(temperature=0.7, seed=1, max_tokens=80)):
            print(chunk.text if chunk.origin == "drafted" else f"[{chunk.text}]", end="", flush=True)
            if chunk.result is not None:
                stats = chunk.result.stats
                print(f"\n{stats['tokens']} tokens in {stats['passes']} passes of {stats['model']}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "Why is the sky blue?"))
