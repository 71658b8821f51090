"""Ends and rollbacks at every place of a block: what one part of an answer leaves out, all others do."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from outrider.cloud.targets.tiny import TinyEngine
from outrider.edge.agent import Agent, AnswerOptions
from outrider.edge.chunks import Result
from outrider.shared.sampling.options import Sampling
from outrider.shared.token_tree import Origin
from support.serving import serving

GAMMA = 5
GAPS = AnswerOptions(want_gaps=True)


@pytest.fixture
async def verifier() -> AsyncIterator[str]:
    async with serving(TinyEngine(max_slots=4)) as address:
        yield address


async def ask(agent: Agent, prompt_ids: list[int], sampling: Sampling, options: AnswerOptions = GAPS) -> Result:
    """An answer whose chunks, ids, counts and gaps have to agree."""
    chunks = [chunk async for chunk in agent.stream_ids(prompt_ids, sampling, options)]
    result = chunks[-1].result
    assert result is not None
    assert "".join(chunk.text for chunk in chunks) == result.text
    assert [token for chunk in chunks for token in chunk.token_ids] == result.token_ids
    drafted = sum(len(chunk.token_ids) for chunk in chunks if chunk.origin is Origin.DRAFTED)
    stats = result.stats
    assert (stats["tokens"], stats["accepted"]) == (len(result.token_ids), drafted)
    assert stats["acceptance_rate"] == (round(drafted / stats["drafted"], 4) if stats["drafted"] else 0)
    assert stats["streams"] == 1, "a fault that the edge gets over is one"
    assert sum(stats["accepted_histogram"]) == stats["passes"]
    if options.want_gaps:
        assert len(result.gaps) == len(result.committed_ids)
    assert result.committed_ids[: len(result.token_ids)] == result.token_ids
    return result


@pytest.mark.parametrize("drafter", ["tiny:0.5", "scripted:right", "scripted:wrong"])
async def test_a_stop_text_cuts_text_ids_counts_gaps_and_cache_at_one_place(verifier: str, drafter: str) -> None:
    """A stop text of two tokens that begins at every offset of a block; then the answer is gone on with."""
    sampling = Sampling(max_tokens=50, seed=6, temperature=1.0, logit_bias={256: -100.0})
    prompt = [257, *b"cut", 256, 258]
    more = [256, 257, *b"more", 256, 258]
    async with (
        Agent.connect(verifier, drafter="none") as alone,
        Agent.connect(verifier, drafter=drafter, control="fixed", gamma=GAMMA) as agent,
    ):
        whole = await ask(alone, prompt, sampling)
        for offset in range(2 * GAMMA + 2):
            stop = whole.text[offset : offset + 2]
            kept = whole.text.index(stop)
            result = await ask(agent, prompt, sampling.model_copy(update={"stop": (stop,)}))
            assert (result.text, result.finish_reason) == (whole.text[:kept], "stop")
            assert result.token_ids == whole.token_ids[:kept]
            assert result.gaps == pytest.approx(whole.gaps[: len(result.gaps)])
            again = [*prompt, *result.token_ids, *more]
            following = await ask(agent, again, sampling, AnswerOptions(prefix_of=result.session_id))
            # A scripted drafter has taken the cache over before, to be told its text.
            if drafter.startswith("tiny"):
                assert following.stats["reused_tokens"] == len(prompt) + kept
            assert following.token_ids == (await ask(alone, again, sampling)).token_ids


@pytest.mark.parametrize("temperature", [0.0, 1.0])
async def test_each_id_of_an_answer_in_turn_as_stop_id_ends_it_in_a_block_of_any_offset(
    verifier: str, temperature: float
) -> None:
    """A drafter that knows the text but nothing of stop ids puts each of them at its place in a chain of guesses."""
    sampling = Sampling(max_tokens=40, seed=2, temperature=temperature, logit_bias={256: -100.0})
    prompt = [257, *b"stops", 256, 258]
    async with (
        Agent.connect(verifier, drafter="none") as alone,
        Agent.connect(verifier, drafter="tiny:0", control="fixed", gamma=GAMMA) as agent,
    ):
        whole = (await ask(alone, prompt, sampling)).token_ids
        offsets = set()
        for token in sorted(set(whole)):
            first = whole.index(token)
            options = AnswerOptions(stop_ids=frozenset({token}), want_gaps=True)
            result = await ask(agent, prompt, sampling, options)
            assert (result.token_ids, result.finish_reason) == (whole[:first], "stop")
            assert result.committed_ids == whole[: first + 1], "nothing after it"
            offsets.add(first % (GAMMA + 1))
        assert len(offsets) > GAMMA - 1


@pytest.mark.parametrize("right", range(GAMMA + 1))
async def test_right_for_n_then_wrong_over_two_hundred_tokens_is_the_targets_own(verifier: str, right: int) -> None:
    sampling = Sampling(max_tokens=200, seed=8, temperature=1.0, logit_bias={256: -100.0})
    prompt = [257, *b"rollback", 256, 258]
    async with (
        Agent.connect(verifier, drafter="none") as alone,
        Agent.connect(verifier, drafter=f"scripted:right-then-wrong:{right}", control="fixed", gamma=GAMMA) as agent,
    ):
        expected = await ask(alone, prompt, sampling)
        result = await ask(agent, prompt, sampling)
    assert len(result.token_ids) == 200
    assert result.committed_ids == expected.committed_ids
    assert result.gaps == pytest.approx(expected.gaps)
    # A pass ends with what it rejects, or with the end of its block.
    assert result.stats["accepted_histogram"][right] > 20
