"""Whether answers can be had from a verifier: it can as long as nothing speaks against it."""

from __future__ import annotations

import asyncio
import logging
from enum import StrEnum

logger = logging.getLogger(__name__)

# One failed pass may be one session's fault; after so many in a row the engine is taken to be broken.
FAILED_PASSES = 3


class Ailment(StrEnum):
    """What can speak against it."""

    DEAD = "the scheduler has ended"
    FAILING = "passes fail"
    STUCK = "a pass takes too long"
    DRAINING = "about to stop"


class Vitals:
    """Ailments that a verifier has at the moment."""

    def __init__(self) -> None:
        self._ailments: set[Ailment] = set()
        self._failed_in_a_row = 0
        self._changed = asyncio.Event()

    @property
    def is_serving(self) -> bool:
        """Whether nothing speaks against it."""
        return not self._ailments

    def set(self, ailment: Ailment, is_so: bool) -> None:
        """Say that it has the ailment, or no longer."""
        if is_so == (ailment in self._ailments):
            return
        # The other ones are a verifier's ordinary end, or are logged where they come from.
        level = logging.WARNING if ailment is Ailment.FAILING else logging.INFO
        if is_so:
            self._ailments.add(ailment)
            logger.log(level, "not serving: %s", ailment.value)
        else:
            self._ailments.discard(ailment)
            logger.log(level, "no longer: %s", ailment.value)
        self._changed.set()

    def on_pass(self, failed: bool) -> None:
        """A pass has ended, well or not."""
        self._failed_in_a_row = self._failed_in_a_row + 1 if failed else 0
        self.set(Ailment.FAILING, self._failed_in_a_row >= FAILED_PASSES)

    async def serving_is_not(self, known: bool) -> bool:
        """Wait until `is_serving` is not what is known; returns it."""
        while self.is_serving == known:
            self._changed.clear()
            await self._changed.wait()
        return self.is_serving
