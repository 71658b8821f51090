"""Delay by the kernel's netem between this network namespace and one in which the cloud's processes run, joined by a
veth pair. Servers there listen on their own loopback; a relay on the veth address passes connections on to them.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from ipaddress import ip_address
from typing import Literal

from outrider.harness.links import Direction, LinkProfile
from outrider.harness.proxy_process import ProxyProcess, running_proxy
from outrider.shared.errors import OutriderError, Reason

TOOL_LIMIT_S = 10.0
QUEUE_PACKETS = 100_000
# netem counts Ethernet 14, IPv4 20, TCP 32 and, in the payload, HTTP/2 and gRPC 14; a profile's `overhead_bytes` may be
# others.
SEEN_OVERHEAD_BYTES = 80
# netem keeps packets in order only where it has a rate; this one takes nanoseconds.
NO_BOUND_MBIT = 100_000.0
# 198.18.0.0/15 is set aside for measurements between networks (RFC 2544); each pair takes four addresses.
_PAIRS = 1 << 15
_numbers = itertools.count()


@functools.cache
def missing() -> tuple[str, ...]:
    """What this machine lacks for netem; empty if nothing. Tries it out in a namespace of its own."""
    if os.geteuid() != 0:
        return ("only root may make network namespaces",)
    tools = tuple(f"the command {name} (of iproute2) is missing" for name in ("ip", "tc") if shutil.which(name) is None)
    if tools:
        return tools
    name = _new_name()
    try:
        for command in (
            ["ip", "netns", "add", name],
            ["tc", "-n", name, "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"],
        ):
            done = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_LIMIT_S, check=False)
            if done.returncode != 0:
                what = "the kernel has no netem" if command[0] == "tc" else "network namespaces cannot be made"
                return (f"{what} ({' '.join(command)}: {_said(done.stderr)})",)
    finally:
        subprocess.run(["ip", "netns", "del", name], capture_output=True, timeout=TOOL_LIMIT_S, check=False)
    return ()


def inexpressible(profile: LinkProfile, sessions: int) -> tuple[str, ...]:
    """What of a link that each of `sessions` has for itself netem cannot do."""
    problems = {
        "losses as stalls (loss_probability)": profile.loss_probability > 0,
        "stalls": bool(profile.stalls),
        "cuts": bool(profile.cuts),
        "a trace": bool(profile.trace),
        "exponential jitter": profile.jitter == "exponential",
        "a rate for each of several sessions": sessions > 1 and bool(profile.up_mbit or profile.down_mbit),
    }
    return tuple(f"netem cannot do {what}" for what, is_wanted in problems.items() if is_wanted)


def netem_options(profile: LinkProfile, direction: Direction) -> list[str]:
    """What follows `tc qdisc … netem` for one direction; empty for a link that does nothing. Jitter is drawn for each
    packet, not for each slot of time.
    """
    is_up = direction is Direction.UP
    delay_ms = profile.up_ms if is_up else profile.down_ms
    mbit = profile.up_mbit if is_up else profile.down_mbit
    options: list[str] = []
    if delay_ms or profile.jitter_ms:
        jitter = [_microseconds(profile.jitter_ms)] if profile.jitter_ms else []
        options += ["delay", _microseconds(delay_ms), *jitter]
    if mbit or profile.jitter_ms:
        overhead = profile.overhead_bytes - SEEN_OVERHEAD_BYTES
        options += ["rate", f"{round((mbit or NO_BOUND_MBIT) * 1e6)}bit", str(overhead)]
    return ["limit", str(QUEUE_PACKETS), *options] if options else []


class Namespace:
    """See `Emulator`: a namespace that is there, and the veth pair to it. Make it with `running_namespace`."""

    name: Literal["proxy", "netem"] = "netem"

    def __init__(self, name: str) -> None:
        self.namespace = name
        self.cloud_side: tuple[str, ...] = ("ip", "netns", "exec", name)
        pair = ip_address("198.18.0.0") + (os.getpid() * 8 + next(_numbers)) % _PAIRS * 4
        self.edge_ip, self.cloud_ip = str(pair + 1), str(pair + 2)
        self._edge_device, self._cloud_device = f"{name}e", f"{name}c"

    async def open(self) -> None:
        """Make the namespace and the pair; raises MEASUREMENT_INVALID with what the system said."""
        edge, cloud, inside = self._edge_device, self._cloud_device, ("ip", "-n", self.namespace)
        await _tool("ip", "netns", "add", self.namespace)
        await _tool("ip", "link", "add", edge, "type", "veth", "peer", "name", cloud, "netns", self.namespace)
        await _tool("ip", "addr", "add", f"{self.edge_ip}/30", "dev", edge)
        await _tool(*inside, "addr", "add", f"{self.cloud_ip}/30", "dev", cloud)
        await _tool("ip", "link", "set", edge, "up")
        await _tool(*inside, "link", "set", cloud, "up")
        await _tool(*inside, "link", "set", "lo", "up")

    async def close(self) -> None:
        """Take them away, as far as they are there; the cloud's end of the pair goes with the namespace."""
        for command in (("ip", "netns", "del", self.namespace), ("ip", "link", "del", self._edge_device)):
            with contextlib.suppress(OutriderError):
                await _tool(*command)

    @contextlib.asynccontextmanager
    async def link(self, profile: LinkProfile, to: str, seed: int) -> AsyncIterator[ProxyProcess]:
        """See `Emulator.link`; `seed` is of no use to netem."""
        await self._shape(("tc",), self._edge_device, netem_options(profile, Direction.UP))
        await self._shape(("tc", "-n", self.namespace), self._cloud_device, netem_options(profile, Direction.DOWN))
        listen = f"{self.cloud_ip}:0"
        async with running_proxy(LinkProfile(), to, seed, listen=listen, prefix=self.cloud_side) as relay:
            yield relay

    @staticmethod
    async def _shape(tc: tuple[str, ...], device: str, options: list[str]) -> None:
        with contextlib.suppress(OutriderError):
            await _tool(*tc, "qdisc", "del", "dev", device, "root")
        if options:
            await _tool(*tc, "qdisc", "add", "dev", device, "root", "netem", *options)


@contextlib.asynccontextmanager
async def running_namespace() -> AsyncIterator[Namespace]:
    """A namespace with a veth pair inside the context; raises MEASUREMENT_INVALID if it cannot be made."""
    namespace = Namespace(_new_name())
    try:
        await namespace.open()
        yield namespace
    finally:
        # Also where the run was cancelled: nothing else would ever take the namespace away.
        await asyncio.shield(asyncio.create_task(namespace.close()))


def _new_name() -> str:
    """Of at most 14 characters, as a device's name is one longer and ends at 15."""
    return f"outr{os.getpid():x}n{next(_numbers):x}"[:14]


def _microseconds(milliseconds: float) -> str:
    return f"{round(milliseconds * 1000)}us"


def _said(text: str) -> str:
    return text.strip().splitlines()[-1].rstrip(".") if text.strip() else "no word"


async def _tool(*command: str) -> None:
    """Run a command to its end; raises MEASUREMENT_INVALID with what it said."""
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(TOOL_LIMIT_S):
            _, said = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        raise OutriderError(Reason.MEASUREMENT_INVALID, f"{' '.join(command)}: {_said(said.decode())}.")
