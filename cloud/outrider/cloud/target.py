"""The target as the scheduler sees it: asynchronous passes over the work of many sessions. `EngineTarget` runs an
`Engine` and the walks in one worker thread; other targets may get their answers elsewhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from outrider.cloud.targets.base import Engine, EngineSpec, SlotRows
from outrider.cloud.walk import WalkResult, WalkRules, walk
from outrider.shared.tokenizer_asset import TokenizerAsset
from outrider.shared.vocabulary import Vocabulary
from outrider.shared.worker import Worker


@dataclass(frozen=True, slots=True)
class PassWork:
    """What one session brings to a pass. Without `rules` it is prefill: rows only, nothing is chosen."""

    rows: SlotRows
    answer_ids: tuple[int, ...] = ()
    rules: WalkRules | None = None


PassResult = WalkResult | Exception | None
"""What a pass found for one session: None for prefill, an error where its own rows could not be walked."""


class Target(Protocol):
    """Runs passes. Calls to `run_pass` never overlap; `rewind` may be called while a pass runs on other slots."""

    @property
    def spec(self) -> EngineSpec:
        """What the engine behind it declares."""
        ...

    @property
    def vocabulary(self) -> Vocabulary:
        """The target model's vocabulary."""
        ...

    @property
    def tokenizer_asset(self) -> TokenizerAsset:
        """What an edge needs to tokenize for this target."""
        ...

    def cached_length(self, slot: int) -> int:
        """Tokens of the slot's sequence that need no computing."""
        ...

    async def run_pass(self, work: Sequence[PassWork]) -> Sequence[PassResult]:
        """One forward over all `work` and the walks; accepted nodes are cached afterwards, others dropped.

        Results in the same order; an error at one session's rows is that one's result. Raises what fails for all.
        """
        ...

    async def rewind(self, slot: int, length: int) -> None:
        """Keep the first `length` cached tokens of the slot; after any pass that is running."""
        ...

    async def close(self) -> None:
        """Free the engine after the running pass."""
        ...


class EngineTarget:
    """A `Target` over an engine in this process; the engine lives in one worker thread."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._worker = Worker("target")

    @classmethod
    async def load(cls, make_engine: Callable[[], Engine]) -> EngineTarget:
        """Load an engine off the event loop."""
        return cls(await asyncio.to_thread(make_engine))

    @property
    def spec(self) -> EngineSpec:
        """See `Target.spec`."""
        return self._engine.spec

    @property
    def vocabulary(self) -> Vocabulary:
        """See `Target.vocabulary`."""
        return self._engine.vocabulary

    @property
    def tokenizer_asset(self) -> TokenizerAsset:
        """See `Target.tokenizer_asset`."""
        return self._engine.tokenizer_asset

    def cached_length(self, slot: int) -> int:
        """See `Target.cached_length`."""
        return self._engine.cached_length(slot)

    async def run_pass(self, work: Sequence[PassWork]) -> Sequence[PassResult]:
        """See `Target.run_pass`."""
        return await self._worker.run(lambda: self._run_pass(work))

    async def rewind(self, slot: int, length: int) -> None:
        """See `Target.rewind`."""
        await self._worker.run(lambda: self._engine.rewind(slot, length))

    async def close(self) -> None:
        """See `Target.close`."""
        await self._worker.run(self._engine.close)
        self._worker.stop()

    def _run_pass(self, work: Sequence[PassWork]) -> list[PassResult]:
        logits = self._engine.forward([item.rows for item in work])
        results = [_walked(item, rows.row) for item, rows in zip(work, logits, strict=True)]
        # Only now, when no row is needed any more, may the engine be called again.
        for item, result in zip(work, results, strict=True):
            self._engine.keep(item.rows.slot, result.path if isinstance(result, WalkResult) else ())
        return results


def _walked(item: PassWork, row: Callable[[int], NDArray[np.float32]]) -> PassResult:
    if item.rules is None:
        return None
    try:
        return walk(item.rows.node_tokens, item.rows.node_parents, row, item.answer_ids, item.rules)
    except Exception as error:
        # A row without meaning is one session's; its neighbours go on.
        return error
