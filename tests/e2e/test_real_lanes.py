"""The lanes of the real draft model: whatever texts a step takes in, its guesses are those of a fresh session up to the
noise of kernels, and what was fed once is not fed again.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from outrider.edge.drafters.base import Proposal, propose_one
from outrider.edge.drafters.llama_cpp import LANES, LlamaDrafter, LlamaDraftSession
from outrider.shared.errors import OutriderError, Reason
from outrider.shared.llama.runtime import LlamaContext, Row
from outrider.shared.models.store import default_store
from outrider.shared.sampling.choose import Chooser
from outrider.shared.sampling.options import Sampling

pytestmark = pytest.mark.models

SIZE = 151_936
PROMPT = [750, 17023, 4136, 955, 65, 982, 262, 421, 220, 16, 25, 198]
# Rows computed in other company differ a little; measured on this model far less.
NOISE = 0.05


@pytest.fixture(scope="module")
def drafter() -> Iterator[LlamaDrafter]:
    made = LlamaDrafter(default_store().path("qwen2.5-coder-0.5b"), context_length=512)
    yield made
    made._free()


@pytest.fixture
def fed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Rows of each call of the library."""
    counts: list[int] = []
    decode = LlamaContext.decode

    def counting(self: LlamaContext, rows: Sequence[Row]) -> None:
        counts.append(len(rows))
        decode(self, rows)

    monkeypatch.setattr(LlamaContext, "decode", counting)
    return counts


def open_session(drafter: LlamaDrafter, prompt: Sequence[int] = PROMPT) -> LlamaDraftSession:
    return drafter.open(prompt, Chooser(Sampling(), 1, prompt, SIZE))


def forget(drafter: LlamaDrafter) -> None:
    """Empty all lanes."""
    for stream in drafter._streams:
        for lane in stream.lanes:
            drafter._context.truncate(lane.sequence, 0)
            lane.cached.clear()


def assert_close(found: Sequence[Proposal], expected: Sequence[Proposal]) -> None:
    if expected[0].probability - expected[1].probability > NOISE:
        assert found[0].token == expected[0].token
    said = {proposal.token: proposal.probability for proposal in found}
    for proposal in expected[:2]:
        if proposal.token in said:
            assert said[proposal.token] == pytest.approx(proposal.probability, abs=NOISE)
        else:
            assert proposal.probability - found[-1].probability < NOISE


async def check_against_fresh(
    drafter: LlamaDrafter, steps: Sequence[tuple[Sequence[int], list[list[int]], list[list[Proposal]]]]
) -> None:
    """What was said to the texts of each step is what is said to them one by one with nothing cached."""
    for prompt, texts, found in steps:
        for text, proposals in zip(texts, found, strict=True):
            forget(drafter)
            session = open_session(drafter, prompt)
            assert_close(proposals, await propose_one(session, text, 4))
            await session.close()


async def test_a_growing_tree_gets_the_guesses_of_fresh_sessions_and_feeds_little_twice(
    drafter: LlamaDrafter, fed: list[int]
) -> None:
    """Also of texts equal to what is cached, of shorter ones, and of more than there are lanes."""
    rng = random.Random(4)
    forget(drafter)
    session = open_session(drafter)
    steps: list[tuple[Sequence[int], list[list[int]], list[list[Proposal]]]] = []
    frontier: list[list[int]] = [[]]
    text_count = 0
    for _ in range(9):
        texts = rng.sample(frontier, min(8, len(frontier)))
        found = await session.propose(texts, 4)
        text_count += len(texts)
        frontier = [text for text in frontier if text not in texts]
        frontier += [[*text, guess.token] for text, said in zip(texts, found, strict=True) for guess in said[:3]]
        steps.append((PROMPT, texts, found))
    assert sum(fed) < len(PROMPT) + 1.5 * text_count
    again = steps[-1][1]
    many = frontier[: LANES + 3]
    shorter = [text[:-1] for text in again[:1]]
    bare: list[list[int]] = [[]]
    for texts in (again, shorter, bare, many):
        steps.append((PROMPT, texts, await session.propose(texts, 4)))
    await session.close()
    await check_against_fresh(
        drafter, [*rng.sample(steps[1:9], 3), *steps[9:12], (PROMPT, many[-4:], steps[-1][2][-4:])]
    )


async def test_two_answers_at_once_keep_apart(drafter: LlamaDrafter) -> None:
    forget(drafter)
    prompts = [PROMPT, [*PROMPT[:6], 785, 6722, 315, 9625, 374]]
    sessions = [open_session(drafter, prompt) for prompt in prompts]
    steps: list[tuple[Sequence[int], list[list[int]], list[list[Proposal]]]] = []
    texts: list[list[list[int]]] = [[[]], [[]]]
    for _ in range(4):
        for which, session in enumerate(sessions):
            found = await session.propose(texts[which], 4)
            steps.append((prompts[which], texts[which], found))
            pairs = list(zip(texts[which], found, strict=True))
            texts[which] = [[*text, guess.token] for text, said in pairs for guess in said[:2]][:4]
    for session in sessions:
        await session.close()
    await check_against_fresh(drafter, steps[-4:])


async def test_a_long_answer_with_many_side_branches_does_not_run_out_of_cells(drafter: LlamaDrafter) -> None:
    """Four long answers one after the other, each in a stream of its own, all of which stay open."""
    forget(drafter)
    sessions = [open_session(drafter, [*PROMPT, 100 + number]) for number in range(4)]
    for session in sessions:
        answer = [*range(1000, 1240)]
        for _ in range(3):
            branches = [[*answer[:-back], 5, *answer[-back:]] for back in range(6, 42, 6)]
            found = await session.propose([answer, *branches], 2)
            assert all(len(said) == 2 for said in found)
            answer = [*answer, *range(2000, 2010)]
    for session in sessions:
        await session.close()


async def test_a_failed_decode_leaves_the_drafter_usable(
    drafter: LlamaDrafter, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget(drafter)
    session = open_session(drafter)
    texts = [[*range(600, 605)], [*range(600, 603)], [700, 701]]
    await session.propose(texts[:1], 4)

    def failing(self: Any, rows: Sequence[Row]) -> None:
        raise OutriderError(Reason.INTERNAL, "no luck")

    with monkeypatch.context() as patched:
        patched.setattr(LlamaContext, "decode", failing)
        with pytest.raises(OutriderError):
            await session.propose(texts, 4)
    found = await session.propose(texts, 4)
    await session.close()
    await check_against_fresh(drafter, [(PROMPT, texts, found)])
