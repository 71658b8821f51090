"""A model in half precision, over the product: with blocks of any length its ids differ from those without guesses at
near ties only, and every result says that it is not exact. In single precision none differs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from outrider.cloud.server import ServerConfig, running_server
from outrider.cloud.target import EngineTarget
from outrider.cloud.verifier import Verifier, VerifierConfig
from outrider.edge.agent import Agent, AnswerOptions
from outrider.edge.commands.compare import first_difference, gap_at, is_near_tie
from outrider.shared.sampling.options import Sampling

GAPS = AnswerOptions(want_gaps=True)
# The second one is slow on a CPU.
GAMMAS = {"fp32": (1, 2, 3, 4, 6, 8, 12, 16), "bf16": (1, 5, 16)}


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
async def test_blocks_of_one_to_sixteen_differ_at_near_ties_only(
    dtype: Literal["fp32", "bf16"], tiny_hf_dir: Path, tiny_draft_gguf: Path
) -> None:
    from outrider.cloud.targets.transformers import TransformersEngine

    engine = TransformersEngine(tiny_hf_dir, dtype=dtype, max_slots=3, context_length=128)
    verifier = Verifier(EngineTarget(engine), VerifierConfig())
    sampling = Sampling(max_tokens=32)
    async with running_server(verifier, ServerConfig("127.0.0.1:0")) as port:
        address = f"127.0.0.1:{port}"
        async with Agent.connect(address, drafter="none") as alone:
            expected = [await alone.answer(f"say {number}", sampling, GAPS) for number in range(3)]
            info = alone.info
        for gamma in GAMMAS[dtype]:
            async with Agent.connect(
                address, drafter=f"llama:{tiny_draft_gguf}", control="fixed", gamma=gamma, pace="patient"
            ) as agent:
                for number, theirs in enumerate(expected):
                    result = await agent.answer(f"say {number}", sampling, GAPS)
                    assert result.stats["numerics"] == info.numerics
                    assert result.stats["streams"] == 1
                    difference = first_difference(theirs, result)
                    if dtype == "fp32":
                        assert difference is None, (gamma, number)
                    elif difference is not None:
                        assert is_near_tie(gap_at(theirs, difference), info), (gamma, number, difference)
    if dtype == "bf16":
        assert info.numerics == "fast"
