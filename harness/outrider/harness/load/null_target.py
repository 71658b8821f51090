"""A target that chooses without computing, so that a measurement sees the program's own cost and nothing else. What it
chooses follows from the position alone, so a client knows every answer beforehand.
"""

from __future__ import annotations

from collections.abc import Sequence

from outrider.cloud.target import PassWork
from outrider.cloud.targets.base import ROOT_PARENT, EngineSpec
from outrider.cloud.walk import WalkResult, WalkRules
from outrider.shared.messages import FinishReason
from outrider.shared.tiny import tiny_tokenizer_files, tiny_vocabulary
from outrider.shared.tokenizer_asset import TokenizerAsset, pack_files
from outrider.shared.vocabulary import Vocabulary

_FIRST, _COUNT = ord("a"), 26


def null_token(index: int) -> int:
    """The token at `index` of every answer: the letters in turn, so never a stop id of the tiny vocabulary."""
    return _FIRST + index % _COUNT


class NullTarget:
    """See `Target`. A slot is no more than the length of its text; passes run inline, without a thread."""

    def __init__(self, *, max_slots: int = 64, context_length: int = 1 << 20) -> None:
        self._cached = [0] * max_slots
        self._vocabulary = tiny_vocabulary()
        self._spec = EngineSpec(
            kind="null",
            model="null",
            numerics="exact",
            near_tie_gap=0.0,
            context_length=context_length,
            max_slots=max_slots,
            max_branches=1024,
            settings={},
        )

    @property
    def spec(self) -> EngineSpec:
        """See `Target.spec`."""
        return self._spec

    @property
    def vocabulary(self) -> Vocabulary:
        """See `Target.vocabulary`."""
        return self._vocabulary

    @property
    def tokenizer_asset(self) -> TokenizerAsset:
        """See `Target.tokenizer_asset`."""
        return pack_files(tiny_tokenizer_files())

    def cached_length(self, slot: int) -> int:
        """See `Target.cached_length`."""
        return self._cached[slot]

    async def run_pass(self, work: Sequence[PassWork]) -> Sequence[WalkResult | None]:
        """See `Target.run_pass`."""
        return [self._run(item) for item in work]

    async def rewind(self, slot: int, length: int) -> None:
        """See `Target.rewind`."""
        self._cached[slot] = length

    async def close(self) -> None:
        """See `Target.close`."""

    def _run(self, item: PassWork) -> WalkResult | None:
        rows = item.rows
        self._cached[rows.slot] += len(rows.append)
        if item.rules is None:
            return None
        result = _walk(rows.node_tokens, rows.node_parents, len(item.answer_ids), item.rules)
        self._cached[rows.slot] += len(result.path)
        return result


def _walk(tokens: Sequence[int], parents: Sequence[int], length: int, rules: WalkRules) -> WalkResult:
    """As `walk`, with positions instead of logits."""
    path: list[int] = []
    node = ROOT_PARENT
    while True:
        token = null_token(length)
        length += 1
        finish = FinishReason.LENGTH if length >= rules.end else None
        child = next((i for i in range(node + 1, len(tokens)) if parents[i] == node and tokens[i] == token), None)
        gaps = (1.0,) * (len(path) + 1)
        if child is None:
            return WalkResult(tuple(path), token, 0, gaps, finish)
        path.append(child)
        if finish is not None:
            return WalkResult(tuple(path), None, 0, gaps, finish)
        node = child
