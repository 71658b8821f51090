"""A Hugging Face causal language model as an engine: all slots in one model call, trees through a 4-D mask, rollback
through explicit cells. Exactness is probed at load, never assumed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from outrider.cloud.targets.base import ROOT_PARENT, EngineSpec, RowLogits, SlotRows
from outrider.cloud.targets.contract import check_forward, check_path, check_rows, node_depths
from outrider.cloud.targets.slot_cache import SlotCache
from outrider.cloud.targets.transformers_load import (
    DTYPES,
    AttentionName,
    DtypeName,
    layer_shapes,
    load_model,
    load_tokenizer_asset,
    load_vocabulary,
)
from outrider.cloud.targets.transformers_probe import near_tie_gap, probe_rows
from outrider.shared.errors import OutriderError, Reason
from outrider.shared.tokenizer_asset import TokenizerAsset
from outrider.shared.vocabulary import Vocabulary

# Cell 0 of every slot takes the writes of padded rows; position p lives in cell p + 1.
_TRASH = 0
# The cells that a pass reads are rounded up to this, as fused attention kernels want aligned masks.
_READ_ALIGNMENT = 16
# What the probe hangs below a slot, and no window is smaller.
MIN_NODES = 16


@dataclass(slots=True)
class _Slot:
    """Cached tokens, and the parents of the undecided nodes; node i lives in cell cached + 1 + i."""

    cached: int = 0
    parents: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Batch:
    """One pass as arrays: tokens, positions and cells [B, T], mask [B, 1, T, K], wanted row indices [B, W]."""

    tokens: NDArray[np.int64]
    positions: NDArray[np.int64]
    cells: NDArray[np.int64]
    mask: NDArray[np.bool_]
    wanted: NDArray[np.int64]


class TransformersEngine:
    """`Engine` over a model directory or a GGUF file.

    A pass is a rectangle: slots × the longest slot's rows, so prefill in chunks of modest size when other slots decode
    beside it. Memory for keys and values is taken at load: `max_slots` × (`context_length` + `max_nodes` + 1).
    """

    def __init__(
        self,
        source: Path,
        *,
        name: str = "",
        dtype: DtypeName = "fp32",
        device: str = "cpu",
        attention: AttentionName = "sdpa",
        max_slots: int = 4,
        max_branches: int = 8,
        context_length: int = 2048,
        max_nodes: int = 256,
        probe: bool = True,
    ) -> None:
        """Load `source`; `device` is "cpu", "cuda", "cuda:N", or "auto" to spread the layers over all devices.

        `max_nodes` bounds the nodes of one slot in one pass, which may need cells past the context. Branches cost
        nothing else, so `max_branches` is a limit of policy. Without `probe` rows are declared "fast" with the dtype's
        default gap, and nothing checks that the model honours positions and mask.
        Raises USAGE for too few nodes, what `load_model` and `load_vocabulary` raise, and MODEL_UNSUPPORTED where the
        probe finds other logits than the plain model's.
        """
        if max_nodes < MIN_NODES:
            raise OutriderError(Reason.USAGE, f"max_nodes {max_nodes}, at least {MIN_NODES} are needed.")
        self._model = load_model(source, dtype, device, attention, context_length)
        self._vocabulary = load_vocabulary(source, self._model.get_output_embeddings().weight.shape[0])
        self._tokenizer_asset = load_tokenizer_asset(source)
        self._cache = SlotCache(layer_shapes(self._model), max_slots, context_length + max_nodes + 1)
        self._slots = [_Slot() for _ in range(max_slots)]
        self._max_nodes = max_nodes
        self._additive_mask = attention == "eager"
        self._calls = 0
        self._spec = EngineSpec(
            kind="transformers",
            model=name or source.stem,
            numerics="fast",
            near_tie_gap=near_tie_gap(dtype, 0.0),
            context_length=context_length,
            max_slots=max_slots,
            max_branches=max_branches,
            settings={
                "dtype": dtype,
                "device": device,
                "attention": attention,
                "max_nodes": max_nodes,
                "kv_bytes": self._cache.bytes_held,
            },
        )
        if probe:
            self._declare(dtype)

    @property
    def spec(self) -> EngineSpec:
        """What the engine declares, with what the probe found."""
        return self._spec

    @property
    def vocabulary(self) -> Vocabulary:
        """The tokenizer's vocabulary, as wide as the model's head."""
        return self._vocabulary

    @property
    def tokenizer_asset(self) -> TokenizerAsset:
        """The tokenizer.json of a directory, or a GGUF file without its tensors."""
        return self._tokenizer_asset

    def cached_length(self, slot: int) -> int:
        """Number of cached tokens, undecided nodes left out."""
        return self._slots[slot].cached

    @torch.inference_mode()
    def forward(self, rows: Sequence[SlotRows]) -> Sequence[RowLogits]:
        """One model call over all `rows`; see `Engine.forward`. The head runs for wanted rows only."""
        self._calls += 1
        check_forward(rows, self._spec)
        for r in rows:
            s = self._slots[r.slot]
            check_rows(r, s.cached, len(s.parents), self._spec, self._vocabulary.size)
            assert len(r.node_tokens) <= self._max_nodes, f"slot {r.slot}: {len(r.node_tokens)} nodes"
        # In slot order, adjoining slots can be read without a copy.
        order = sorted(range(len(rows)), key=lambda i: rows[i].slot)
        ordered = [rows[i] for i in order]
        batch = self._lay_out(ordered)
        self._cache.begin(torch.tensor([r.slot for r in ordered]), torch.from_numpy(batch.cells), batch.mask.shape[3])
        logits = self._run(batch, any(r.want_logits for r in rows))
        for r in rows:
            s = self._slots[r.slot]
            s.cached += len(r.append)
            s.parents = list(r.node_parents)
        index_of = {rows[i].slot: n for n, i in enumerate(order)}
        return [
            _Logits(self, self._calls, logits[index_of[r.slot]] if r.want_logits else None, len(r.node_tokens))
            for r in rows
        ]

    @torch.inference_mode()
    def keep(self, slot: int, path: Sequence[int]) -> None:
        """Accept `path`; a path off the first nodes is moved into place, so nothing has to be appended again."""
        self._calls += 1
        s = self._slots[slot]
        check_path(path, s.parents, slot)
        if list(path) != list(range(len(path))):
            first = s.cached + 1
            self._cache.move(slot, [first + node for node in path], [first + i for i in range(len(path))])
        s.cached += len(path)
        s.parents = []

    def rewind(self, slot: int, length: int) -> None:
        """Keep the first `length` cached tokens. Bookkeeping only: cells past the length are masked, then reused."""
        self._calls += 1
        s = self._slots[slot]
        assert 0 <= length <= s.cached, f"slot {slot} caches {s.cached} tokens, not {length}"
        s.cached, s.parents = length, []

    def close(self) -> None:
        """Let go of the weights and of all keys and values."""
        self._calls += 1
        del self._model, self._cache
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    @torch.inference_mode()
    def plain_logits(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        """Logits after every token, float32 [n, width], by the model's own forward without slots: for comparison."""
        ids = torch.tensor([list(tokens)], device=self._model.device)
        logits: Tensor = self._model(input_ids=ids, use_cache=False).logits[0]
        return logits.float().cpu().numpy()

    def _declare(self, dtype: DtypeName) -> None:
        """Probe, and put what was found into the spec."""
        found = probe_rows(self, dtype)
        if found.plain_difference > found.plain_limit:
            detail = (
                f"{self._spec.model}: logits through slots differ from the plain model's by "
                f"{found.plain_difference:.3g}, at most {found.plain_limit:.3g} can be rounding."
            )
            raise OutriderError(Reason.MODEL_UNSUPPORTED, detail)
        gap = 0.0 if found.exact else near_tie_gap(dtype, found.largest_difference)
        self._spec = replace(self._spec, numerics="exact" if found.exact else "fast", near_tie_gap=gap)

    def _lay_out(self, rows: Sequence[SlotRows]) -> _Batch:
        """Arrays of a pass over `rows`, short slots padded on the right."""
        counts = [len(r.append) + len(r.node_tokens) for r in rows]
        ends = [self._slots[r.slot].cached + n + 1 for r, n in zip(rows, counts, strict=True)]
        size = (len(rows), max(counts))
        read_cells = -(-max(ends) // _READ_ALIGNMENT) * _READ_ALIGNMENT
        batch = _Batch(
            tokens=np.zeros(size, np.int64),
            positions=np.zeros(size, np.int64),
            cells=np.full(size, _TRASH, np.int64),
            mask=np.zeros((len(rows), 1, size[1], min(read_cells, self._cell_count)), np.bool_),
            wanted=np.zeros((len(rows), max(len(r.node_tokens) for r in rows) + 1), np.int64),
        )
        for i, (r, n) in enumerate(zip(rows, counts, strict=True)):
            cached, appended = self._slots[r.slot].cached, len(r.append)
            batch.tokens[i, :n] = [*r.append, *r.node_tokens]
            batch.cells[i, :n] = np.arange(cached + 1, cached + 1 + n)
            batch.positions[i, :appended] = np.arange(cached, cached + appended)
            batch.positions[i, appended:n] = cached + appended - 1 + np.array(node_depths(r.node_parents), np.int64)
            batch.mask[i, 0, :n, 1 : cached + 1 + n] = _visible(cached, appended, r.node_parents)
            # A padded row sees the trash cell alone: some kernels answer NaN to a row that sees nothing, and
            # NaN in a cell spreads to every row, masked or not.
            batch.mask[i, 0, n:, _TRASH] = True
            batch.wanted[i, : 1 + n - appended] = np.arange(appended - 1, n)
        return batch

    @property
    def _cell_count(self) -> int:
        return self._spec.context_length + self._max_nodes + 1

    def _run(self, batch: _Batch, want_logits: bool) -> Tensor:
        """Logits [B, W, width] of the wanted rows; without any, the body of the model runs alone."""
        device = self._model.device
        mask = torch.from_numpy(batch.mask).to(device)
        if self._additive_mask:
            dtype = DTYPES[self._spec.settings["dtype"]]  # type: ignore[index]  # settings are untyped values
            mask = torch.zeros(mask.shape, dtype=dtype, device=device).masked_fill_(~mask, torch.finfo(dtype).min)
        arguments: dict[str, Any] = {
            "input_ids": torch.from_numpy(batch.tokens).to(device),
            "position_ids": torch.from_numpy(batch.positions).to(device),
            "attention_mask": mask,
            "cache": self._cache,
            "use_cache": True,
        }
        if not want_logits:
            self._model.base_model(**arguments)
            return torch.empty(0)
        wanted = torch.from_numpy(batch.wanted).to(device)
        logits: Tensor = self._model(**arguments, logits_to_keep=wanted).logits
        return logits

    def _row(self, logits: Tensor, call: int) -> NDArray[np.float32]:
        assert call == self._calls, "logits are valid until the engine's next call"
        row: NDArray[np.float32] = logits.float().cpu().numpy()
        row.flags.writeable = False
        return row


@dataclass(frozen=True, slots=True)
class _Logits:
    """`RowLogits` of one slot; a row is copied off the device when it is read, as most rows never are."""

    engine: TransformersEngine
    call: int
    logits: Tensor | None
    node_count: int

    def row(self, node: int) -> NDArray[np.float32]:
        """Logits of `node`; fails if none were wanted or the engine was called since."""
        assert self.logits is not None, "the forward was told that no logits are wanted"
        assert ROOT_PARENT <= node < self.node_count, f"no node {node}"
        return self.engine._row(self.logits[node + 1], self.call)


def _visible(cached: int, appended: int, parents: Sequence[int]) -> NDArray[np.bool_]:
    """Which cells, counted from position 0, each row sees: bool [appended + nodes, cached + appended + nodes].

    Appended tokens see what is cached and each other backwards; a node sees all of that, its ancestors, itself.
    """
    count = appended + len(parents)
    visible = np.zeros((count, cached + count), np.bool_)
    visible[:, :cached] = True
    visible[:appended, cached : cached + appended] = np.tri(appended, dtype=np.bool_)
    visible[appended:, cached : cached + appended] = True
    above = visible[appended:, cached + appended :]
    for node, parent in enumerate(parents):
        if parent != ROOT_PARENT:
            above[node] = above[parent]
        above[node, node] = True
    return visible
