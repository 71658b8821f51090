"""The product's promise, over real gRPC against a verifier in a process of its own: the ids are the target's own,
whatever drafts, how far, in which shape and at which pace.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from outrider.edge.agent import Agent
from outrider.edge.chunks import Result
from outrider.shared.sampling.options import Sampling
from support.process import verifier_process

DRAFTERS = ("tiny:0", "tiny:0.5", "tiny:3", "scripted:right", "scripted:wrong", "scripted:right-then-wrong:2")
SAMPLINGS = (
    Sampling(max_tokens=120, seed=11),
    Sampling(max_tokens=120, seed=2**63 + 12, temperature=0.7, top_p=0.8),
    Sampling(max_tokens=120, seed=13, temperature=1.0),
    Sampling(
        max_tokens=120, seed=14, temperature=1.3, top_k=20, min_p=0.02, repetition_penalty=1.2,
        frequency_penalty=0.4, presence_penalty=0.3, logit_bias={101: 4.0, 32: -100.0},
    ),
    Sampling(max_tokens=120, repetition_penalty=1.3, presence_penalty=1.0),
)  # fmt: skip
PROMPTS = ("one", "a longer prompt, with more than one word in it", "ünïcode 你好")


@pytest.fixture(scope="module")
def verifier() -> Iterator[str]:
    with verifier_process("--target", "tiny", "--max-sessions", "8", "--max-branches", "64") as address:
        yield address


@pytest.fixture(scope="module")
def references() -> dict[tuple[str, int], Result]:
    return {}


async def ask(agent: Agent, prompt: str, sampling: Sampling) -> Result:
    chunks = [chunk async for chunk in agent.stream(prompt, sampling)]
    result = chunks[-1].result
    assert result is not None
    assert "".join(chunk.text for chunk in chunks) == result.text
    assert result.stats["streams"] == 1, "a fault that the edge gets over is one"
    assert [token for chunk in chunks for token in chunk.token_ids] == result.token_ids
    return result


async def reference(verifier: str, kept: dict[tuple[str, int], Result], prompt: str, index: int) -> Result:
    """The target alone, asked once."""
    if (prompt, index) not in kept:
        async with Agent.connect(verifier, drafter="none") as alone:
            kept[prompt, index] = await ask(alone, prompt, SAMPLINGS[index])
    return kept[prompt, index]


@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize(("gamma", "branch"), [(1, 1), (3, 1), (5, 1), (8, 1), (3, 2), (5, 3)])
async def test_ids_equal_the_target_alone_for_every_drafter_and_shape(
    verifier: str, references: dict[tuple[str, int], Result], drafter: str, gamma: int, branch: int
) -> None:
    for pace in ("patient", "eager"):
        async with Agent.connect(
            verifier, drafter=drafter, control="fixed", pace=pace, gamma=gamma, branch=branch
        ) as agent:
            for prompt, index in itertools.product(PROMPTS, range(len(SAMPLINGS))):
                expected = await reference(verifier, references, prompt, index)
                result = await ask(agent, prompt, SAMPLINGS[index])
                assert result.token_ids == expected.token_ids, (pace, prompt, index)
                assert (result.text, result.finish_reason) == (expected.text, expected.finish_reason)


@pytest.mark.parametrize("pace", ["patient", "eager"])
@pytest.mark.parametrize("drafter", DRAFTERS)
async def test_ids_equal_the_target_alone_under_the_ratio_policy(verifier: str, drafter: str, pace: str) -> None:
    """Short answers, every sampling with some drafter: these drafters take no time, and so trees grow large."""
    first = DRAFTERS.index(drafter) + (pace == "eager")
    async with (
        Agent.connect(verifier, drafter="none") as alone,
        Agent.connect(verifier, drafter=drafter, control="ratio", pace=pace) as agent,
    ):
        for number, prompt in enumerate(PROMPTS[:2]):
            sampling = SAMPLINGS[(first + number) % len(SAMPLINGS)].model_copy(update={"max_tokens": 16})
            expected = await ask(alone, prompt, sampling)
            result = await ask(agent, prompt, sampling)
            assert (result.token_ids, result.finish_reason) == (expected.token_ids, expected.finish_reason)


async def test_a_right_drafter_saves_passes_and_a_wrong_one_costs_none(verifier: str) -> None:
    sampling = Sampling(max_tokens=60, seed=5, temperature=1.0, logit_bias={256: -100.0})
    passes = {}
    for drafter in ("none", "scripted:right", "scripted:wrong", "scripted:right-then-wrong:2"):
        async with Agent.connect(verifier, drafter=drafter, control="fixed", gamma=5) as agent:
            passes[drafter] = (await ask(agent, "count", sampling)).stats["passes"]
    assert passes == {
        "none": 60, "scripted:right": 10, "scripted:wrong": 60, "scripted:right-then-wrong:2": 20,
    }  # fmt: skip


async def test_one_seed_gives_one_answer_and_another_seed_another(verifier: str) -> None:
    async with Agent.connect(verifier, drafter="tiny:0.5") as agent:
        first = await ask(agent, "seeds", Sampling(temperature=1.0, seed=1, max_tokens=40))
        again = await ask(agent, "seeds", Sampling(temperature=1.0, seed=1, max_tokens=40))
        other = await ask(agent, "seeds", Sampling(temperature=1.0, seed=2, max_tokens=40))
        drawn = await ask(agent, "seeds", Sampling(temperature=1.0, max_tokens=40))
        repeated = await ask(agent, "seeds", Sampling(temperature=1.0, max_tokens=40, seed=drawn.stats["seed"]))
    assert first.token_ids == again.token_ids
    assert first.token_ids != other.token_ids
    assert drawn.token_ids == repeated.token_ids


@pytest.mark.parametrize("gamma", [1, 4, 7])
async def test_a_stop_text_cuts_text_ids_and_counts_at_one_place(verifier: str, gamma: int) -> None:
    """A stop text of two tokens at every offset of the answer."""
    sampling = Sampling(max_tokens=60, seed=3, temperature=1.0)
    async with (
        Agent.connect(verifier, drafter="none") as alone,
        Agent.connect(verifier, drafter="tiny:0.5", gamma=gamma) as agent,
    ):
        whole = await ask(alone, "stop", sampling)
        assert len(whole.text) > 30
        for offset in range(0, 30):
            stop = whole.text[offset : offset + 2]
            cut = sampling.model_copy(update={"stop": (stop,)})
            result = await ask(agent, "stop", cut)
            kept = whole.text.index(stop)
            assert (result.text, result.finish_reason) == (whole.text[:kept], "stop")
            assert result.token_ids == whole.token_ids[:kept]
            assert result.stats["tokens"] == kept


async def test_an_answer_of_one_token_and_an_answer_that_stops_at_once(verifier: str) -> None:
    async with Agent.connect(verifier, drafter="tiny:0.5") as agent:
        one = await ask(agent, "one", Sampling(max_tokens=1))
        assert (len(one.token_ids), one.finish_reason) == (1, "length")
        none = await ask(agent, "one", Sampling(max_tokens=9, logit_bias={256: 1000.0}))
        assert (none.token_ids, none.text, none.finish_reason) == ([], "", "stop")


async def test_a_biased_id_never_appears(verifier: str) -> None:
    """An id that the drafter always proposes but the options forbid."""
    async with Agent.connect(verifier, drafter="tiny:0.5") as agent:
        result = await ask(agent, "spaces", Sampling(max_tokens=100, logit_bias={32: -100.0}, temperature=1.0, seed=1))
    assert 32 not in result.token_ids
