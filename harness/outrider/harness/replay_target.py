"""A target that answers from recordings and takes as long as a cost function says. It never looks at a model: which
recording a session plays follows from its prompt ids.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from outrider.cloud.target import PassWork
from outrider.cloud.targets.base import EngineSpec, SlotRows
from outrider.cloud.walk import WalkResult, WalkRules, walk
from outrider.harness.inline_target import PassCost
from outrider.harness.recording.format import Recording
from outrider.harness.recording.library import RecordingSet
from outrider.harness.usage import PassRecord
from outrider.shared.errors import OutriderError, Reason
from outrider.shared.sampling.choose import Choice, Chooser
from outrider.shared.sampling.options import Sampling
from outrider.shared.tokenizer_asset import TokenizerAsset, pack_files
from outrider.shared.vocabulary import Vocabulary

KIND = "replay"
_NO_LOGITS = np.empty(0, np.float32)


@dataclass(slots=True)
class _Slot:
    """The cached ids, and what the session in it plays once that is known."""

    cached: list[int] = field(default_factory=list)
    chooser: RecordedChooser | None = None


class ReplayTarget:
    """See `Target`. `pass_ms(rows, sessions)` is the time of a pass in milliseconds of the loop's clock.

    A session that asks for more than was recorded ends where the recording ends, by length. `passes` holds a record of
    each pass so far.
    """

    def __init__(
        self, recordings: RecordingSet, pass_ms: PassCost, *, max_slots: int = 4, max_branches: int = 8
    ) -> None:
        self.passes: list[PassRecord] = []
        self._recordings = recordings
        self._pass_ms = pass_ms
        self._busy = asyncio.Lock()
        self._slots = [_Slot() for _ in range(max_slots)]
        header = recordings.header
        recorded = header.target_settings
        self._spec = EngineSpec(
            kind=KIND,
            model=header.target.name,
            numerics=recorded.numerics,
            near_tie_gap=recorded.near_tie_gap,
            context_length=max(len(r.prompt_ids) + r.header.sampling.max_tokens for r in recordings),
            max_slots=max_slots,
            max_branches=max_branches,
            settings=recorded.settings | {"recorded_engine": recorded.engine},
        )

    @property
    def spec(self) -> EngineSpec:
        """See `Target.spec`."""
        return self._spec

    @property
    def vocabulary(self) -> Vocabulary:
        """See `Target.vocabulary`; only the recorded answers' pieces are known."""
        return self._recordings.vocabulary

    @property
    def tokenizer_asset(self) -> TokenizerAsset:
        """An empty one: a recording holds ids, not the tokenizer that made them."""
        return pack_files({})

    def cached_length(self, slot: int) -> int:
        """See `Target.cached_length`."""
        return len(self._slots[slot].cached)

    async def run_pass(self, work: Sequence[PassWork]) -> Sequence[WalkResult | None]:
        """See `Target.run_pass`; raises FILE_UNREADABLE for a prompt or a text that was not recorded."""
        loop = asyncio.get_running_loop()
        async with self._busy:
            began_s = loop.time()
            results = [self._play(item) for item in work]
            rows = sum(item.rows.count for item in work)
            # On a real clock what playing took is part of the pass.
            await asyncio.sleep(began_s + self._pass_ms(rows, len(work)) / 1000 - loop.time())
            for item, result in zip(work, results, strict=True):
                self._keep(item.rows, result)
            accepted = sum(len(result.path) for result in results if result is not None)
            self.passes.append(PassRecord(began_s, loop.time(), rows, len(work), accepted))
        return results

    async def rewind(self, slot: int, length: int) -> None:
        """See `Target.rewind`."""
        async with self._busy:
            state = self._slots[slot]
            del state.cached[length:]
            state.chooser = None

    async def close(self) -> None:
        """See `Target.close`."""
        async with self._busy:
            pass

    def _play(self, item: PassWork) -> WalkResult | None:
        if item.rules is None:
            return None
        state = self._slots[item.rows.slot]
        if state.chooser is None:
            sequence = [*state.cached, *item.rows.append]
            prompt_length = len(sequence) - len(item.answer_ids)
            recording = self._recordings.find(sequence[:prompt_length])
            state.chooser = RecordedChooser(recording, item.answer_ids)
        rules = WalkRules(state.chooser, item.rules.stop_ids, min(item.rules.end, state.chooser.length))
        return walk(item.rows.node_tokens, item.rows.node_parents, _no_logits, item.answer_ids, rules)

    def _keep(self, rows: SlotRows, result: WalkResult | None) -> None:
        cached = self._slots[rows.slot].cached
        cached.extend(rows.append)
        if result is not None:
            cached.extend(rows.node_tokens[node] for node in result.path)


class RecordedChooser(Chooser):
    """The rule as it was applied once: the recorded token at each position, whatever the logits."""

    def __init__(self, recording: Recording, answer_ids: Sequence[int] = ()) -> None:
        """Raises FILE_UNREADABLE if `answer_ids` are not the beginning of the recorded answer."""
        super().__init__(Sampling(), 0, recording.prompt_ids, recording.header.vocabulary.size)
        self._answer = recording.answer_ids
        if self._answer[: len(answer_ids)] != tuple(answer_ids) or len(answer_ids) >= len(self._answer):
            raise OutriderError(
                Reason.FILE_UNREADABLE, f"recording {recording.header.id}: {len(answer_ids)} other ids are committed."
            )
        self._gaps = recording.target.margin[:, 0].tolist()

    @property
    def length(self) -> int:
        """Recorded answer tokens."""
        return len(self._answer)

    def choose(self, logits: npt.ArrayLike, output_ids: Sequence[int]) -> Choice:
        """The recorded token after `output_ids`, which must be the recorded ones."""
        index = len(output_ids)
        return Choice(self._answer[index], self._gaps[index])


def _no_logits(_: int) -> npt.NDArray[np.float32]:
    return _NO_LOGITS
