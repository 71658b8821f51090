"""Verifier processes for tests that kill, stop and restart them, with a tiny target that takes its time."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from outrider.shared.sampling.options import Sampling

SCRIPT = Path(__file__).with_name("slow_verifier.py")
START_LIMIT_S = 60.0
WAIT_LIMIT_S = 30.0
# The end is far away, so that what happens in the middle of an answer does.
LONG = Sampling(max_tokens=100, temperature=0.8, seed=5, logit_bias={256: -100.0})


class MortalVerifier:
    """One verifier; it keeps its port when it is started again."""

    def __init__(self, log: Path, pass_ms: float, arguments: tuple[str, ...]) -> None:
        self.address = "127.0.0.1:0"
        self.log = log
        self._pass_ms = pass_ms
        self._arguments = arguments
        self._process: asyncio.subprocess.Process | None = None

    async def start(self, long_pass: int = 0) -> None:
        """Start it; pass number `long_pass` will take a minute."""
        self.log.write_text("")
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, str(SCRIPT), str(self._pass_ms), str(long_pass), str(self.log),
            "--target", "tiny", "--context", "2000", "--listen", self.address, "--json", *self._arguments,
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert self._process.stdout is not None
        async with asyncio.timeout(START_LIMIT_S):
            said = json.loads(await self._process.stdout.readline())
        assert "listening" in said, said
        self.address = said["listening"]

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process."""
        assert self._process is not None
        self._process.send_signal(number)

    async def ended(self) -> int:
        """Wait for its end; returns the exit code."""
        assert self._process is not None
        async with asyncio.timeout(WAIT_LIMIT_S):
            return await self._process.wait()

    async def kill(self) -> None:
        """kill -9."""
        if self.is_running:
            self.send(signal.SIGKILL)
            assert await self.ended() == -signal.SIGKILL

    @property
    def passes(self) -> int:
        """Passes that have begun since the last start."""
        return self.log.read_text().count("begin")

    @property
    def is_in_pass(self) -> bool:
        """Whether one has begun and not ended."""
        return self.passes > self.log.read_text().count("end")

    @property
    def text_rows(self) -> int:
        """Tokens of texts that have been computed since the last start, guesses not counted."""
        return sum(int(line.split()[1]) for line in self.log.read_text().splitlines() if line.startswith("begin"))

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until `condition` holds of what the log says."""
        async with asyncio.timeout(WAIT_LIMIT_S):
            while not condition():  # noqa: ASYNC110 - of another process
                await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def mortal_verifiers(
    folder: Path, count: int = 1, *arguments: str, pass_ms: float = 20
) -> AsyncIterator[list[MortalVerifier]]:
    """`count` verifiers that have started; those that are alive in the end are killed."""
    verifiers = [MortalVerifier(folder / f"log-{index}", pass_ms, arguments) for index in range(count)]
    try:
        for verifier in verifiers:
            await verifier.start()
        yield verifiers
    finally:
        for verifier in verifiers:
            await verifier.kill()
