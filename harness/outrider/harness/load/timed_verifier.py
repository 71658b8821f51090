"""A verifier that knows how long its rounds take: from a Grow that was read to the Commit that was written."""

from __future__ import annotations

import time
from array import array

from outrider.cloud.principal import ANONYMOUS, Principal
from outrider.cloud.target import Target
from outrider.cloud.verifier import Verifier, VerifierConfig
from outrider.shared.link import CloudLink
from outrider.shared.messages import CloudMessage, Commit, EdgeMessage, Grow


class TimedVerifier(Verifier):
    """See `Verifier`. `round_s` holds the seconds of each round so far; clear it as you like."""

    def __init__(self, target: Target, config: VerifierConfig) -> None:
        super().__init__(target, config)
        self.round_s = array("d")

    async def serve(self, link: CloudLink, principal: Principal = ANONYMOUS) -> None:
        """See `Verifier.serve`."""
        await super().serve(_TimedLink(link, self.round_s), principal)


class _TimedLink:
    """A `CloudLink` to a client that sends its next Grow when it has read the Commit to the last one."""

    def __init__(self, link: CloudLink, round_s: array[float]) -> None:
        self._link = link
        self._round_s = round_s
        self._asked_s: float | None = None

    async def send(self, message: CloudMessage) -> None:
        """See `CloudLink.send`."""
        asked_s = None
        if isinstance(message, Commit):
            # The client may read it and ask again before the write is seen to have ended.
            asked_s, self._asked_s = self._asked_s, None
        await self._link.send(message)
        if asked_s is not None:
            self._round_s.append(time.perf_counter() - asked_s)

    async def receive(self) -> EdgeMessage | None:
        """See `CloudLink.receive`."""
        message = await self._link.receive()
        if isinstance(message, Grow):
            self._asked_s = time.perf_counter()
        return message
