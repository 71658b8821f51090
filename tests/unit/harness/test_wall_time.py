"""The loop for measuring on the wall clock."""

from __future__ import annotations

import asyncio
import selectors

from outrider.harness.wall_time import run


def test_it_does_not_count_in_milliseconds() -> None:
    """How late it wakes is for a quiet machine to measure; `epoll` and `poll` round up to whole milliseconds."""

    async def main() -> object:
        await asyncio.sleep(0.0012)
        return getattr(asyncio.get_running_loop(), "_selector", None)

    assert isinstance(run(main()), selectors.SelectSelector)
