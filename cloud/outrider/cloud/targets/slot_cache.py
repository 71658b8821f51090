"""Keys and values of many slots in one tensor a layer, written at explicit cells, as a cache for `transformers`
models. It knows cells, not tokens: which cell holds what is the engine's affair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin


@dataclass(frozen=True, slots=True)
class LayerShape:
    """Where and how one layer keeps its keys and values: heads, width of a key and of a value."""

    heads: int
    key_width: int
    value_width: int
    dtype: torch.dtype
    device: torch.device


@dataclass(frozen=True, slots=True)
class _Plan:
    """What the layers need for one pass, on one device: slots [B, 1], cells [B, T], and how many cells to read."""

    slots: Tensor
    cells: Tensor
    read_cells: int
    # First and last + 1 of the slots where they adjoin, so that reading needs no copy.
    span: tuple[int, int] | None


class SlotCache(Cache):  # type: ignore[misc]  # transformers has no types
    """Storage for `slots` × `cells` in every layer, zeroed so that a masked cell is finite.

    Layers of one shape and device share one tensor [layers, slots, heads, cells, width], so that `move` costs one
    operation for all of them.
    """

    def __init__(self, shapes: Sequence[LayerShape], slots: int, cells: int) -> None:
        self._groups: list[tuple[Tensor, Tensor]] = []
        layers: dict[int, _SlotLayer] = {}
        for shape in dict.fromkeys(shapes):
            members = [i for i, s in enumerate(shapes) if s == shape]
            size = (len(members), slots, shape.heads, cells)
            keys = torch.zeros((*size, shape.key_width), dtype=shape.dtype, device=shape.device)
            values = torch.zeros((*size, shape.value_width), dtype=shape.dtype, device=shape.device)
            self._groups.append((keys, values))
            layers.update({i: _SlotLayer(self, keys[n], values[n]) for n, i in enumerate(members)})
        self._plans: dict[torch.device, _Plan] = {}
        super().__init__(layers=[layers[i] for i in range(len(shapes))])

    @property
    def bytes_held(self) -> int:
        """Size of all storage in bytes."""
        return sum(t.numel() * t.element_size() for group in self._groups for t in group)

    def begin(self, slots: Tensor, cells: Tensor, read_cells: int) -> None:
        """Say where the next pass writes (`slots` [B], ascending; `cells` [B, T]) and that it reads `read_cells`."""
        first, last = int(slots[0]), int(slots[-1])
        span = (first, last + 1) if last - first + 1 == len(slots) else None
        devices = {keys.device for keys, _ in self._groups}
        self._plans = {
            device: _Plan(slots.to(device)[:, None], cells.to(device), read_cells, span) for device in devices
        }

    def plan(self, device: torch.device) -> _Plan:
        """The pass's plan on `device`."""
        return self._plans[device]

    def move(self, slot: int, sources: Sequence[int], targets: Sequence[int]) -> None:
        """Copy cells `sources` of a slot to cells `targets`, all read before any is written."""
        for group in self._groups:
            source = torch.tensor(sources, device=group[0].device)
            target = torch.tensor(targets, device=group[0].device)
            for tensor in group:
                of_slot = tensor[:, slot]
                of_slot.index_copy_(2, target, of_slot.index_select(2, source))


class _SlotLayer(CacheLayerMixin):  # type: ignore[misc]  # transformers has no types
    """One layer's view of the storage: keys and values [slots, heads, cells, width]."""

    is_sliding = False

    def __init__(self, cache: SlotCache, keys: Tensor, values: Tensor) -> None:
        super().__init__()
        self._cache = cache
        self.keys, self.values = keys, values
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Write states [B, heads, T, width] at the planned cells; give back all that the pass reads."""
        plan = self._cache.plan(self.keys.device)
        return _write(self.keys, key_states, plan), _write(self.values, value_states, plan)

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Nothing to do: storage is there from the start."""

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Not asked when the mask is given; answers the storage's size."""
        return self.keys.shape[2], 0

    def get_seq_length(self) -> int:
        """Slots differ in length, so there is no such number; 0 keeps callers from adding an offset."""
        return 0

    def get_max_length(self) -> int:
        """Number of cells of a slot."""
        return self.keys.shape[2]


def _write(storage: Tensor, states: Tensor, plan: _Plan) -> Tensor:
    # Indexed dimensions that do not adjoin come first: [B, T, heads, width].
    storage[plan.slots, :, plan.cells] = states.transpose(1, 2)
    readable = storage[:, :, : plan.read_cells]
    if plan.span is not None:
        return readable[plan.span[0] : plan.span[1]]
    return readable.index_select(0, plan.slots[:, 0])
