"""The pseudo model's engine against the suite, and its own strictness."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from conformance.engine_suite import EngineConformance
from outrider.cloud.targets.base import ROOT_PARENT, Engine, SlotRows
from outrider.cloud.targets.tiny import TinyEngine
from outrider.shared.tiny import END, TINY_PADDED_WIDTH, TINY_SIZE, tiny_logits


class TestTinyEngine(EngineConformance):
    bit_exact = True

    @pytest.fixture
    def engine(self) -> Engine:
        return TinyEngine(max_slots=4, context_length=512)


def _use_after_close(engine: TinyEngine) -> None:
    engine.close()
    engine.rewind(0, 0)


MISUSES: dict[str, Callable[[TinyEngine], object]] = {
    "nothing to append": lambda e: e.forward([SlotRows(0, [])]),
    "slot 4 of 4": lambda e: e.forward([SlotRows(4, [1])]),
    "named twice": lambda e: e.forward([SlotRows(1, [1]), SlotRows(1, [2])]),
    "has parent 0": lambda e: e.forward([SlotRows(0, [1], [2], [0])]),
    "lacks a token or a parent": lambda e: e.forward([SlotRows(0, [1], [2], [])]),
    "without logits": lambda e: e.forward([SlotRows(0, [1], [2], [ROOT_PARENT], want_logits=False)]),
    "two siblings": lambda e: e.forward([SlotRows(0, [1], [2, 2], [ROOT_PARENT, ROOT_PARENT])]),
    "token 260": lambda e: e.forward([SlotRows(0, [1], [260], [ROOT_PARENT])]),
    "positions of 16": lambda e: e.forward([SlotRows(0, [1] * 15, [2, 3], [ROOT_PARENT, 0])]),
    "side branches": lambda e: e.forward([SlotRows(0, [1], [2, 3, 4, 5], [ROOT_PARENT] * 4)]),
    "has no node": lambda e: e.keep(3, [1]),
    "hangs below": lambda e: e.keep(3, [0, 0]),
    "undecided": lambda e: e.forward([SlotRows(3, [1])]),
    "caches 1 tokens": lambda e: e.rewind(3, 2),
    "closed": _use_after_close,
}


@pytest.mark.parametrize("message", MISUSES)
def test_misuse_fails_by_name_and_leaves_slots_as_they_were(message: str) -> None:
    engine = TinyEngine(max_slots=4, context_length=16, max_branches=2)
    engine.forward([SlotRows(3, [7], [8], [ROOT_PARENT])])
    with pytest.raises(AssertionError, match=message):
        MISUSES[message](engine)
    assert [engine.cached_length(s) for s in range(4)] == [0, 0, 0, 1]


def test_rows_end_with_the_next_call() -> None:
    engine = TinyEngine()
    row = engine.forward([SlotRows(0, [1])])[0]
    row.row(ROOT_PARENT)
    engine.rewind(1, 0)
    with pytest.raises(AssertionError, match="until the engine's next call"):
        row.row(ROOT_PARENT)


def test_pseudo_model_rambles_stops_and_is_guessed_often_by_its_perturbed_copy() -> None:
    lengths, right, total = [], 0, 0
    for seed in range(24):
        text = list(b"prompt %d" % seed)
        start = len(text)
        while text[-1] != END and len(text) < start + 120:
            token = int(tiny_logits(text)[:TINY_SIZE].argmax())
            right += int(tiny_logits(text, perturbation=0.5)[:TINY_SIZE].argmax()) == token
            total += 1
            text.append(token)
        lengths.append(len(text) - start)
        assert all(t < 0x80 or t == END for t in text)
    assert 0.65 < right / total < 0.85
    assert np.median(lengths) > 24
    assert min(lengths) < 120, "no answer stopped by itself"


def test_padding_of_the_pseudo_model_would_win_if_it_were_not_masked() -> None:
    row = tiny_logits(b"any text")
    assert row.shape == (TINY_PADDED_WIDTH,)
    assert row.dtype == np.float32
    assert np.isfinite(row).all()
    assert int(row.argmax()) >= TINY_SIZE
