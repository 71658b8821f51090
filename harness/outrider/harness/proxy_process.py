"""Starts a delay proxy as a process of its own and sees it to its end."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Literal

from outrider.harness.helper_process import HelperProcess, helper_process
from outrider.harness.links import LinkProfile
from outrider.harness.wall_time import Lateness


@dataclass(frozen=True, slots=True)
class ProxyReport:
    """What a proxy did since its clock began: how late it released what flew. `connections` counts all it accepted."""

    connections: int
    lateness: Lateness


class ProxyProcess:
    """A running proxy; `address` is the HOST:PORT to connect to, `pid` its process number."""

    def __init__(self, process: HelperProcess) -> None:
        self.address = process.address
        self.pid = process.pid
        self._process = process

    async def restart_clock(self) -> None:
        """Let the link's time begin now; open connections stay, with what flies over them."""
        await self._process.ask("start")

    async def cut(self, kind: Literal["rst", "fin"] = "rst") -> None:
        """Break all open connections."""
        await self._process.ask(f"cut {kind}")

    async def report(self) -> ProxyReport:
        """What it did so far."""
        said = await self._process.ask("report")
        return ProxyReport(said["connections"], Lateness(**said["lateness"]))


@contextlib.asynccontextmanager
async def running_proxy(
    profile: LinkProfile, to: str, seed: int = 1, *, listen: str = "127.0.0.1:0", prefix: Sequence[str] = ()
) -> AsyncIterator[ProxyProcess]:
    """A proxy with `profile` in front of `to` (HOST:PORT), listening on `listen`; `prefix` begins its command line.

    Raises USAGE with what the proxy says if it does not start.
    """
    link = profile.model_dump_json(exclude_defaults=True)
    arguments = ("--listen", listen, "--to", to, "--seed", str(seed), "--link", link)
    async with helper_process("the delay proxy", "outrider.harness.delay_proxy", arguments, prefix) as process:
        yield ProxyProcess(process)
