"""An event loop for measuring on the wall clock: asyncio's usual one wakes up to a millisecond late, as epoll counts in
milliseconds, and every simulated draft step and every delayed message would pay that.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def precise_loop() -> asyncio.SelectorEventLoop:
    """A loop over `select`, which counts in microseconds; it takes file descriptors below 1,024 only."""
    return asyncio.SelectorEventLoop(selectors.SelectSelector())


def run(main: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` on a `precise_loop`."""
    with asyncio.Runner(loop_factory=precise_loop) as runner:
        return runner.run(main)
