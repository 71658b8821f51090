"""A target without a thread, for the virtual clock: an engine that runs inline, and passes that take as long as a cost
function says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from outrider.cloud.target import EngineTarget, PassResult, PassWork
from outrider.cloud.targets.base import Engine

PassCost = Callable[[int, int], float]


class InlineTarget(EngineTarget):
    """See `Target`. `pass_ms(rows, sessions)` is the time of a pass in milliseconds of the loop's clock.

    As with one worker thread, a rewind waits for the pass that runs.
    """

    def __init__(self, engine: Engine, pass_ms: PassCost) -> None:
        super().__init__(engine)
        self._pass_ms = pass_ms
        self._busy = asyncio.Lock()

    async def run_pass(self, work: Sequence[PassWork]) -> Sequence[PassResult]:
        """See `Target.run_pass`."""
        loop = asyncio.get_running_loop()
        async with self._busy:
            began_s = loop.time()
            results = self._run_pass(work)
            rows = sum(item.rows.count for item in work)
            # On a real clock the engine's own time is part of the pass.
            await asyncio.sleep(began_s + self._pass_ms(rows, len(work)) / 1000 - loop.time())
        return results

    async def rewind(self, slot: int, length: int) -> None:
        """See `Target.rewind`."""
        async with self._busy:
            self._engine.rewind(slot, length)

    async def close(self) -> None:
        """See `Target.close`."""
        async with self._busy:
            self._engine.close()
