"""The verifiers that an agent may use, over gRPC: which one is the current one, whether another serves the same target,
and when the device's network has changed, so that connections made before are not waited for.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Sequence
from typing import Any

from outrider.edge.known_verifiers import keep_info, known_info
from outrider.edge.link import GrpcEdgeLink, VerifierClient
from outrider.shared.access import is_loopback, split_address
from outrider.shared.errors import OutriderError, Reason
from outrider.shared.messages import Limits, VerifierInfo

logger = logging.getLogger(__name__)

LOOK_EVERY_S = 0.5


class GrpcVerifiers:
    """See `Verifiers` in `recovery`. Make it with `reached`."""

    def __init__(self, clients: Sequence[VerifierClient], current: VerifierClient, info: VerifierInfo) -> None:
        self.info = info
        self._clients = list(clients)
        self._current = current
        self._changed = asyncio.Event()

    @classmethod
    @contextlib.asynccontextmanager
    async def reached(
        cls, clients: Sequence[VerifierClient], *, may_be_away: bool = False
    ) -> AsyncIterator[GrpcVerifiers]:
        """The first of `clients` that answers is the current one. Closes all of them in the end. If they `may_be_away`,
        what one of them said at another time will do.

        Raises what the last one says if none answers.
        """
        async with contextlib.AsyncExitStack() as stack:
            for client in clients:
                stack.push_async_callback(client.close)
            client, info = await _first_word(clients, may_be_away=may_be_away)
            verifiers = cls(clients, client, info)
            watch = asyncio.create_task(verifiers._watch_network(), name="watch-network")
            try:
                yield verifiers
            finally:
                watch.cancel()
                await asyncio.gather(watch, return_exceptions=True)

    @property
    def count(self) -> int:
        """See `Verifiers.count`."""
        return len(self._clients)

    @property
    def current(self) -> VerifierClient:
        """The one that streams are opened to."""
        return self._current

    def open_stream(self) -> GrpcEdgeLink:
        """See `Verifiers.open_stream`."""
        return self._current.open_stream()

    async def find(self, *, elsewhere: bool) -> Limits:
        """See `Verifiers.find`."""
        first = self._clients.index(self._current) + elsewhere
        last: OutriderError | None = None
        for offset in range(len(self._clients)):
            client = self._clients[(first + offset) % len(self._clients)]
            try:
                info = await client.get_info()
            except OutriderError as error:
                if last is None or last.reason is not Reason.VERIFIER_UNREACHABLE:
                    last = error
                continue
            mine, theirs = self.info.target_identity(), info.target_identity()
            differing = [name for name, value in theirs.items() if value != mine[name]]
            if differing:
                text = f"{client.address} serves another target than before: it differs in {', '.join(differing)}."
                # One that cannot be reached may come back and be right.
                if last is None or last.reason is not Reason.VERIFIER_UNREACHABLE:
                    last = OutriderError(Reason.TARGET_DIFFERS, text)
                continue
            if client is not self._current:
                logger.info("going on at %s", client.address)
            self._current = client
            return info.limits
        assert last is not None, "there is a verifier"
        raise last

    async def pause(self, seconds: float) -> None:
        """See `Verifiers.pause`."""
        self._changed.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()

    async def _watch_network(self) -> None:
        """Leave connections that were made from an address which the device does not use any more."""
        routes = [_Route(client) for client in self._clients if not is_loopback(client.address)]
        while routes:
            for route in routes:
                if await route.has_changed():
                    logger.info("the network has changed: reaching %s anew", route.client.address)
                    route.client.renew()
                    self._changed.set()
            await asyncio.sleep(LOOK_EVERY_S)


async def _first_word(clients: Sequence[VerifierClient], *, may_be_away: bool) -> tuple[VerifierClient, VerifierInfo]:
    """The first client that answers, and what it says; see `reached`."""
    for client in clients:
        try:
            info = await client.get_info()
        except OutriderError as error:
            last = error
            if client is not clients[-1]:
                logger.warning("%s", error.message)
        else:
            if may_be_away:
                await asyncio.to_thread(keep_info, client.address, info)
            return client, info
    for client in clients if may_be_away and last.reason is Reason.VERIFIER_UNREACHABLE else ():
        known = await asyncio.to_thread(known_info, client.address)
        if known is not None:
            logger.warning("%s Going on with what %s said another time.", last.message, client.address)
            return client, known
    raise last


class _Route:
    """The address of this device from which a verifier is reached. Its name is looked up once, not at each look."""

    def __init__(self, client: VerifierClient) -> None:
        self.client = client
        self._resolved: tuple[Any, ...] | None = None
        self._used: str | None = None

    async def has_changed(self) -> bool:
        """Whether that is another one than at the last look; without a network there is nothing to change to."""
        before, now = self._used, await self._look()
        self._used = now or before
        return None not in (before, now) and before != now

    async def _look(self) -> str | None:
        try:
            if self._resolved is None:
                host, port = split_address(self.client.address)
                self._resolved = (await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_DGRAM))[0]
            return local_address(self._resolved)
        except OSError:
            return None


def local_address(resolved: tuple[Any, ...]) -> str:
    """The address from which what `getaddrinfo` found is reached now; raises OSError. Nothing is sent to it."""
    family, kind, protocol, _, address = resolved
    with socket.socket(family, kind, protocol) as probe:
        # Of a datagram socket this only picks a route.
        probe.connect(address)
        return str(probe.getsockname()[0])
