"""Verifiers that are killed, drained and started anew, and how one edge finds its way among them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence

from outrider.cloud.parking import ParkingLimits
from outrider.cloud.session import SessionLimits
from outrider.cloud.target import PassResult, PassWork
from outrider.cloud.targets.base import Engine
from outrider.cloud.targets.tiny import TinyEngine
from outrider.cloud.verifier import Verifier, VerifierConfig
from outrider.harness.faults.schedule import Moment, Schedule
from outrider.harness.inline_target import InlineTarget, PassCost
from outrider.harness.links import Direction, LinkProfile
from outrider.harness.memory_link import Flight, MemoryEdgeLink, MemoryPort, Observer
from outrider.shared.errors import OutriderError, Reason
from outrider.shared.messages import Limits

DRAIN_LIMIT_S = 2.0
LONGEST_WAIT_S = 5.0


class Replica:
    """One place where a verifier of the tiny target listens, or none."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._life: asyncio.Task[None] | None = None
        # What waits for the next pass: until its commits are sent, or for the first of them.
        self._awaited: tuple[Moment, asyncio.Event] | None = None
        self._is_sending = False
        self._edge_notice_s = 0.0
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
        life = self._life
        if life is not None:
            self._break_off(edge_notice_s)
            await asyncio.gather(life, return_exceptions=True)

    async def kill_at(self, moment: Moment, edge_notice_s: float) -> None:
        """End it so at that moment of the next pass; not at all if no pass comes for long."""
        life, happened = self._life, asyncio.Event()
        self._awaited, self._is_sending, self._edge_notice_s = (moment, happened), False, edge_notice_s
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LONGEST_WAIT_S):
                await happened.wait()
        self._awaited = None
        if happened.is_set() and life is not None:
            await asyncio.gather(life, return_exceptions=True)

    def on_flight(self, flight: Flight) -> None:
        """A message of one of the streams is sent."""
        if self._awaited is None or not self._is_sending or flight.direction is not Direction.DOWN:
            return
        self._is_sending = False
        loop = asyncio.get_running_loop()
        if self._awaited[0] is Moment.ON_ITS_WAY:
            loop.call_soon(self._come)
        else:
            loop.call_at(flight.arrives_s, self._come)

    def _on_passed(self) -> None:
        if self._awaited is None:
            return
        if self._awaited[0] is Moment.BEFORE:
            self._come()
        else:
            self._is_sending = True

    def _come(self) -> None:
        if self._awaited is not None and not self._awaited[1].is_set():
            self._awaited[1].set()
            if self._life is not None:
                self._break_off(self._edge_notice_s)

    def _break_off(self, edge_notice_s: float) -> None:
        assert self._life is not None, "it runs"
        self.port.refuse()
        self.port.cut(edge_notice_s)
        self._life.cancel()
        self._life = None

    async def _live(self, ready: asyncio.Event) -> None:
        schedule = self._schedule

        def pass_ms(rows: int, sessions: int) -> float:
            return schedule.pass_ms + 0.2 * rows + 0.04 * sessions

        config = VerifierConfig(
            session=SessionLimits(lookup_nodes=schedule.lookup_nodes),
            parking=ParkingLimits(suspended_s=schedule.parked_s, finished_s=schedule.parked_s, grace_s=1.0),
        )
        target = _HeardTarget(TinyEngine(max_slots=schedule.slots), pass_ms, self._on_passed)
        verifier = Verifier(target, config)
        async with verifier.running(), MemoryPort.listening(verifier) as port:
            self.verifier, self.port = verifier, port
            ready.set()
            await asyncio.Event().wait()


class _HeardTarget(InlineTarget):
    """Tells when a pass has ended and nobody knows its results yet."""

    def __init__(self, engine: Engine, pass_ms: PassCost, on_passed: Callable[[], None]) -> None:
        super().__init__(engine, pass_ms)
        self._on_passed = on_passed

    async def run_pass(self, work: Sequence[PassWork]) -> Sequence[PassResult]:
        results = await super().run_pass(work)
        self._on_passed()
        return results


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
        replica = self.current

        def observe(flight: Flight) -> None:
            self._observer(flight)
            replica.on_flight(flight)

        link = replica.port.connect(self._link, self._seed, observe)
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
