"""The pseudo language model as an engine, for tests and overhead benchmarks. It keeps real per-slot caches of hash
states and checks its callers strictly; it has no weights and takes microseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from outrider.cloud.targets.base import ROOT_PARENT, EngineSpec, RowLogits, SlotRows
from outrider.cloud.targets.contract import check_forward, check_path, check_rows
from outrider.shared.tiny import HASH_START, hash_push, state_logits, tiny_tokenizer_files, tiny_vocabulary
from outrider.shared.tokenizer_asset import TokenizerAsset, pack_files
from outrider.shared.vocabulary import Vocabulary


@dataclass(slots=True)
class _Slot:
    """States after each cached token, and the undecided nodes of the last forward."""

    states: list[int] = field(default_factory=list)
    node_states: list[int] = field(default_factory=list)
    node_parents: list[int] = field(default_factory=list)


class TinyEngine:
    """`Engine` over `outrider.shared.tiny`; `perturbation` ≥ 0 makes it a differing model of the same vocabulary.

    A row that is read after the engine's next call, or nodes that are left undecided, fail an assertion: the
    contract calls both a caller's bug.
    """

    def __init__(
        self,
        max_slots: int = 4,
        context_length: int = 4096,
        max_branches: int = 1024,
        perturbation: float = 0.0,
    ) -> None:
        self._slots = [_Slot() for _ in range(max_slots)]
        self._perturbation = perturbation
        self._vocabulary = tiny_vocabulary()
        self._calls = 0
        self._closed = False
        self._spec = EngineSpec(
            kind="tiny",
            model=f"tiny-{perturbation:g}",
            numerics="exact",
            near_tie_gap=0.0,
            context_length=context_length,
            max_slots=max_slots,
            max_branches=max_branches,
            settings={"perturbation": perturbation},
        )

    @property
    def spec(self) -> EngineSpec:
        """What the engine declares: exact, since rows share nothing."""
        return self._spec

    @property
    def vocabulary(self) -> Vocabulary:
        """Bytes and four control tokens."""
        return self._vocabulary

    @property
    def tokenizer_asset(self) -> TokenizerAsset:
        """The files of a Hugging Face tokenizer."""
        return pack_files(tiny_tokenizer_files())

    def cached_length(self, slot: int) -> int:
        """Number of cached tokens, undecided nodes left out."""
        return len(self._slots[slot].states)

    def forward(self, rows: Sequence[SlotRows]) -> Sequence[RowLogits]:
        """Append and hang nodes as `Engine.forward` says; logits are computed when a row is read."""
        self._begin_call()
        check_forward(rows, self._spec)
        for r in rows:
            s = self._slot(r.slot)
            check_rows(r, len(s.states), len(s.node_states), self._spec, self._vocabulary.size)
        return [self._run(r) for r in rows]

    def keep(self, slot: int, path: Sequence[int]) -> None:
        """Cache the states of the nodes on `path` and drop the others."""
        self._begin_call()
        s = self._slot(slot)
        check_path(path, s.node_parents, slot)
        s.states.extend(s.node_states[node] for node in path)
        _drop_nodes(s)

    def rewind(self, slot: int, length: int) -> None:
        """Keep the first `length` cached tokens."""
        self._begin_call()
        s = self._slot(slot)
        assert 0 <= length <= len(s.states), f"slot {slot} caches {len(s.states)} tokens, not {length}"
        del s.states[length:]
        _drop_nodes(s)

    def close(self) -> None:
        """Refuse further calls."""
        self._begin_call()
        self._closed = True

    def _begin_call(self) -> None:
        assert not self._closed, "the engine is closed"
        self._calls += 1

    def _slot(self, slot: int) -> _Slot:
        assert 0 <= slot < len(self._slots), f"slot {slot} of {len(self._slots)}"
        return self._slots[slot]

    def _run(self, r: SlotRows) -> _TinyLogits:
        s = self._slots[r.slot]
        state = s.states[-1] if s.states else HASH_START
        for token in r.append:
            state = hash_push(state, token)
            s.states.append(state)
        for token, parent in zip(r.node_tokens, r.node_parents, strict=True):
            above = state if parent == ROOT_PARENT else s.node_states[parent]
            s.node_states.append(hash_push(above, token))
        s.node_parents = list(r.node_parents)
        return _TinyLogits(self, self._calls, state, tuple(s.node_states), r.want_logits)

    def _logits(self, state: int, call: int) -> NDArray[np.float32]:
        assert call == self._calls, "logits are valid until the engine's next call"
        logits = state_logits(state, self._perturbation)
        logits.flags.writeable = False
        return logits


@dataclass(frozen=True, slots=True)
class _TinyLogits:
    """`RowLogits` of one slot, tied to the call that made it."""

    engine: TinyEngine
    call: int
    root_state: int
    node_states: tuple[int, ...]
    want_logits: bool

    def row(self, node: int) -> NDArray[np.float32]:
        """Logits of `node`; fails if none were wanted or the engine was called since."""
        assert self.want_logits, "the forward was told that no logits are wanted"
        assert ROOT_PARENT <= node < len(self.node_states), f"no node {node}"
        state = self.root_state if node == ROOT_PARENT else self.node_states[node]
        return self.engine._logits(state, self.call)


def _drop_nodes(s: _Slot) -> None:
    s.node_states, s.node_parents = [], []
