"""Start a verifier for the length of a program and ask it two questions at once."""

import asyncio

from outrider.edge import Agent, Sampling, private_verifier

PROMPTS = ("Name three rivers.", "Name three mountains.")


async def answer(agent: Agent, prompt: str) -> str:
    """The whole text of one answer."""
    return "".join([chunk.text async for chunk in agent.stream(prompt, Sampling(max_tokens=40))])


async def main() -> None:
    """Both answers share the target's passes."""
    async with private_verifier(["--max-sessions", "2"]) as address, Agent.connect(address) as agent:
        for prompt, text in zip(PROMPTS, await asyncio.gather(*(answer(agent, p) for p in PROMPTS)), strict=True):
            print(f"> {prompt}\n{text}\n")


if __name__ == "__main__":
    asyncio.run(main())
