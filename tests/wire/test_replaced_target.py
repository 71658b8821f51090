"""A verifier that serves another target by now refuses an answer meant for the one before: an edge that stayed
connected would take the new one's text for the old one's.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from outrider.cloud.server import ServerConfig, running_server
from outrider.cloud.target import EngineTarget
from outrider.cloud.targets.tiny import TinyEngine
from outrider.cloud.verifier import Verifier, VerifierConfig
from outrider.edge.agent import Agent
from outrider.shared.errors import Reason
from outrider.shared.sampling.options import Sampling
from support.refusal import refused

SHORT = Sampling(max_tokens=8)


@contextlib.asynccontextmanager
async def serving_revision(revision: str, listen: str = "127.0.0.1:0") -> AsyncIterator[str]:
    verifier = Verifier(EngineTarget(TinyEngine()), VerifierConfig(revision=revision))
    async with running_server(verifier, ServerConfig(listen)) as port:
        yield f"127.0.0.1:{port}"


async def test_an_agent_is_told_that_its_verifier_serves_another_target() -> None:
    async with contextlib.AsyncExitStack() as agents:
        async with serving_revision("1") as address:
            agent = await agents.enter_async_context(Agent.connect(address, "tiny:0.5"))
            before = await agent.answer("hello", SHORT)
        async with serving_revision("1", address):
            assert (await agent.answer("hello", SHORT)).token_ids == before.token_ids
        async with serving_revision("2", address):
            with refused(Reason.TARGET_DIFFERS):
                await agent.answer("hello", SHORT)


async def test_it_goes_on_at_another_verifier_that_serves_the_old_one() -> None:
    async with contextlib.AsyncExitStack() as stack:
        other = await stack.enter_async_context(serving_revision("1"))
        async with serving_revision("1") as address:
            agent = await stack.enter_async_context(Agent.connect([address, other], "tiny:0.5"))
            before = await agent.answer("hello", SHORT)
        async with serving_revision("2", address):
            assert (await agent.answer("hello", SHORT)).token_ids == before.token_ids
