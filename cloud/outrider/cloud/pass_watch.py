"""Notices passes that take too long: an engine that hangs takes the whole verifier with it, and says nothing."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator

logger = logging.getLogger(__name__)


class PassWatch:
    """Calls `on_stuck(True)` when a pass has taken longer than `limit_s`, and `on_stuck(False)` if it ends at last."""

    def __init__(self, limit_s: float, on_stuck: Callable[[bool], None]) -> None:
        self._limit_s = limit_s
        self._on_stuck = on_stuck
        self._is_stuck = False

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Around a pass."""
        timer = asyncio.get_running_loop().call_later(self._limit_s, self._on_limit)
        try:
            yield
        finally:
            timer.cancel()
            if self._is_stuck:
                self._is_stuck = False
                logger.warning("the pass that seemed to be stuck has ended")
                self._on_stuck(False)

    def _on_limit(self) -> None:
        self._is_stuck = True
        logger.error("a pass has taken more than %g s: the target seems to be stuck", self._limit_s)
        self._on_stuck(True)
