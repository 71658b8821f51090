"""A verifier in a process of its own on a free loopback port, for as long as somebody needs it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Sequence

from outrider.shared.child_process import stop_child
from outrider.shared.errors import ERROR_TABLE, OutriderError, Reason

START_LIMIT_S = 600.0


@contextlib.asynccontextmanager
async def private_verifier(arguments: Sequence[str] = ()) -> AsyncIterator[str]:
    """Start `outrider verifier` with `arguments` beside the address; yields HOST:PORT once it serves.

    Raises what the verifier says it could not do, or VERIFIER_START_FAILED.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "outrider.shared.cli",
        "verifier",
        "--listen",
        "127.0.0.1:0",
        "--stop-with-stdin",
        "--json",
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield await _wait_until_ready(process)
    finally:
        await stop_child(process)


async def _wait_until_ready(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    try:
        async with asyncio.timeout(START_LIMIT_S):
            line = await process.stdout.readline()
    except TimeoutError:
        raise OutriderError(Reason.VERIFIER_START_FAILED, f"not ready after {START_LIMIT_S:g} s.") from None
    try:
        said = json.loads(line)
    except ValueError:
        said = {}
    if "listening" in said:
        return str(said["listening"])
    error = said.get("error", {})
    if error.get("reason") in Reason.__members__:
        reason = Reason[error["reason"]]
        text = str(error.get("message", "")).removeprefix(f"{ERROR_TABLE[reason].public} ")
        raise OutriderError(reason, f"(private verifier) {text}")
    raise OutriderError(Reason.VERIFIER_START_FAILED, "what it wrote to standard error says why.")
