"""Sixteen answers at once on one verifier: each gets the ids of its solo run, in fewer passes than solo runs need."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from outrider.cloud.server import ServerConfig, running_server
from outrider.cloud.target import EngineTarget
from outrider.cloud.targets.base import Engine
from outrider.cloud.targets.llama_cpp import LlamaCppEngine
from outrider.cloud.targets.tiny import TinyEngine
from outrider.cloud.verifier import Verifier, VerifierConfig
from outrider.edge.agent import Agent
from outrider.edge.chunks import Result
from outrider.shared.models.store import default_store
from outrider.shared.sampling.options import Sampling

SESSIONS = 16


async def ask(agent: Agent, index: int, tokens: int) -> Result:
    sampling = Sampling(max_tokens=tokens, temperature=[0.0, 0.7, 1.0][index % 3], seed=index)
    prompt = f"{'Tell me about ' * (index % 3)}the number {index}."
    result = [chunk async for chunk in agent.stream(prompt, sampling)][-1].result
    assert result is not None
    return result


async def check_sixteen_at_once(engine: Engine, drafter: str, tokens: int) -> None:
    verifier = Verifier(EngineTarget(engine), VerifierConfig())
    scheduler = verifier._scheduler
    async with running_server(verifier, ServerConfig("127.0.0.1:0")) as port:
        async with Agent.connect(f"127.0.0.1:{port}", drafter="none") as alone:
            solo_alone = [await ask(alone, index, tokens) for index in range(SESSIONS)]
        async with Agent.connect(f"127.0.0.1:{port}", drafter=drafter, control="fixed", gamma=4, branch=2) as agent:
            before = scheduler.passes
            solo = [await ask(agent, index, tokens) for index in range(SESSIONS)]
            solo_passes = scheduler.passes - before
            before = scheduler.passes
            together = await asyncio.gather(*(ask(agent, index, tokens) for index in range(SESSIONS)))
            passes_together = scheduler.passes - before
    for index in range(SESSIONS):
        assert solo[index].token_ids == solo_alone[index].token_ids, index
        assert together[index].token_ids == solo_alone[index].token_ids, index
    assert passes_together < solo_passes


async def test_sixteen_sessions_on_the_pseudo_model() -> None:
    await check_sixteen_at_once(TinyEngine(max_slots=SESSIONS), "tiny:0.5", 60)


async def test_sixteen_sessions_on_the_tiny_model_in_transformers(tiny_hf_dir: Path, tiny_draft_gguf: Path) -> None:
    import torch

    from outrider.cloud.targets.transformers import TransformersEngine

    torch.set_num_threads(1)
    engine = TransformersEngine(tiny_hf_dir, max_slots=SESSIONS, max_branches=128, context_length=256)
    await check_sixteen_at_once(engine, f"llama:{tiny_draft_gguf}", 24)


async def test_sixteen_sessions_on_the_tiny_model_in_llama_cpp(tiny_gguf: Path, tiny_draft_gguf: Path) -> None:
    engine = LlamaCppEngine(
        tiny_gguf, numerics="fast", max_slots=SESSIONS, max_branches=128, context_length=256, threads=1
    )
    await check_sixteen_at_once(engine, f"llama:{tiny_draft_gguf}", 24)


@pytest.mark.models
async def test_sixteen_sessions_on_a_real_model() -> None:
    path = default_store().path("smollm2-135m")
    engine = LlamaCppEngine(path, max_slots=SESSIONS, max_branches=16, context_length=256)
    assert engine.spec.numerics == "exact"
    await check_sixteen_at_once(engine, "scripted:right-then-wrong:2", 16)


MAKERS: dict[str, Callable[[Path, Path], Engine]] = {
    "llama_cpp": lambda _, gguf: LlamaCppEngine(gguf, numerics="fast", context_length=256, threads=1),
    "transformers": lambda hf, _: _transformers(hf),
}


def _transformers(directory: Path) -> Engine:
    from outrider.cloud.targets.transformers import TransformersEngine

    return TransformersEngine(directory, max_slots=4, max_branches=16, context_length=256)


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize(
    "shape",
    [
        *(
            {"control": "fixed", "gamma": gamma, "branch": branch}
            for gamma, branch in ((1, 1), (3, 2), (5, 1), (8, 1), (8, 2))
        ),
        {"control": "ratio"},
    ],
    ids=str,
)
async def test_the_whole_product_is_lossless_on_a_single_precision_model(
    kind: str, shape: dict[str, Any], tiny_hf_dir: Path, tiny_gguf: Path, tiny_draft_gguf: Path
) -> None:
    verifier = Verifier(EngineTarget(MAKERS[kind](tiny_hf_dir, tiny_gguf)), VerifierConfig())
    async with running_server(verifier, ServerConfig("127.0.0.1:0")) as port:
        address = f"127.0.0.1:{port}"
        async with Agent.connect(address, drafter="none") as alone:
            expected = [await ask(alone, index, 40) for index in range(6)]
        for drafter in (f"llama:{tiny_draft_gguf}", f"llama:{tiny_gguf}", "scripted:right-then-wrong:2"):
            for pace in ("patient", "eager"):
                async with Agent.connect(address, drafter=drafter, pace=pace, **shape) as agent:
                    for index in range(6):
                        assert (await ask(agent, index, 40)).token_ids == expected[index].token_ids
