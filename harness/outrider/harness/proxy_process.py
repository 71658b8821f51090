"""Starts a delay proxy as a process of its own and sees it to its end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from typing import Any, Literal

from outrider.harness.links import LinkProfile
from outrider.shared.child_process import stop_child
from outrider.shared.errors import OutriderError, Reason

START_LIMIT_S = 20.0


class ProxyProcess:
    """A running proxy; `address` is the HOST:PORT to connect to."""

    def __init__(self, process: asyncio.subprocess.Process, address: str) -> None:
        self.address = address
        self._process = process

    async def restart_clock(self) -> None:
        """Let the link's time begin now; open connections are closed."""
        await self._command("start")

    async def cut(self, kind: Literal["rst", "fin"] = "rst") -> None:
        """Break all open connections."""
        await self._command(f"cut {kind}")

    async def _command(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())
        await self._process.stdin.drain()
        said = await _say(self._process)
        assert said == {"done": line}, said


@contextlib.asynccontextmanager
async def running_proxy(profile: LinkProfile, to: str, seed: int = 1) -> AsyncIterator[ProxyProcess]:
    """A proxy with `profile` in front of `to` (HOST:PORT) on a free loopback port.

    Raises USAGE with what the proxy says if it does not start.
    """
    arguments = ("--to", to, "--seed", str(seed), "--link", profile.model_dump_json(exclude_defaults=True))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "outrider.harness.delay_proxy", *arguments,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdin is not None
    try:
        said = await _say(process)
        if "listening" not in said:
            raise OutriderError(Reason.USAGE, f"the delay proxy says: {said.get('error')}.")
        yield ProxyProcess(process, said["listening"])
    finally:
        await stop_child(process)


async def _say(process: asyncio.subprocess.Process) -> dict[str, Any]:
    assert process.stdout is not None
    try:
        async with asyncio.timeout(START_LIMIT_S):
            line = await process.stdout.readline()
    except TimeoutError:
        raise OutriderError(Reason.USAGE, f"the delay proxy said nothing in {START_LIMIT_S:g} s.") from None
    said = json.loads(line or b"{}")
    assert isinstance(said, dict)
    return said
