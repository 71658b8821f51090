"""Links in memory over a simulated network: the two ends that agent and verifier know, with the semantics of the gRPC
ones. Messages are really serialised, counted and parsed; time comes from the event loop, virtual or not.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Protocol

from outrider.cloud.incidents import internal_error
from outrider.cloud.service import MAX_ERROR_TEXT
from outrider.edge.link import ANSWER_TIMEOUT_S
from outrider.harness.links import Channel, Cut, Direction, LinkProfile
from outrider.shared.convert import (
    EdgeMessageReader,
    cloud_message_from_pb,
    cloud_message_to_pb,
    edge_message_to_pb,
)
from outrider.shared.errors import OutriderError, Reason
from outrider.shared.link import CloudLink
from outrider.shared.messages import CloudMessage, EdgeMessage
from outrider.v1 import verifier_pb2 as pb

ADDRESS = "memory"
SETTLE_LIMIT_S = 30.0


@dataclass(frozen=True, slots=True)
class Flight:
    """One wire message on its way: `size_bytes` serialised, times in seconds of the loop's clock."""

    direction: Direction
    size_bytes: int
    sent_s: float
    arrives_s: float


Observer = Callable[[Flight], None]


class Server(Protocol):
    """What serves streams: a `Verifier`."""

    async def serve(self, link: CloudLink) -> None:
        """Serve one stream to its end."""
        ...


@dataclass(frozen=True, slots=True)
class _End:
    """The end of a stream, good or with an error."""

    error: OutriderError | None = None


class _Pipe:
    """One direction of a stream: a queue of what flies, one timer, and a queue of what has arrived.

    Timers with equal deadlines have no order in asyncio, hence only one.
    """

    def __init__(self, profile: LinkProfile, direction: Direction, seed: int, observer: Observer | None) -> None:
        self.overhead_bytes = 0
        self._overhead = profile.overhead_bytes
        self._direction = direction
        self._observer = observer
        self._loop = asyncio.get_running_loop()
        self._channel = Channel(profile, direction, seed)
        self._flying: deque[tuple[float, bytes | _End]] = deque()
        self._arrived: deque[bytes] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._something = asyncio.Event()
        self._is_closed = False
        self._end: _End | None = None

    def send(self, data: bytes) -> None:
        """Send one message; dropped on a pipe that is closed or broken."""
        if self._is_closed:
            return
        self.overhead_bytes += self._overhead
        now_s = self._loop.time()
        arrives_s = self._fly(data, len(data) + self._overhead)
        if self._observer is not None:
            self._observer(Flight(self._direction, len(data), now_s, arrives_s))

    def close(self, end: _End) -> None:
        """Say that nothing more comes; what was sent before arrives before it."""
        if not self._is_closed:
            self._is_closed = True
            self._fly(end, self._overhead)

    def lose(self) -> None:
        """Drop what flies and all that will be sent; the receiver learns nothing."""
        self._is_closed = True
        self._flying.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def end_now(self, end: _End) -> None:
        """Let the receiver see `end` after what has arrived, unless it has seen another."""
        self.lose()
        if self._end is None:
            self._end = end
            self._something.set()

    async def receive(self) -> bytes | None:
        """The next message; None after a good end; raises the error that the stream ended with."""
        while not self._arrived:
            if self._end is not None:
                if self._end.error is not None:
                    raise self._end.error
                return None
            self._something.clear()
            await self._something.wait()
        return self._arrived.popleft()

    def _fly(self, item: bytes | _End, size_bytes: int) -> float:
        arrives_s = self._channel.arrival_s(self._loop.time(), size_bytes)
        self._flying.append((arrives_s, item))
        if self._timer is None:
            self._timer = self._loop.call_at(arrives_s, self._deliver)
        return arrives_s

    def _deliver(self) -> None:
        # A loop may run a timer a clock's tick early: the first one is due whatever the clock says.
        now_s = max(self._loop.time(), self._flying[0][0])
        while self._flying and self._flying[0][0] <= now_s:
            _, item = self._flying.popleft()
            if isinstance(item, _End):
                self._end = item
            else:
                self._arrived.append(item)
        self._something.set()
        self._timer = self._loop.call_at(self._flying[0][0], self._deliver) if self._flying else None


class MemoryEdgeLink:
    """An `EdgeLink` in memory. `served` is the verifier's side of the stream."""

    def __init__(self, up: _Pipe, down: _Pipe) -> None:
        self.sent_bytes = 0
        self.received_bytes = 0
        self.served: asyncio.Task[None] | None = None
        self._up, self._down = up, down

    @property
    def overhead_bytes(self) -> int:
        """What the transport added in both directions so far; it took its time on the link too."""
        return self._up.overhead_bytes + self._down.overhead_bytes

    async def send(self, message: EdgeMessage) -> None:
        """See `EdgeLink.send`."""
        for part in edge_message_to_pb(message):
            data = part.SerializeToString()
            self.sent_bytes += len(data)
            self._up.send(data)

    async def receive(self) -> CloudMessage | None:
        """See `EdgeLink.receive`; raises VERIFIER_UNREACHABLE after `ANSWER_TIMEOUT_S` of silence, as over gRPC."""
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                data = await self._down.receive()
        except TimeoutError:
            text = f"{ADDRESS}: no word in {ANSWER_TIMEOUT_S:g} s."
            raise OutriderError(Reason.VERIFIER_UNREACHABLE, text) from None
        if data is None:
            return None
        self.received_bytes += len(data)
        return cloud_message_from_pb(pb.DecodeResponse.FromString(data))

    async def close(self) -> None:
        """See `EdgeLink.close`; what has been sent still arrives, unless a cut comes first."""
        self._up.close(_End())
        self._down.end_now(_End())

    def cut(self, edge_notice_s: float = 0.0, cloud_notice_s: float = 0.0) -> None:
        """Break the stream: what flies is lost, and each side sees the end after its notice."""
        self._up.lose()
        self._down.lose()
        error = OutriderError(Reason.VERIFIER_UNREACHABLE, f"{ADDRESS}: UNAVAILABLE: the connection broke.")
        loop = asyncio.get_running_loop()
        for notice_s, pipe, end in ((edge_notice_s, self._down, _End(error)), (cloud_notice_s, self._up, _End())):
            if notice_s:
                loop.call_later(notice_s, pipe.end_now, end)
            else:
                pipe.end_now(end)

    def schedule(self, cuts: tuple[Cut, ...], served: asyncio.Task[None]) -> None:
        """Let the cuts that are to come, or whose outage lasts, happen to this stream while it is `served`."""
        self.served = served
        loop = asyncio.get_running_loop()
        timers = [
            loop.call_at(max(cut.at_s, loop.time()), self.cut, cut.edge_notice_ms / 1000, cut.cloud_notice_ms / 1000)
            for cut in cuts
            if loop.time() <= cut.at_s or loop.time() < cut.at_s + cut.outage_ms / 1000
        ]

        def cancel(_: object) -> None:
            for timer in timers:
                timer.cancel()

        served.add_done_callback(cancel)


class _MemoryCloudLink:
    """A `CloudLink` in memory."""

    def __init__(self, up: _Pipe, down: _Pipe) -> None:
        self._up, self._down = up, down
        self._reader = EdgeMessageReader()

    async def send(self, message: CloudMessage) -> None:
        """See `CloudLink.send`."""
        self._down.send(cloud_message_to_pb(message).SerializeToString())

    async def receive(self) -> EdgeMessage | None:
        """See `CloudLink.receive`."""
        while (data := await self._up.receive()) is not None:
            message = self._reader.read(pb.DecodeRequest.FromString(data))
            if message is not None:
                return message
        return None

    def end(self, error: OutriderError | None) -> None:
        """End the stream after what has been sent, as a servicer's return or abort does."""
        self._up.lose()
        self._down.close(_End(error))


def connect(verifier: Server, profile: LinkProfile, seed: int, observer: Observer | None = None) -> MemoryEdgeLink:
    """A new stream to `verifier` over a link of its own; the verifier's side runs as the task `served`, which the
    caller has to see to its end. `observer` hears of each wire message as it is sent.
    """
    up, down = (_Pipe(profile, direction, seed, observer) for direction in Direction)
    link = MemoryEdgeLink(up, down)
    served = asyncio.get_running_loop().create_task(_serve(verifier, _MemoryCloudLink(up, down)), name="serve")
    link.schedule(profile.cuts, served)
    return link


class MemoryPort:
    """Where edges reach one verifier. Make it with `listening`, which sees all its streams to their end."""

    def __init__(self, verifier: Server) -> None:
        self._verifier = verifier
        self._links: list[MemoryEdgeLink] = []
        self._is_refusing = False

    @classmethod
    @contextlib.asynccontextmanager
    async def listening(cls, verifier: Server) -> AsyncIterator[MemoryPort]:
        """A port inside the context; on leaving it streams have `SETTLE_LIMIT_S` to end and are cancelled then."""
        port = cls(verifier)
        try:
            yield port
            await port._settle(SETTLE_LIMIT_S)
        finally:
            await port._settle(0.0)

    def refuse(self) -> None:
        """From now on every stream breaks at once, as where nobody listens any more."""
        self._is_refusing = True

    def cut(self, edge_notice_s: float = 0.0, cloud_notice_s: float = 0.0) -> None:
        """Break all streams; see `MemoryEdgeLink.cut`."""
        for link in self._links:
            link.cut(edge_notice_s, cloud_notice_s)

    def connect(self, profile: LinkProfile, seed: int, observer: Observer | None = None) -> MemoryEdgeLink:
        """See `connect`."""
        self._links = [link for link in self._links if link.served is not None and not link.served.done()]
        link = connect(self._verifier, profile, seed, observer)
        if self._is_refusing:
            link.cut()
        self._links.append(link)
        return link

    async def _settle(self, limit_s: float) -> None:
        tasks = [link.served for link in self._links if link.served is not None]
        if tasks and limit_s:
            await asyncio.wait(tasks, timeout=limit_s)
        elif tasks:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _serve(verifier: Server, link: _MemoryCloudLink) -> None:
    """Serve one stream and end it as the gRPC service does."""
    try:
        await verifier.serve(link)
    except OutriderError as error:
        link.end(_as_told(error))
    except asyncio.CancelledError:
        link.end(OutriderError(Reason.VERIFIER_UNREACHABLE, f"{ADDRESS}: UNAVAILABLE: the verifier stopped."))
        raise
    except Exception as error:
        link.end(_as_told(internal_error("stream failed", error)))
    else:
        link.end(None)


def _as_told(error: OutriderError) -> OutriderError:
    """The error as the edge gets it over gRPC."""
    text = f"The verifier at {ADDRESS} says: {error.message[:MAX_ERROR_TEXT]}"
    return OutriderError(error.reason, text, from_peer=True, retry_after_s=error.retry_after_s)
