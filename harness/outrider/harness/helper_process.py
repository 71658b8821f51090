"""Starts a helper of the harness (proxy, replay server, echo server) as a process of its own, talks to it by lines of
JSON, and sees it to its end. What the helper does is its own business.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Sequence
from typing import Any

from outrider.shared.child_process import stop_child
from outrider.shared.errors import ERROR_TABLE, OutriderError, Reason

START_LIMIT_S = 60.0
ANSWER_LIMIT_S = 20.0
MAX_LINE_BYTES = 256 << 20


class HelperProcess:
    """A helper that runs. `name` is what errors call it, `said` what it said first."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self.said: dict[str, Any] = {}
        self._process = process

    @property
    def pid(self) -> int:
        """Its process number."""
        return self._process.pid

    @property
    def address(self) -> str:
        """HOST:PORT where it listens."""
        return str(self.said["listening"])

    async def start(self) -> None:
        """Wait until it says where it listens; raises the error that it says instead."""
        self.said = await self._hear(START_LIMIT_S)
        if "listening" not in self.said:
            error = self.said.get("error", {})
            reason = Reason.__members__.get(str(error.get("reason")), Reason.MEASUREMENT_INVALID)
            text = str(error.get("message", self.said)).removeprefix(f"{ERROR_TABLE[reason].public} ")
            raise OutriderError(reason, f"{self.name}: {text}")

    async def ask(self, command: str) -> dict[str, Any]:
        """Send a line and return the answer, {"done": command, …}; raises MEASUREMENT_INVALID if it has died or does
        not answer.
        """
        assert self._process.stdin is not None
        with contextlib.suppress(ConnectionError):
            self._process.stdin.write(f"{command}\n".encode())
            await self._process.stdin.drain()
        said = await self._hear(ANSWER_LIMIT_S)
        assert said.get("done") == command, said
        return said

    async def _hear(self, limit_s: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(limit_s):
                line = await self._process.stdout.readline()
                if not line:
                    code = await self._process.wait()
                    text = f"{self.name} has ended (exit code {code})."
                    raise OutriderError(Reason.MEASUREMENT_INVALID, text)
        except TimeoutError:
            text = f"{self.name} said nothing in {limit_s:g} s."
            raise OutriderError(Reason.MEASUREMENT_INVALID, text) from None
        said = json.loads(line)
        assert isinstance(said, dict)
        return said


@contextlib.asynccontextmanager
async def helper_process(
    name: str, module: str, arguments: Sequence[str], prefix: Sequence[str] = ()
) -> AsyncIterator[HelperProcess]:
    """`python -m module arguments` inside the context, its command line begun by `prefix`.

    Raises the error that it says, or MEASUREMENT_INVALID, if it does not start.
    """
    command = (*prefix, sys.executable, "-m", module, *arguments)
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=MAX_LINE_BYTES
    )
    try:
        helper = HelperProcess(name, process)
        await helper.start()
        yield helper
    finally:
        await stop_child(process)
