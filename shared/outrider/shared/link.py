"""The seam between an end and its peer: a pair of message streams. gRPC, a queue in memory or a simulated network
with delay stand behind it alike.
"""

from __future__ import annotations

from typing import Protocol

from outrider.shared.messages import CloudMessage, EdgeMessage


class EdgeLink(Protocol):
    """The edge's end of one stream. One task sends, one receives."""

    @property
    def sent_bytes(self) -> int:
        """Serialised size of all messages sent so far, framing of the transport not counted."""
        ...

    @property
    def received_bytes(self) -> int:
        """Serialised size of all messages received so far."""
        ...

    async def send(self, message: EdgeMessage) -> None:
        """Hand a message over. On a stream that has ended it is dropped; `receive` tells of the end."""
        ...

    async def receive(self) -> CloudMessage | None:
        """The next message; None once the verifier has ended the stream; raises `OutriderError`."""
        ...

    async def close(self) -> None:
        """End the stream. May be called at any time and more than once."""
        ...


class CloudLink(Protocol):
    """The verifier's end of one stream. One task sends, one receives."""

    async def send(self, message: CloudMessage) -> None:
        """Hand a message over."""
        ...

    async def receive(self) -> EdgeMessage | None:
        """The next message; None once the edge has ended the stream; raises `OutriderError` for a bad one."""
        ...
