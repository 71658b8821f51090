"""llama.cpp as the target: one cache stream per slot and a pool of spare streams for side branches, all evaluated in
one batch.

A side branch is a copy of its slot's stream with the branch appended; if it wins, the two streams change places, so
nothing is computed twice and cells stay in position order, on which bit-equality depends.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from outrider.cloud.targets.base import ROOT_PARENT, EngineSpec, Numerics, SlotRows
from outrider.cloud.targets.width_probe import rows_are_width_exact
from outrider.shared.errors import OutriderError, Reason
from outrider.shared.gguf_header import read_gguf_header
from outrider.shared.llama.runtime import LlamaContext, LlamaModel, Row
from outrider.shared.tokenizer_asset import TokenizerAsset, TokenizerFormat
from outrider.shared.vocabulary import Vocabulary
from outrider.shared.vocabulary_gguf import vocabulary_of_header

logger = logging.getLogger(__name__)

MAX_STREAMS = 256
# Kernels change at 8 rows; below, rows were found independent of their neighbours. 1 is exact by construction.
EXACT_MICRO_BATCHES = (7, 4, 1)
FAST_MICRO_BATCH = 512
# Largest logit gap seen to flip between widths with default kernels was 0.15, the largest difference 0.9.
FAST_NEAR_TIE_GAP = 1.0


@dataclass(slots=True)
class _Branch:
    stream: int
    nodes: list[int]


@dataclass(slots=True)
class _Slot:
    stream: int
    length: int = 0
    main: list[int] = field(default_factory=list)
    branches: list[_Branch] = field(default_factory=list)


class _Rows:
    """Logits of one slot's rows, looked up by node."""

    def __init__(self, context: LlamaContext, row_of_node: dict[int, int]) -> None:
        self._context = context
        self._row_of_node = row_of_node

    def row(self, node: int) -> NDArray[np.float32]:
        """See `RowLogits.row`."""
        return self._context.logits(self._row_of_node[node])


class LlamaCppEngine:
    """A GGUF model as an `Engine`."""

    def __init__(
        self,
        path: Path,
        *,
        name: str = "",
        numerics: Numerics = "exact",
        context_length: int = 2048,
        max_slots: int = 4,
        max_branches: int = 8,
        batch: int = 2048,
        gpu_layers: int = 0,
        threads: int = 0,
    ) -> None:
        """Load `path` and, for exact numerics, probe for a kernel width at which rows are bit-equal.

        Raises FILE_UNREADABLE, MODEL_CORRUPT, or MODEL_UNSUPPORTED for a model that cannot roll back, has no
        tokenizer, or has a shorter context than asked for.
        """
        streams = max_slots + max_branches
        if streams > MAX_STREAMS:
            raise OutriderError(Reason.USAGE, f"{max_slots} sessions + {max_branches} branches > {MAX_STREAMS}.")
        self._header = read_gguf_header(path)
        self._vocabulary = vocabulary_of_header(self._header, str(path))
        self._model = LlamaModel(path, repack=numerics == "fast", gpu_layers=gpu_layers)
        try:
            self._model.check_can_roll_back()
            if context_length > self._model.trained_context_length:
                raise OutriderError(
                    Reason.MODEL_UNSUPPORTED,
                    f"{path.name}: context {context_length} asked for, trained for "
                    f"{self._model.trained_context_length}.",
                )
            self._context, micro_batch, found = self._make_context(
                numerics, length=context_length, sequences=streams, batch=batch, threads=threads
            )
        except BaseException:
            self._model.close()
            raise
        self._slots = [_Slot(stream=index) for index in range(max_slots)]
        self._spare = list(range(max_slots, streams))
        self._spec = EngineSpec(
            kind="llama_cpp",
            model=name or path.stem,
            numerics=found,
            near_tie_gap=0.0 if found == "exact" else FAST_NEAR_TIE_GAP,
            context_length=context_length,
            max_slots=max_slots,
            max_branches=max_branches,
            settings={
                "micro_batch": micro_batch,
                "repack": numerics == "fast",
                "flash_attention": True,
                "gpu_layers": gpu_layers,
            },
        )

    @property
    def spec(self) -> EngineSpec:
        """See `Engine.spec`."""
        return self._spec

    @property
    def vocabulary(self) -> Vocabulary:
        """See `Engine.vocabulary`."""
        return self._vocabulary

    @property
    def tokenizer_asset(self) -> TokenizerAsset:
        """See `Engine.tokenizer_asset`."""
        return TokenizerAsset(TokenizerFormat.GGUF, self._header.without_tensors())

    def cached_length(self, slot: int) -> int:
        """See `Engine.cached_length`."""
        return self._slots[slot].length

    def forward(self, rows: Sequence[SlotRows]) -> Sequence[_Rows]:
        """See `Engine.forward`."""
        batch: list[Row] = []
        lookups = [self._lay_out(request, batch) for request in rows]
        self._context.decode(batch)
        for request in rows:
            self._slots[request.slot].length += len(request.append)
        return [_Rows(self._context, lookup) for lookup in lookups]

    def keep(self, slot: int, path: Sequence[int]) -> None:
        """See `Engine.keep`."""
        state = self._slots[slot]
        kept = list(path)
        if kept != state.main[: len(kept)]:
            winner = next(b for b in state.branches if b.nodes[: len(kept)] == kept)
            state.stream, winner.stream = winner.stream, state.stream
        state.length += len(kept)
        self._drop_nodes(state)

    def rewind(self, slot: int, length: int) -> None:
        """See `Engine.rewind`."""
        state = self._slots[slot]
        assert length <= state.length
        state.length = length
        self._drop_nodes(state)

    def close(self) -> None:
        """See `Engine.close`."""
        self._context.close()
        self._model.close()

    def _make_context(
        self, numerics: Numerics, *, length: int, sequences: int, batch: int, threads: int
    ) -> tuple[LlamaContext, int, Numerics]:
        candidates = EXACT_MICRO_BATCHES if numerics == "exact" else (FAST_MICRO_BATCH,)
        for micro_batch in candidates:
            context = LlamaContext(
                self._model,
                length=length,
                sequences=sequences,
                batch=batch,
                micro_batch=micro_batch,
                threads=threads,
            )
            if numerics == "fast" or rows_are_width_exact(context, self._vocabulary.size):
                return context, micro_batch, numerics
            logger.warning("rows are not bit-equal over widths at micro-batch %d on this machine", micro_batch)
            context.close()
        raise OutriderError(
            Reason.MODEL_UNSUPPORTED,
            f"{self._model.path.name}: no exact numerics on this machine; ask for numerics fast.",
        )

    def _lay_out(self, request: SlotRows, batch: list[Row]) -> dict[int, int]:
        """Append the slot's rows to `batch`; returns the batch row that answers for each node."""
        state = self._slots[request.slot]
        assert request.append, "a pass begins with an uncached committed token"
        assert not state.main, "the nodes of the last forward were neither kept nor dropped"
        row_of_node: dict[int, int] = {}
        state.main, others = _main_chain_and_branches(request.node_parents)
        self._append_path(batch, row_of_node, state.stream, state.length, request, state.main)
        for nodes in others:
            stream = self._spare.pop()
            self._context.copy(state.stream, stream)
            state.branches.append(_Branch(stream, nodes))
            self._append_path(batch, row_of_node, stream, state.length, request, nodes)
        return row_of_node

    @staticmethod
    def _append_path(
        batch: list[Row],
        row_of_node: dict[int, int],
        stream: int,
        position: int,
        request: SlotRows,
        nodes: Sequence[int],
    ) -> None:
        """Rows of the appended tokens and of one root-to-leaf path. Rows that another path has too are computed
        again, as streams share no cells, but one answers for the node.
        """
        last = len(request.append) - 1
        for index, token in enumerate(request.append):
            wanted = request.want_logits and index == last and ROOT_PARENT not in row_of_node
            if wanted:
                row_of_node[ROOT_PARENT] = len(batch)
            batch.append(Row(token, position + index, stream, wanted))
        for depth, node in enumerate(nodes):
            wanted = node not in row_of_node
            if wanted:
                row_of_node[node] = len(batch)
            batch.append(Row(request.node_tokens[node], position + last + 1 + depth, stream, wanted))

    def _drop_nodes(self, state: _Slot) -> None:
        self._context.truncate(state.stream, state.length)
        for branch in state.branches:
            self._context.truncate(branch.stream, 0)
            self._spare.append(branch.stream)
        state.main, state.branches = [], []


def _main_chain_and_branches(parents: Sequence[int]) -> tuple[list[int], list[list[int]]]:
    """Root-to-leaf paths of a tree given by parent index: the one along first children, then the others."""
    children: dict[int, list[int]] = {}
    for node, parent in enumerate(parents):
        children.setdefault(parent, []).append(node)
    paths: list[list[int]] = []

    def descend(node: int, path: list[int]) -> None:
        below = children.get(node, [])
        if not below and path:
            paths.append(path)
        for child in below:
            descend(child, [*path, child])

    descend(ROOT_PARENT, [])
    return (paths[0], paths[1:]) if paths else ([], [])
