"""A verifier that serves another target by now refuses an answer meant for the one before: an edge that stayed
connected would take the new one's text for the old one's.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from outrider.cloud.server import ServerConfig, running_server
from outrider.cloud.target import EngineTarget
from outrider.cloud.targets.tiny import TinyEngine
from outrider.cloud.tokens import new_token
from outrider.cloud.verifier import Verifier, VerifierConfig
from outrider.edge.agent import Agent
from outrider.edge.chunks import Chunk
from outrider.edge.drafters.tiny import TinyDrafter
from outrider.edge.interrupted import AnswerInterrupted
from outrider.harness.tiny_answers import PacedDraft
from outrider.shared.errors import Reason
from outrider.shared.sampling.options import Sampling
from outrider.shared.tiny import END
from outrider.shared.token_tree import Origin
from support.callers import tokens_path
from support.refusal import refused

SHORT = Sampling(max_tokens=8)


@contextlib.asynccontextmanager
async def serving_revision(
    revision: str, listen: str = "127.0.0.1:0", tokens: Path | None = None
) -> AsyncIterator[str]:
    verifier = Verifier(EngineTarget(TinyEngine()), VerifierConfig(revision=revision))
    async with running_server(verifier, ServerConfig(listen, tokens=tokens, grace_s=0)) as port:
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


async def test_one_that_serves_another_target_does_not_hide_that_the_right_one_may_come_back() -> None:
    long = Sampling(max_tokens=1500, logit_bias={END: -100.0})
    async with contextlib.AsyncExitStack() as stack, contextlib.AsyncExitStack() as first:
        address = await first.enter_async_context(serving_revision("1"))
        async with serving_revision("1") as other:
            agent = await stack.enter_async_context(Agent.connect([address, other], "none", patience_s=20))
            before = await agent.answer("hello", long)
            chunks = agent.stream("hello", long)
            await anext(chunks)
        await first.aclose()
        await stack.enter_async_context(serving_revision("2", address))

        async def come_back() -> None:
            await asyncio.sleep(1.5)
            await stack.enter_async_context(serving_revision("1", other))

        coming = asyncio.create_task(come_back())
        result = [chunk async for chunk in chunks][-1].result
        await coming
    assert result is not None
    assert (result.token_ids, result.stats["streams"] > 1) == (before.token_ids, True)


async def test_what_is_unverified_is_withdrawn_where_the_verifier_does_not_know_the_caller_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Slow enough to be in the middle when the verifier is back.
    open_quick = TinyDrafter.open
    monkeypatch.setattr(TinyDrafter, "open", lambda *arguments: PacedDraft(open_quick(*arguments), 20))
    long = Sampling(max_tokens=1500, logit_bias={END: -100.0})
    chunks: list[Chunk] = []
    is_back = False
    async with contextlib.AsyncExitStack() as stack, contextlib.AsyncExitStack() as first:
        address = await first.enter_async_context(serving_revision("1"))
        agent = await stack.enter_async_context(Agent.connect(address, "tiny:0.5", fallback="local"))
        with pytest.raises(AnswerInterrupted) as caught:
            async for chunk in agent.stream("hello", long):
                chunks.append(chunk)
                if len(chunks) == 3:
                    await first.aclose()
                if chunk.origin is Origin.UNVERIFIED and not is_back:
                    is_back = True
                    tokens = tokens_path(tmp_path, new_token("somebody-else"))
                    await stack.enter_async_context(serving_revision("1", address, tokens))
    assert caught.value.reason is Reason.UNAUTHENTICATED
    shown = ""
    for chunk in chunks:
        shown = shown[: chunk.retract.text_length] if chunk.retract is not None else shown
        shown += chunk.text
    assert shown == caught.value.partial.text
    assert any(chunk.retract is not None for chunk in chunks)
