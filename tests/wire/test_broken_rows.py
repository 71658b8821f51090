"""A model that gives rows without meaning for one text: that answer ends with an incident, its neighbours in the same
passes go on, and so does the verifier.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from outrider.cloud.targets.base import RowLogits, SlotRows
from outrider.cloud.targets.tiny import TinyEngine
from outrider.edge.agent import Agent
from outrider.shared.errors import Reason
from outrider.shared.sampling.options import Sampling
from outrider.shared.tiny import END
from support.refusal import refused
from support.serving import serving

SAMPLING = Sampling(max_tokens=40, temperature=1.0, seed=4, logit_bias={END: -100.0})
BROKEN_PROMPT = "broken"
MARK = tuple(BROKEN_PROMPT.encode())


class _Rows:
    def __init__(self, rows: RowLogits, value: float) -> None:
        self._rows = rows
        self._value = value

    def row(self, node: int) -> NDArray[np.float32]:
        """The row, of nothing but the value."""
        return np.full_like(self._rows.row(node), self._value)


class _OverflowingEngine(TinyEngine):
    """Gives rows of one value after its marked prompt, as arithmetic of too few bits does for some texts."""

    value = float("nan")

    def __init__(self) -> None:
        super().__init__(max_slots=2)
        self._marked: set[int] = set()
        self.shared_passes = 0

    def forward(self, rows: Sequence[SlotRows]) -> Sequence[RowLogits]:
        """See `Engine.forward`."""
        for item in rows:
            if len(item.append) > 1:
                self._marked.discard(item.slot)
                if tuple(item.append)[1 : 1 + len(MARK)] == MARK:
                    self._marked.add(item.slot)
        self.shared_passes += len(rows) > 1 and any(item.slot in self._marked for item in rows)
        logits = super().forward(rows)
        return [
            _Rows(row, self.value) if item.slot in self._marked else row for item, row in zip(rows, logits, strict=True)
        ]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
async def test_rows_without_meaning_end_one_answer_and_no_neighbour(
    value: float, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(_OverflowingEngine, "value", value)
    engine, is_over = _OverflowingEngine(), asyncio.Event()
    async with serving(engine) as address, Agent.connect(address, drafter="tiny:0.5", patience_s=0.1) as agent:
        expected = (await agent.answer("neighbour", SAMPLING)).token_ids

        async def neighbour() -> None:
            while not is_over.is_set():
                result = await agent.answer("neighbour", SAMPLING)
                assert (result.token_ids, result.stats["streams"]) == (expected, 1)

        beside = asyncio.create_task(neighbour())
        while engine.shared_passes < 3:
            with refused(Reason.INTERNAL, "Incident"):
                await agent.answer(BROKEN_PROMPT, SAMPLING)
        is_over.set()
        await beside
        assert (await agent.answer("next", SAMPLING)).token_ids
    assert "finite largest logit" in caplog.text
