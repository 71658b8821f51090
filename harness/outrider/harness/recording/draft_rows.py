"""The draft model as the recorder needs it: its logits along a given answer, and beside it after its own guesses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from outrider.shared.vocabulary import Vocabulary

Logits = NDArray[np.float32]

LANES = 32


@dataclass(frozen=True, slots=True)
class Detour:
    """The text of the first `length` answer tokens and then `tail`, which is never empty."""

    length: int
    tail: Sequence[int]


class DraftRows(Protocol):
    """One draft model and one answer at a time. Rows are float32 [width] and valid until the next call or step."""

    @property
    def vocabulary(self) -> Vocabulary:
        """The draft model's vocabulary."""
        ...

    def along(self, prompt_ids: Sequence[int], answer_ids: Sequence[int]) -> Iterator[Logits]:
        """For each t the logits that follow the prompt and `answer_ids[:t]`."""
        ...

    def beside(self, detours: Sequence[Detour]) -> list[Logits]:
        """The logits that follow each detour off the answer that `along` has been through, at most `LANES` at once.

        A call either adds one token to each tail of the call before, or begins new tails, of one token, whose
        lengths are not above any length seen since `along`.
        """
        ...

    def close(self) -> None:
        """Free the model."""
        ...
