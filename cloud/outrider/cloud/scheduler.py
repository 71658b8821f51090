"""Packs what all sessions want into one pass of the target at a time: gather, collect, pass, commit. Sessions that have
nothing to check are left out; those left out for lack of room come first in the next pass.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from outrider.cloud.gathering import Gathering
from outrider.cloud.incidents import internal_error
from outrider.cloud.session import PassTiming, Session
from outrider.cloud.target import PassWork, Target
from outrider.cloud.targets.contract import side_branches
from outrider.cloud.walk import WalkResult


@dataclass(frozen=True, slots=True)
class PassLimits:
    """What the operator says of passes: at most `max_rows` rows over all sessions, of which about `free_rows` cost next
    to nothing. A pass that only patient sessions want may be held up for as long as `gather_passes` passes take, for
    others' guesses that are about to come.
    """

    max_rows: int = 512
    free_rows: int = 64
    gather_passes: float = 4.0


class Scheduler:
    """Runs passes for as long as its task lives.

    `on_idle_slot` is called with each session that has ended and is in no pass any more.
    """

    def __init__(self, target: Target, limits: PassLimits, on_idle_slot: Callable[[Session], None]) -> None:
        self._target = target
        self._max_rows = limits.max_rows
        self._free_rows = limits.free_rows
        self._gathering = Gathering(limits.gather_passes)
        self._on_idle_slot = on_idle_slot
        self._queue: deque[Session] = deque()
        self._wake = asyncio.Event()
        self.passes = 0

    def add(self, session: Session) -> None:
        """Give `session` a share of the passes."""
        self._queue.append(session)
        self.wake(session)

    def wake(self, session: Session) -> None:
        """Tell that `session` may have something to do now."""
        if session.ready_since is None and not session.in_pass:
            session.ready_since = self._now()
            self._gathering.on_ready(session, session.ready_since)
        self._wake.set()

    def end(self, session: Session) -> None:
        """Give the slot of a finished session back: now, or when the pass it is in has ended."""
        assert session.finished
        session.released = True
        if not session.in_pass and session in self._queue:
            self._queue.remove(session)
            self._gathering.forget(session)
            self._on_idle_slot(session)

    async def run(self) -> None:
        """The loop; ends only by cancellation."""
        while True:
            hold_s = self._hold_s()
            if hold_s > 0:
                self._wake.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(hold_s):
                        await self._wake.wait()
                continue
            batch = self._collect()
            if not batch:
                self._wake.clear()
                await self._wake.wait()
                continue
            await self._run_pass(batch)
            # Let what arrived during the pass be read before the next one is packed.
            await asyncio.sleep(0)

    def _hold_s(self) -> float:
        """For how long to wait for further guesses; 0 if nothing is wanted, or by somebody who is not to be kept."""
        now = self._now()
        wanting: list[Session] = []
        others: list[Session] = []
        for session in self._queue:
            if session.finished:
                continue
            is_reading_prompt = len(session.sequence) - self._target.cached_length(session.slot) > 1
            if not session.has_work and not is_reading_prompt:
                others.append(session)
                continue
            if session.is_eager:
                return 0.0
            if session.ready_since is None:
                session.ready_since = now
            wanting.append(session)
        return self._gathering.hold_s(wanting, others, now)

    def _collect(self) -> list[tuple[Session, PassWork]]:
        """The work of the next pass: sessions in turn, until the rows or the side branches run out."""
        batch: list[tuple[Session, PassWork]] = []
        rows, branches = 0, self._target.spec.max_branches
        left_out: list[Session] = []
        for _ in range(len(self._queue)):
            session = self._queue.popleft()
            work = self._work_of(session, branches)
            if work is None:
                session.ready_since = None
                self._queue.append(session)
                continue
            if session.ready_since is None:
                session.ready_since = self._now()
            needed = work.rows.count
            if batch and rows + needed > self._max_rows:
                left_out.append(session)
                continue
            rows += needed
            branches -= side_branches(work.rows.node_parents)
            batch.append((session, work))
        # Those left out come first next time, those served last.
        self._queue.extendleft(reversed(left_out))
        self._queue.extend(session for session, _ in batch)
        return batch

    def _work_of(self, session: Session, max_branches: int) -> PassWork | None:
        """What the session wants; one that fails at saying so is ended, and only that one."""
        try:
            return session.next_work(self._target.cached_length(session.slot), max_branches)
        except Exception as error:
            _fail(session, error)
            return None

    async def _run_pass(self, batch: list[tuple[Session, PassWork]]) -> None:
        started = self._now()
        queue_ns: list[int] = []
        for session, _ in batch:
            waited = 0.0 if session.ready_since is None else started - session.ready_since
            queue_ns.append(_nanoseconds(waited))
            session.in_pass = True
            session.ready_since = None
        try:
            results = await self._target.run_pass([work for _, work in batch])
        except Exception as error:
            for session, _ in batch:
                _fail(session, error)
        else:
            self._complete(batch, results, queue_ns, _nanoseconds(self._now() - started))
        finally:
            for session, _ in batch:
                session.in_pass = False
            self._gathering.on_pass([session for session, _ in batch], started, self._now())
            for session, _ in batch:
                if session.released:
                    self.end(session)

    def _complete(
        self,
        batch: list[tuple[Session, PassWork]],
        results: Sequence[WalkResult | None],
        queue_ns: list[int],
        pass_ns: int,
    ) -> None:
        self.passes += 1
        load_percent = self._load_percent(batch)
        for (session, _), waited_ns, result in zip(batch, queue_ns, results, strict=True):
            try:
                session.complete(result, PassTiming(waited_ns, pass_ns, load_percent))
            except Exception as error:
                _fail(session, error)

    def _load_percent(self, batch: Sequence[tuple[Session, PassWork]]) -> int:
        """50 for a pass with all the rows that are free, 100 for one with twice as many or more."""
        rows = sum(work.rows.count for _, work in batch)
        return min(100, 50 * rows // self._free_rows)

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1_000_000_000)


def _fail(session: Session, error: Exception) -> None:
    """End a session because of a fault of ours. What happened goes to the log, an incident number to the peer."""
    session.cache_is_sound = False
    session.fail(internal_error("pass failed", error))
