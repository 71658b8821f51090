"""A hundred answers, in each of which the verifier that serves it is killed: each has the ids of an undisturbed run."""

from __future__ import annotations

import asyncio
import random
import sys
import time
from pathlib import Path

import pytest

from outrider.edge.agent import Agent
from outrider.shared.sampling.options import Sampling
from support.mortal import mortal_verifiers
from support.serving import serving

KILLS = 100
TOKENS = 60
DRAFTERS = ("none", "tiny:0.5", "scripted:right-then-wrong:3")


def sampling(index: int) -> Sampling:
    return Sampling(
        max_tokens=TOKENS, temperature=(0.0, 0.8, 1.2)[index % 3], seed=index, logit_bias={256: -100.0}
    )  # fmt: skip


@pytest.mark.slow
async def test_a_hundred_killed_verifiers_change_no_id(tmp_path: Path) -> None:
    rng = random.Random(3)
    identical, in_pass, resumed_streams = 0, 0, 0
    began_s = time.monotonic()
    async with serving() as address, Agent.connect(address, drafter="none") as agent:
        expected = [(await agent.answer(f"kill {index}", sampling(index))).token_ids for index in range(KILLS)]
    async with mortal_verifiers(tmp_path, 2) as verifiers:
        for index in range(KILLS):
            first, second = verifiers[index % 2], verifiers[1 - index % 2]
            kill_at = rng.randrange(1, TOKENS // 2)
            drafter = DRAFTERS[index % len(DRAFTERS)]
            given: list[int] = []
            restart: asyncio.Task[None] | None = None
            async with Agent.connect([first.address, second.address], drafter=drafter) as agent:
                async for chunk in agent.stream(f"kill {index}", sampling(index)):
                    given += chunk.token_ids
                    if chunk.result is not None:
                        resumed_streams += chunk.result.stats["streams"] - 1
                    elif len(given) >= kill_at and restart is None:
                        assert len(given) < TOKENS, "in mid-answer"
                        # At any moment of a pass.
                        await asyncio.sleep(rng.uniform(0, 0.02))
                        in_pass += first.is_in_pass
                        await first.kill()
                        restart = asyncio.create_task(first.start())
            assert restart is not None
            identical += given == expected[index]
            await restart
    print(
        f"\n{identical}/{KILLS} identical, {in_pass} killed in mid-pass, {resumed_streams} further streams, "
        f"{time.monotonic() - began_s:.0f} s",
        file=sys.stderr,
    )
    assert identical == KILLS
    assert resumed_streams >= KILLS
