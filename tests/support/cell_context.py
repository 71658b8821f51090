"""A stand-in for `LlamaContext` with shared cells: it keeps books of who holds which cell, refuses what llama.cpp would
refuse, and computes with the pseudo model, so that guesses show whether a sequence really held its text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from outrider.shared.errors import OutriderError, Reason
from outrider.shared.llama.runtime import Row
from outrider.shared.tiny import HASH_START, hash_push, state_logits


class CellContext:
    """Sequences of cells, of which there are `cell_count`. `decode` fails once if `fails_next` is set."""

    def __init__(self, length: int, cell_count: int, batch_size: int = 64, deviation: float = 0.5) -> None:
        self.length = length
        self.batch_size = batch_size
        self.closed = False
        self.fails_next = False
        self.fed_count = 0
        self.most_cells = 0
        self._cell_count = cell_count
        self._deviation = deviation
        self._sequences: dict[int, list[int]] = {}
        self._tokens: dict[int, int] = {}
        self._holders = Counter[int]()
        self._next_cell = 0
        self._wanted: dict[int, list[int]] = {}

    @property
    def cells(self) -> int:
        """Cells that any sequence holds."""
        return len(self._tokens)

    def held(self, sequence: int) -> list[int]:
        """Tokens of a sequence."""
        return [self._tokens[cell] for cell in self._sequences.get(sequence, [])]

    def decode(self, rows: Sequence[Row]) -> None:
        """As `LlamaContext.decode`."""
        assert 0 < len(rows) <= self.batch_size
        order = [row.sequence for row in rows]
        assert order == sorted(order, key=order.index), "rows are grouped by sequence"
        if self.fails_next or self.cells + len(rows) > self._cell_count:
            self.fails_next = False
            raise OutriderError(Reason.INTERNAL, f"no room for {len(rows)} rows beside {self.cells} cells.")
        self._wanted.clear()
        for index, row in enumerate(rows):
            cells = self._sequences.setdefault(row.sequence, [])
            assert row.position == len(cells), "positions of a sequence have no gaps"
            cells.append(self._next_cell)
            self._tokens[self._next_cell] = row.token
            self._holders[self._next_cell] = 1
            self._next_cell += 1
            if row.want_logits:
                self._wanted[index] = self.held(row.sequence)
        self.fed_count += len(rows)
        self.most_cells = max(self.most_cells, self.cells)

    def logits(self, row: int) -> NDArray[np.float32]:
        """As `LlamaContext.logits`: what the pseudo drafter says after the row's text."""
        state = HASH_START
        for token in self._wanted[row]:
            state = hash_push(state, token)
        return state_logits(state, self._deviation)

    def truncate(self, sequence: int, length: int) -> None:
        """As `LlamaContext.truncate`."""
        cells = self._sequences.setdefault(sequence, [])
        for cell in cells[length:]:
            self._holders[cell] -= 1
            if not self._holders[cell]:
                del self._holders[cell], self._tokens[cell]
        del cells[length:]

    def share(self, source: int, destination: int, length: int) -> None:
        """As `LlamaContext.share`."""
        assert source != destination
        self.truncate(destination, 0)
        self._sequences[destination] = self._sequences.get(source, [])[:length]
        self._holders.update(self._sequences[destination])
