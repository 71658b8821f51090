"""Child processes that end when their standard input does, so that none outlives its parent."""

from __future__ import annotations

import asyncio

STOP_LIMIT_S = 10.0


async def stop_child(process: asyncio.subprocess.Process) -> None:
    """Close its standard input, which ends it; kill it if it does not end in time."""
    if process.returncode is not None:
        return
    assert process.stdin is not None
    process.stdin.close()
    try:
        async with asyncio.timeout(STOP_LIMIT_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
