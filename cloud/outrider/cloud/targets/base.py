"""What an engine must offer to serve as the target: slots that hold a cached token sequence each, forwards over
many slots at once, and rollback to any accepted path. Engines are synchronous and know nothing of sessions,
sampling or asyncio; one worker thread calls them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from outrider.shared.tokenizer_asset import TokenizerAsset
from outrider.shared.vocabulary import Vocabulary

Numerics = Literal["exact", "fast"]
ROOT_PARENT = -1


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """What an engine declares about itself once loaded.

    `numerics` is "exact" only if a row's logits were found bit-equal whatever shares its pass; `near_tie_gap`
    is the largest gap between the two best scores that a change of pass shape may turn around (0 when exact).
    `context_length` counts positions of one slot, `max_branches` the side branches one pass can hold over all
    slots (a chain needs none).
    """

    kind: str
    model: str
    numerics: Numerics
    near_tie_gap: float
    context_length: int
    max_slots: int
    max_branches: int
    settings: dict[str, str | int | float | bool]


@dataclass(frozen=True, slots=True)
class SlotRows:
    """The rows that one slot contributes to a forward.

    `append` are sequence tokens that follow what the slot has cached (never empty). `node_tokens[i]` hangs below
    node `node_parents[i]` (an earlier index) or, at `ROOT_PARENT`, below the last appended token; nodes come in
    the order the session wants them preferred, parents first. Without `want_logits` (prefill) there are no nodes.
    """

    slot: int
    append: Sequence[int]
    node_tokens: Sequence[int] = ()
    node_parents: Sequence[int] = ()
    want_logits: bool = True

    @property
    def count(self) -> int:
        """Rows that the forward computes for them, shared ones once."""
        return len(self.append) + len(self.node_tokens)


class RowLogits(Protocol):
    """Logits of one slot's rows after a forward. Valid until the engine's next call."""

    def row(self, node: int) -> NDArray[np.float32]:
        """Logits of `node`, or of the last appended token at `ROOT_PARENT`.

        Shape [width], float32, width ≥ `Vocabulary.size`; a view that must not be written to.
        """
        ...


class Engine(Protocol):
    """A loaded model with slots. Calls never overlap: one thread owns the engine.

    Whatever raises leaves every slot that was not named in the call as it was.
    """

    @property
    def spec(self) -> EngineSpec:
        """What the engine declares; constant after loading."""
        ...

    @property
    def vocabulary(self) -> Vocabulary:
        """The model's vocabulary; constant after loading."""
        ...

    @property
    def tokenizer_asset(self) -> TokenizerAsset:
        """The tokenizer in a form that an edge can load; may be made anew on each call."""
        ...

    def cached_length(self, slot: int) -> int:
        """Number of tokens of the slot's sequence whose keys and values are cached. Cheap; any thread may ask."""
        ...

    def forward(self, rows: Sequence[SlotRows]) -> Sequence[RowLogits]:
        """One forward over all `rows`, at most one entry a slot; returns their logits in the same order.

        Afterwards every slot has its `append` cached; its nodes are held until `keep` or `rewind` decides.
        """
        ...

    def keep(self, slot: int, path: Sequence[int]) -> None:
        """Accept the nodes `path` of the last forward (root first, each the child of the one before) and drop the
        others. `cached_length` grows by `len(path)`, or by less where the engine wants the rest appended again.
        """
        ...

    def rewind(self, slot: int, length: int) -> None:
        """Keep the first `length` cached tokens and drop the rest, nodes included. Length 0 empties the slot."""
        ...

    def close(self) -> None:
        """Free the model. Nothing may be called afterwards."""
        ...
