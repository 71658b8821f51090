"""The pseudo language model as draft model of a recording, for tests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from outrider.harness.recording.draft_rows import Detour, Logits
from outrider.shared.tiny import tiny_logits, tiny_vocabulary
from outrider.shared.vocabulary import Vocabulary


class TinyDraftRows:
    """See `DraftRows`. `deviation` as of `TinyDrafter`."""

    def __init__(self, deviation: float) -> None:
        self._deviation = deviation
        self._vocabulary = tiny_vocabulary()
        self._prompt_ids: tuple[int, ...] = ()
        self._answer_ids: tuple[int, ...] = ()

    @property
    def vocabulary(self) -> Vocabulary:
        """See `DraftRows.vocabulary`."""
        return self._vocabulary

    def along(self, prompt_ids: Sequence[int], answer_ids: Sequence[int]) -> Iterator[Logits]:
        """See `DraftRows.along`."""
        self._prompt_ids, self._answer_ids = tuple(prompt_ids), tuple(answer_ids)
        for length in range(len(answer_ids)):
            yield tiny_logits([*prompt_ids, *answer_ids[:length]], self._deviation)

    def beside(self, detours: Sequence[Detour]) -> list[Logits]:
        """See `DraftRows.beside`."""
        return [
            tiny_logits([*self._prompt_ids, *self._answer_ids[: detour.length], *detour.tail], self._deviation)
            for detour in detours
        ]

    def close(self) -> None:
        """See `DraftRows.close`."""
