"""A GGUF model as draft model of a recording, run as the product's drafter runs it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from outrider.harness.recording.draft_rows import LANES, Detour, Logits
from outrider.shared.llama.runtime import LlamaContext, LlamaModel, Row
from outrider.shared.vocabulary import Vocabulary
from outrider.shared.vocabulary_gguf import read_vocabulary

# As the product's drafter: how the prompt is cut decides the last bits of what follows.
BATCH = 512


class LlamaDraftRows:
    """See `DraftRows`. Default kernels, along the answer one row at a time; beside it `LANES` rows at a time, whose
    last bits may therefore differ from what the drafter would say alone.

    Each lane is a copy of the whole answer's cache that is cut back from its end, so no row is computed twice.
    """

    def __init__(self, path: Path, context_length: int) -> None:
        """Load `path`; the context must hold prompt, answer and a detour past its end. Raises what loading raises."""
        self._vocabulary = read_vocabulary(path)
        self._model = LlamaModel(path)
        try:
            self._model.check_can_roll_back()
            self._context = LlamaContext(
                self._model, length=context_length, sequences=LANES, batch=BATCH, micro_batch=BATCH
            )
        except BaseException:
            self._model.close()
            raise
        self._prompt_length = 0
        self._copied = 0

    @property
    def vocabulary(self) -> Vocabulary:
        """See `DraftRows.vocabulary`."""
        return self._vocabulary

    def along(self, prompt_ids: Sequence[int], answer_ids: Sequence[int]) -> Iterator[Logits]:
        """See `DraftRows.along`."""
        self._prompt_length = length = len(prompt_ids)
        self._copied = 1
        self._context.truncate(0, 0)
        last_row = 0
        for start in range(0, length, BATCH):
            part = prompt_ids[start : start + BATCH]
            self._context.decode([Row(token, start + i, 0, start + i == length - 1) for i, token in enumerate(part)])
            last_row = len(part) - 1
        yield self._context.logits(last_row)
        for index, token in enumerate(answer_ids[:-1]):
            self._context.decode([Row(token, length + index, 0, True)])
            yield self._context.logits(0)

    def beside(self, detours: Sequence[Detour]) -> list[Logits]:
        """See `DraftRows.beside`."""
        while self._copied < len(detours):
            self._context.copy(0, self._copied)
            self._copied += 1
        rows: list[Row] = []
        for lane, detour in enumerate(detours):
            position = self._prompt_length + detour.length + len(detour.tail) - 1
            self._context.truncate(lane, position)
            rows.append(Row(detour.tail[-1], position, lane, True))
        self._context.decode(rows)
        return [self._context.logits(index) for index in range(len(rows))]

    def close(self) -> None:
        """See `DraftRows.close`."""
        self._context.close()
        self._model.close()
