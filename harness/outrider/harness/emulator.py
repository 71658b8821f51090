"""Ways to put a link's delay between edge and verifier on one machine. Each knows on which side of it the cloud is and
how a process is started there.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Literal, Protocol

from outrider.harness import netem
from outrider.harness.links import LinkProfile
from outrider.harness.proxy_process import ProxyProcess, running_proxy
from outrider.shared.errors import OutriderError, Reason

EmulatorName = Literal["proxy", "netem"]
EmulatorChoice = Literal["auto", "proxy", "netem"]


class Emulator(Protocol):
    """Puts links in front of servers that run on the cloud's side of it."""

    name: EmulatorName
    cloud_side: tuple[str, ...]
    """What the command line of a process on the cloud's side begins with."""

    def link(self, profile: LinkProfile, to: str, seed: int) -> AbstractAsyncContextManager[ProxyProcess]:
        """A link with `profile` to the server at `to` (HOST:PORT on the cloud's side); one at a time."""
        ...


class ProxyEmulator:
    """The delay proxy: all processes are on one loopback."""

    name: EmulatorName = "proxy"
    cloud_side: tuple[str, ...] = ()

    def link(self, profile: LinkProfile, to: str, seed: int) -> AbstractAsyncContextManager[ProxyProcess]:
        """See `Emulator.link`."""
        return running_proxy(profile, to, seed)


def choose_emulator(choice: EmulatorChoice, profile: LinkProfile, sessions: int) -> EmulatorName:
    """The emulator for a link that `sessions` share: `auto` is netem where this machine has it and it can express the
    link. Raises USAGE, with all that is missing, where netem is asked for and cannot be had.
    """
    if choice == "proxy":
        return "proxy"
    problems = [*netem.missing(), *netem.inexpressible(profile, sessions)]
    if problems and choice == "netem":
        raise OutriderError(Reason.USAGE, f"emulator = 'netem': {'; '.join(problems)}.")
    return "proxy" if problems else "netem"


@contextlib.asynccontextmanager
async def running_emulator(name: EmulatorName) -> AsyncIterator[Emulator]:
    """The emulator inside the context; what it changed on the machine is undone afterwards."""
    if name == "proxy":
        yield ProxyEmulator()
    else:
        async with netem.running_namespace() as namespace:
            yield namespace
