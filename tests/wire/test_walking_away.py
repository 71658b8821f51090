"""Who walks away in the middle of an answer gets the event loop back."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from outrider.edge.agent import Agent
from outrider.edge.control.fixed import FixedControl
from outrider.shared.sampling.options import Sampling
from support.serving import serving

MOST_STEPS = 20_000


async def test_a_policy_that_wants_to_send_is_not_asked_for_ever_once_the_answer_is_being_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps = 0
    next_step = FixedControl.next_step

    def counted(self: FixedControl, *arguments: Any) -> Any:
        nonlocal steps
        steps += 1
        # Nothing else would run any more, not even a limit in time.
        assert steps < MOST_STEPS, "the loop is blocked"
        return next_step(self, *arguments)

    monkeypatch.setattr(FixedControl, "next_step", counted)
    rng = random.Random(1)
    async with serving() as address, Agent.connect(address, drafter="tiny:0.5", control="fixed", gamma=3) as agent:
        for _ in range(100):
            answer = asyncio.create_task(_read(agent))
            await asyncio.sleep(rng.random() * 0.03)
            answer.cancel()
            await asyncio.wait([answer])
    assert steps < MOST_STEPS


async def _read(agent: Agent) -> None:
    async for _ in agent.stream_ids([97], Sampling(max_tokens=40, seed=3)):
        pass
