"""A short experiment at load: are a row's logits the same bits whatever shares its pass, and are they the model's own?
It drives an engine through its public calls and leaves its slots empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from outrider.cloud.targets.base import ROOT_PARENT, Engine, SlotRows
from outrider.cloud.targets.transformers_load import DtypeName

# The second prompt is tried only while rows are bit-equal: kernels may change with the length they read.
PROMPT_LENGTHS, CHAIN_TOKENS = (8, 150), 12
# The kernels' usual steps come first; the rest is tried only while rows are still bit-equal.
WIDTHS = (2, 4, 8, 12, 3, 5, 6, 7, 9, 10, 11)
MEASURED_WIDTHS = 4
_SEED = 7

# Rounding moves each of the two best scores; the floor covers what a short probe does not meet. fp32: differences of
# 1e-5 to 1e-4 are usual. bf16 and fp16: scores of 16 to 32 lie 1/8 (bf16) apart, so a step of each is 0.25.
_GAP_FLOOR: dict[DtypeName, float] = {"fp32": 1e-3, "bf16": 0.25, "fp16": 0.25}
_GAP_SAFETY = 4.0
# Part of the largest score by which slots and the plain model may differ through rounding.
_PLAIN_TOLERANCE: dict[DtypeName, float] = {"fp32": 0.01, "bf16": 0.15, "fp16": 0.15}


class ProbedEngine(Engine, Protocol):
    """An engine that can also run its model without slots."""

    def plain_logits(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        """Logits after every token, [n, width], by the model's own forward."""
        ...


@dataclass(frozen=True, slots=True)
class Probe:
    """What was found: whether rows are exact, the largest difference between pass shapes, and from the plain model."""

    exact: bool
    largest_difference: float
    plain_difference: float
    plain_limit: float


def near_tie_gap(dtype: DtypeName, largest_difference: float) -> float:
    """Largest gap of the two best scores that a change of pass shape may turn around, from a measured difference."""
    return max(_GAP_FLOOR[dtype], _GAP_SAFETY * largest_difference)


def probe_rows(engine: ProbedEngine, dtype: DtypeName) -> Probe:
    """Compare rows fed one at a time with the same rows in chains of 1 to 12, after a prompt fed otherwise, in a tree,
    and beside neighbours.

    Only fp32 can be found exact: 16-bit rounding hides most differences of summation from a short probe (in bf16, 6 of
    480 rows differed after a probe that had met none).
    """
    generator = np.random.default_rng(_SEED)
    largest = plain_difference = plain_limit = 0.0
    for length in PROMPT_LENGTHS:
        if length > PROMPT_LENGTHS[0] and (largest > 0 or dtype != "fp32"):
            break
        if length + CHAIN_TOKENS > engine.spec.context_length:
            break
        tokens: list[int] = generator.integers(0, engine.vocabulary.size, length + CHAIN_TOKENS).tolist()
        alone = [_append(engine, 0, [t])[0] for t in tokens][length - 1 :]
        largest = max(largest, _largest_difference(engine, tokens, alone))
        plain = engine.plain_logits(tokens)[length - 1 :]
        plain_difference = max(plain_difference, float(np.abs(plain - np.stack(alone)).max()))
        plain_limit = _PLAIN_TOLERANCE[dtype] * float(np.abs(plain).max())
    return Probe(dtype == "fp32" and largest == 0.0, largest, plain_difference, plain_limit)


def _largest_difference(engine: Engine, tokens: list[int], alone: list[NDArray[np.float32]]) -> float:
    """Largest difference of a logit from `alone`, the rows after the prompt and after each token of the chain."""
    prompt, chain = tokens[:-CHAIN_TOKENS], tokens[-CHAIN_TOKENS:]
    largest = 0.0

    def compare(rows: Sequence[NDArray[np.float32]]) -> None:
        nonlocal largest
        pairs = zip(rows, alone, strict=False)
        largest = max(largest, *(float(np.abs(row - expected).max()) for row, expected in pairs))

    engine.rewind(0, 0)
    compare(_append(engine, 0, prompt))
    for tried, width in enumerate(WIDTHS):
        if tried >= MEASURED_WIDTHS and largest > 0:
            break
        engine.rewind(0, len(prompt) - 1)
        rows = _append(engine, 0, prompt[-1:], chain[: width - 1])
        # What the wide pass cached is read by one more row.
        engine.keep(0, range(width - 1))
        compare([*rows, *_append(engine, 0, chain[width - 1 : width])])
    compare(_beside_neighbours(engine, prompt, chain[:3]))
    compare(_in_tree(engine, prompt, chain[:4], tokens[0]))
    for slot in range(engine.spec.max_slots):
        engine.rewind(slot, 0)
    return largest


def _append(engine: Engine, slot: int, append: list[int], chain: Sequence[int] = ()) -> list[NDArray[np.float32]]:
    """Rows of the last appended token and of `chain` below it; copied, as a row is valid until the next call."""
    rows = engine.forward([SlotRows(slot, append, chain, range(ROOT_PARENT, len(chain) - 1))])[0]
    return [rows.row(node).copy() for node in range(ROOT_PARENT, len(chain))]


def _beside_neighbours(engine: Engine, prompt: list[int], chain: list[int]) -> list[NDArray[np.float32]]:
    """The chain once more, with up to three neighbours of other lengths in the pass."""
    engine.rewind(0, len(prompt) - 1)
    mine = SlotRows(0, prompt[-1:], chain, range(ROOT_PARENT, len(chain) - 1))
    others = [SlotRows(slot, prompt[slot:]) for slot in range(1, min(4, engine.spec.max_slots))]
    rows = engine.forward([*others, mine])[-1]
    found = [rows.row(node).copy() for node in range(ROOT_PARENT, len(chain))]
    engine.keep(0, [])
    return found


def _in_tree(engine: Engine, prompt: list[int], chain: list[int], other: int) -> list[NDArray[np.float32]]:
    """The chain once more, each of its nodes after a sibling; then kept, so that what moves is checked too."""
    engine.rewind(0, len(prompt) - 1)
    tokens, parents, path, above = list[int](), list[int](), list[int](), ROOT_PARENT
    for token in chain[:-1]:
        sibling = other if other != token else (other + 1) % engine.vocabulary.size
        if len(path) < engine.spec.max_branches:
            tokens.append(sibling)
            parents.append(above)
        tokens.append(token)
        parents.append(above)
        above = len(tokens) - 1
        path.append(above)
    rows = engine.forward([SlotRows(0, prompt[-1:], tokens, parents)])[0]
    found = [rows.row(node).copy() for node in (ROOT_PARENT, *path)]
    engine.keep(0, path)
    return [*found, *_append(engine, 0, chain[-1:])]
