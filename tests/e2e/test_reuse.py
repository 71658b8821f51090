"""Sessions that are resumed: what is said to be reused is what need not be computed again. And answers that begin while
others are just being left.
"""

from __future__ import annotations

import asyncio
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from outrider.edge.agent import Agent
from outrider.edge.link import VerifierClient
from outrider.shared.errors import Reason
from outrider.shared.messages import Close, Commit, Finished, Grow, Open, Opened, Resume, TokenHash
from support.mortal import LONG, MortalVerifier, mortal_verifiers
from support.refusal import refused

PROMPT_IDS = tuple(97 + index % 26 for index in range(800))
TAKEN = 10
END = 40
REQUEST = Open(prompt_ids=PROMPT_IDS, sampling=LONG, seed=5, max_tokens=END)


async def decode(client: VerifierClient, request: Open | Resume, known: list[int], run_to: int) -> tuple[Opened, str]:
    """Decode on until `run_to` tokens are `known`; breaks the stream off unless the answer is complete."""
    link = client.open_stream()
    await link.send(request)
    opened = await link.receive()
    assert isinstance(opened, Opened)
    known += opened.missing_ids
    await link.send(Grow(1, len(known), run_to=run_to))
    while len(known) < run_to:
        commit = await link.receive()
        assert isinstance(commit, Commit)
        known += commit.tokens
    if run_to == END:
        assert isinstance(await link.receive(), Finished)
        await link.send(Close())
        await link.close()
    link.abandon()
    return opened, opened.session_id


def hash_of(ids: list[int]) -> int:
    return TokenHash([*PROMPT_IDS, *ids]).value


async def suspended(verifier: MortalVerifier, client: VerifierClient) -> tuple[list[int], str]:
    """An answer whose stream has broken, in the middle."""
    known: list[int] = []
    opened, session_id = await decode(client, REQUEST, known, TAKEN)
    assert opened.reused_length == 0
    assert verifier.text_rows == len(PROMPT_IDS) + TAKEN - 1
    await asyncio.sleep(0.2)
    return known, session_id


async def test_what_a_resumed_session_reuses_is_the_prefill_saved(tmp_path: Path) -> None:
    async with mortal_verifiers(tmp_path) as (verifier,):
        client = VerifierClient(verifier.address, own_connection=True)
        whole: list[int] = []
        await decode(client, REQUEST, whole, END)
        await verifier.kill()
        await verifier.start()
        known, session_id = await suspended(verifier, client)
        before = verifier.text_rows
        resume = Resume(session_id, 1, len(known), hash_of(known))
        opened, _ = await decode(client, resume, known, END)
        await client.close()
        assert known == whole
        # All text but the last token was cached: computed are that one and those that came after it.
        assert opened.reused_length == len(PROMPT_IDS) + TAKEN - 1
        assert verifier.text_rows - before == len(PROMPT_IDS) + END - 1 - opened.reused_length


async def test_a_verifier_that_was_restarted_reuses_nothing_and_says_so(tmp_path: Path) -> None:
    async with mortal_verifiers(tmp_path) as (verifier,):
        client = VerifierClient(verifier.address, own_connection=True)
        whole: list[int] = []
        await decode(client, REQUEST, whole, END)
        await verifier.kill()
        await verifier.start()
        known, session_id = await suspended(verifier, client)
        await verifier.kill()
        await verifier.start()
        with refused(Reason.SESSION_NOT_FOUND):
            await decode(client, Resume(session_id, 1, len(known), hash_of(known)), known, END)
        again = replace(REQUEST, committed_ids=tuple(known), prefix_of=session_id)
        opened, _ = await decode(client, again, known, END)
        await client.close()
        assert known == whole
        assert opened.reused_length == 0
        assert verifier.text_rows == len(PROMPT_IDS) + END - 1


@pytest.mark.parametrize("slots", ["1", "2"])
async def test_fifty_answers_begin_while_the_one_before_is_being_left(tmp_path: Path, slots: str) -> None:
    async with mortal_verifiers(tmp_path, 1, "--max-sessions", slots, pass_ms=3) as (verifier,):
        async with Agent.connect(verifier.address, drafter="tiny:0.5") as agent:
            alone = [(await agent.answer(prompt, LONG)).token_ids for prompt in ("left", "right")]
            for taken in range(50):
                stream = agent.stream("left", LONG)
                for _ in range(taken % 3 + 1):
                    await anext(stream)
                await stream.aclose()
                async for chunk in agent.stream("right", LONG.model_copy(update={"max_tokens": 4})):
                    if chunk.result is not None:
                        assert chunk.result.token_ids == alone[1][:4]
            both = await asyncio.gather(*(agent.answer(prompt, LONG) for prompt in ("left", "right")))
            assert [result.token_ids for result in both] == alone
        verifier.send(signal.SIGTERM)
        assert await verifier.ended() == 0
