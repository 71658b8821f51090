"""One thread that owns something which may not be used from two threads at once, such as a loaded model."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


class Worker:
    """Runs calls one after the other in a thread of its own, off the event loop."""

    def __init__(self, name: str) -> None:
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)

    async def run(self, call: Callable[[], T]) -> T:
        """The result of `call`. A cancelled caller leaves the call running; later ones wait for it."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, call)

    def stop(self) -> None:
        """End the thread after what has been handed in."""
        self._executor.shutdown(wait=False)
