"""The llama.cpp engine keeps the contract of engines, to the bit with exact numerics."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from conformance.engine_suite import EngineConformance
from outrider.cloud.targets.base import SlotRows
from outrider.cloud.targets.llama_cpp import LlamaCppEngine
from outrider.shared.errors import OutriderError, Reason


class TestExact(EngineConformance):
    """Quantised weights: rows must not depend on what shares their pass."""

    bit_exact = True
    tolerance = 0.0

    @pytest.fixture
    def engine(self, tiny_q8_gguf: Path) -> Iterator[LlamaCppEngine]:
        engine = LlamaCppEngine(tiny_q8_gguf, context_length=256, max_slots=6, max_branches=16, threads=1)
        yield engine
        engine.close()


class TestFast(EngineConformance):
    """Single-precision weights, whose kernels depend a little on the number of rows."""

    bit_exact = False
    tolerance = 0.05

    @pytest.fixture
    def engine(self, tiny_gguf: Path) -> Iterator[LlamaCppEngine]:
        engine = LlamaCppEngine(tiny_gguf, numerics="fast", context_length=256, max_slots=6, max_branches=16, threads=1)
        yield engine
        engine.close()


def test_exact_numerics_are_declared_only_where_the_probe_found_them(tiny_gguf: Path, tiny_q8_gguf: Path) -> None:
    exact = LlamaCppEngine(tiny_q8_gguf, context_length=256, threads=1)
    assert (exact.spec.numerics, exact.spec.near_tie_gap) == ("exact", 0.0)
    exact.close()
    fast = LlamaCppEngine(tiny_q8_gguf, context_length=256, numerics="fast", threads=1)
    assert fast.spec.numerics == "fast"
    assert fast.spec.near_tie_gap > 0
    fast.close()
    try:
        found = LlamaCppEngine(tiny_gguf, context_length=256, threads=1)
    except OutriderError as error:
        assert error.reason is Reason.MODEL_UNSUPPORTED
    else:
        found.close()


def test_a_context_longer_than_the_model_was_trained_for_is_refused(tiny_q8_gguf: Path) -> None:
    with pytest.raises(OutriderError, match="100000") as refused:
        LlamaCppEngine(tiny_q8_gguf, context_length=100_000)
    assert refused.value.reason is Reason.MODEL_UNSUPPORTED


def test_a_winning_side_branch_is_not_fed_again(tiny_q8_gguf: Path) -> None:
    engine = LlamaCppEngine(tiny_q8_gguf, context_length=256, max_slots=2, max_branches=4, threads=1)
    engine.forward([SlotRows(0, [1, 2, 3], [4, 5, 6], [-1, -1, 1])])
    engine.keep(0, [1, 2])
    assert engine.cached_length(0) == 5
    (after,) = engine.forward([SlotRows(0, [7])])
    row = after.row(-1).copy()
    engine.keep(0, ())
    (alone,) = engine.forward([SlotRows(1, [1, 2, 3, 5, 6, 7])])
    assert np.array_equal(alone.row(-1), row)
    engine.close()
