"""Verifiers that are killed, drained and started anew, and how one edge finds its way among them."""

from __future__ import annotations

import asyncio

from outrider.cloud.parking import ParkingLimits
from outrider.cloud.session import SessionLimits
from outrider.cloud.targets.tiny import TinyEngine
from outrider.cloud.verifier import Verifier, VerifierConfig
from outrider.harness.faults.schedule import Schedule
from outrider.harness.inline_target import InlineTarget
from outrider.harness.links import LinkProfile
from outrider.harness.memory_link import MemoryEdgeLink, MemoryPort, Observer
from outrider.shared.errors import OutriderError, Reason
from outrider.shared.messages import Limits

DRAIN_LIMIT_S = 2.0


class Replica:
    """One place where a verifier of the tiny target listens, or none."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._life: asyncio.Task[None] | None = None
        self.verifier: Verifier
        self.port: MemoryPort

    @property
    def is_up(self) -> bool:
        """Whether a verifier runs here."""
        return self._life is not None

    async def start(self) -> None:
        """Run a verifier that knows nothing yet."""
        ready = asyncio.Event()
        self._life = asyncio.create_task(self._live(ready), name="verifier")
        await ready.wait()

    async def kill(self, edge_notice_s: float = 0.0) -> None:
        """End the verifier as kill -9 does: nothing that it has not sent is sent any more."""
        if self._life is None:
            return
        life, self._life = self._life, None
        self.port.refuse()
        self.port.cut(edge_notice_s)
        life.cancel()
        await asyncio.gather(life, return_exceptions=True)

    async def _live(self, ready: asyncio.Event) -> None:
        schedule = self._schedule

        def pass_ms(rows: int, sessions: int) -> float:
            return schedule.pass_ms + 0.2 * rows + 0.04 * sessions

        config = VerifierConfig(
            session=SessionLimits(lookup_nodes=schedule.lookup_nodes),
            parking=ParkingLimits(suspended_s=schedule.parked_s, finished_s=schedule.parked_s, grace_s=1.0),
        )
        verifier = Verifier(InlineTarget(TinyEngine(max_slots=schedule.slots), pass_ms), config)
        async with verifier.running(), MemoryPort.listening(verifier) as port:
            self.verifier, self.port = verifier, port
            ready.set()
            await asyncio.Event().wait()


class WayTo:
    """The verifiers as one edge sees them. See `Verifiers` in the edge's `recovery`."""

    def __init__(self, replicas: list[Replica], link: LinkProfile, seed: int, observer: Observer) -> None:
        self._replicas = replicas
        self._link = link
        self._seed = seed
        self._observer = observer
        self._at = 0
        self.links: list[MemoryEdgeLink] = []

    @property
    def current(self) -> Replica:
        """Where streams are opened."""
        return self._replicas[self._at]

    @property
    def count(self) -> int:
        """See `Verifiers.count`."""
        return len(self._replicas)

    def open_stream(self) -> MemoryEdgeLink:
        """See `Verifiers.open_stream`."""
        link = self.current.port.connect(self._link, self._seed, self._observer)
        self.links.append(link)
        return link

    async def find(self, *, elsewhere: bool) -> Limits:
        """See `Verifiers.find`."""
        first = self._at + elsewhere
        for offset in range(self.count):
            await asyncio.sleep(self._link.rtt_ms / 1000)
            index = (first + offset) % self.count
            if self._replicas[index].is_up:
                self._at = index
                return self.current.verifier.info().limits
        raise OutriderError(Reason.VERIFIER_UNREACHABLE, "none is there.")

    async def pause(self, seconds: float) -> None:
        """See `Verifiers.pause`."""
        await asyncio.sleep(seconds)
