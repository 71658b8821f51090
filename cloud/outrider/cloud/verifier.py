"""The verifier: opens sessions within its capacity, gives each a slot of the target, lets streams that broke be
resumed, and keeps the cached prefix of ended sessions until the slot is needed. Plain asyncio over a link; the
transport is somebody else's.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace

from outrider.cloud.accounts import Accounts
from outrider.cloud.incidents import internal_error
from outrider.cloud.observer import Observer, Usage
from outrider.cloud.open_check import check_open
from outrider.cloud.parking import Parking, ParkingLimits
from outrider.cloud.principal import ANONYMOUS, Principal
from outrider.cloud.quotas import Quotas
from outrider.cloud.retry import LEAST_S, RetryDelay
from outrider.cloud.scheduler import PassLimits, Scheduler
from outrider.cloud.session import Outbox, Session, SessionLimits
from outrider.cloud.target import Target
from outrider.cloud.vitals import Ailment, Vitals
from outrider.shared.errors import OutriderError, Reason
from outrider.shared.ids import common_length
from outrider.shared.link import CloudLink
from outrider.shared.messages import (
    FEATURES,
    INITIAL_WINDOW,
    Close,
    FinishReason,
    Grow,
    Limits,
    Open,
    Resume,
    VerifierInfo,
)
from outrider.shared.tokenizer_asset import TokenizerAsset
from outrider.shared.version import software_version

# Well below what a refusal may take.
ENDING_SESSION_WAIT_S = 0.08
LINGER_S = 5.0
# An edge that was told to go away does not write any more.
DRAIN_LINGER_S = 0.2


@dataclass(frozen=True, slots=True)
class VerifierConfig:
    """What the operator sets, for passes, for each session, for those without a stream, and for each caller."""

    passes: PassLimits = field(default_factory=PassLimits)
    session: SessionLimits = field(default_factory=SessionLimits)
    parking: ParkingLimits = field(default_factory=ParkingLimits)
    quotas: Quotas = field(default_factory=Quotas)
    revision: str = ""


class Verifier:
    """Serves sessions over links. Use `running()` around its life."""

    def __init__(self, target: Target, config: VerifierConfig, observer: Observer | None = None) -> None:
        self._target = target
        self._config = config
        self.vitals = Vitals()
        self.observer = observer
        self._scheduler = Scheduler(target, config.passes, self._release, self.vitals, observer)
        self._accounts = Accounts(config.quotas)
        self._retry = RetryDelay(target.spec.max_slots)
        self._free = list(range(target.spec.max_slots))[::-1]
        self._parking = Parking(config.parking, self._free_slot)
        # Those with a stream or in a pass, in order: what is done to all of them is done in one order in every run.
        self._sessions: dict[Session, Principal] = {}
        self._unsound_slots: set[int] = set()
        self._tokenizer_digest = hashlib.sha256(target.tokenizer_asset.data).hexdigest()
        self._dead = asyncio.Event()
        self._slot_freed = asyncio.Event()
        self._is_draining = False
        self._info = self._describe()
        self._streams = 0
        self._quiet = asyncio.Event()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run passes inside the context; on leaving it, end what is still open and free the target."""
        task = asyncio.create_task(self._scheduler.run(), name="scheduler")
        task.add_done_callback(self._on_scheduler_end)
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            self._parking.clear()
            await self._target.close()

    async def drain(self, limit_s: float) -> None:
        """Stop serving in peace: take no new streams, tell all edges to go elsewhere, let the running pass give them
        its tokens, end their streams. Returns when they have ended, or after `limit_s` seconds.
        """
        self._is_draining = True
        self.vitals.set(Ailment.DRAINING, True)
        for session in self._sessions:
            session.go_away()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._scheduler.pause()
                for session in list(self._sessions):
                    session.hang_up()
                while self._streams:
                    self._quiet.clear()
                    await self._quiet.wait()

    @property
    def unused_slots(self) -> int:
        """Slots whose session has ended or is suspended, or that have none."""
        return len(self._free) + len(self._parking)

    @property
    def free_slots(self) -> int:
        """Slots that hold nothing that anybody could come back to."""
        return len(self._free)

    def check_integrity(self) -> None:
        """Assert that each slot is free or one session's, and what each session asserts."""
        sessions = [*self._sessions, *self._parking]
        slots = sorted([*self._free, *(session.slot for session in sessions)])
        assert slots == list(range(self._target.spec.max_slots)), f"slots free or taken: {slots}"
        for session in sessions:
            session.check_integrity()

    def usage(self) -> Usage:
        """How busy it is; may be called in any thread, and is then as true as a glance can be."""
        return Usage(
            streams=self._streams,
            open_sessions=len(self._sessions),
            waiting_sessions=self._scheduler.waiting_count,
            free_slots=len(self._free),
            parked_slots=len(self._parking),
            cached_tokens=sum(self._target.cached_length(slot) for slot in range(self._target.spec.max_slots)),
            is_serving=self.vitals.is_serving,
        )

    async def dead(self) -> None:
        """Wait until no pass can run any more: after a fault in the scheduler itself, or at the end."""
        await self._dead.wait()

    @property
    def tokenizer_asset(self) -> TokenizerAsset:
        """What an edge needs to tokenize for this verifier."""
        return self._target.tokenizer_asset

    def info(self) -> VerifierInfo:
        """What this verifier serves and where its limits are; always the same."""
        return self._info

    def _describe(self) -> VerifierInfo:
        spec = self._target.spec
        return VerifierInfo(
            model=spec.model,
            revision=self._config.revision,
            engine=spec.kind,
            fingerprint=self._target.vocabulary.fingerprint,
            stop_ids=self._target.vocabulary.stop_ids,
            numerics=spec.numerics,
            near_tie_gap=spec.near_tie_gap,
            limits=Limits(
                context_length=spec.context_length,
                max_sessions=spec.max_slots,
                window=self._config.session.window,
                initial_window=INITIAL_WINDOW,
                max_run_ahead=self._config.session.max_run_ahead,
                max_branches=spec.max_branches,
            ),
            features=frozenset(FEATURES),
            settings={key: str(value) for key, value in spec.settings.items()},
            software_version=software_version(),
            tokenizer_digest=self._tokenizer_digest,
        ).with_target_digest()

    async def serve(self, link: CloudLink, principal: Principal = ANONYMOUS) -> None:
        """Serve one stream from its first message to its end; raises `OutriderError` where the edge is to be told.

        A session whose stream ends without Close is suspended; the cache of one that has ended is left for another one
        of the same principal to take over.
        """
        self._streams += 1
        try:
            await self._serve(link, principal)
        finally:
            self._streams -= 1
            self._quiet.set()

    async def _serve(self, link: CloudLink, principal: Principal) -> None:
        account = self._accounts.of(principal, _now())
        try:
            with account.opening():
                async with asyncio.timeout(self._config.session.open_limit_s):
                    request = await link.receive()
        except TimeoutError:
            raise OutriderError(Reason.OPEN_EXPECTED, "no complete Open in time.") from None
        if request is None:
            return
        match request:
            case Open():
                session, outbox = await self._open(request, principal)
            case Resume():
                session, outbox = self._resume(request, principal)
            case _:
                raise OutriderError(Reason.OPEN_EXPECTED, f"got {type(request).__name__}.")
        reader = asyncio.create_task(self._read(link, session, outbox), name=f"read-{session.session_id[:8]}")
        try:
            try:
                await self._write(link, session, outbox)
            finally:
                self._leave(session, outbox)
            # The edge may be writing; a stream that ends under its pen would cost it the last messages.
            await asyncio.wait([reader], timeout=DRAIN_LINGER_S if self._is_draining else LINGER_S)
        finally:
            reader.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reader

    def _leave(self, session: Session, outbox: Outbox) -> None:
        """A stream is over. If no other one has taken its session over, that has ended or is suspended."""
        if session.outbox is outbox:
            session.suspend()
            self._scheduler.end(session)

    async def _write(self, link: CloudLink, session: Session, outbox: Outbox) -> None:
        """Send what the session says, until it has said its last word; raises its error if it failed."""
        while True:
            try:
                async with asyncio.timeout(self._config.session.idle_limit_s):
                    message = await outbox.get()
            except TimeoutError:
                if session.has_work:
                    continue
                raise OutriderError(Reason.SESSION_IDLE) from None
            if message is None:
                return
            if isinstance(message, OutriderError):
                raise message
            was_unread = outbox.qsize() + 1 == self._config.session.max_unread
            try:
                async with asyncio.timeout(self._config.session.send_limit_s):
                    await link.send(message)
            except TimeoutError:
                raise OutriderError(Reason.SESSION_IDLE, "the edge does not read what it is sent.") from None
            if was_unread and session.outbox is outbox:
                self._scheduler.go_on(session)
            if session.finished and outbox.empty():
                return

    async def _read(self, link: CloudLink, session: Session, outbox: Outbox) -> None:
        """Take the edge's messages in until the stream ends or another one has taken the session over."""
        try:
            while True:
                message = await link.receive()
                if session.outbox is not outbox:
                    # Read on all the same: the stream would end under the pen of an edge that has not heard yet.
                    if message is None:
                        return
                    continue
                match message:
                    case Grow() as grow:
                        session.grow(grow)
                    case Close():
                        session.finish(FinishReason.CANCELLED)
                    case Open() | Resume():
                        raise OutriderError(Reason.OPEN_INVALID, f"{type(message).__name__} on an open stream.")
                    case None:
                        outbox.put_nowait(None)
                        return
                self._scheduler.wake(session)
        except OutriderError as error:
            if session.outbox is outbox:
                session.fail(error)
        except Exception as error:
            if session.outbox is outbox:
                session.fail(internal_error("reading failed", error))

    def _on_scheduler_end(self, task: asyncio.Task[None]) -> None:
        """Tell everybody if the scheduler has died of a fault; otherwise it was told to end."""
        self._dead.set()
        self.vitals.set(Ailment.DEAD, True)
        error = None if task.cancelled() else task.exception()
        for session in list(self._sessions):
            if error is None:
                session.hang_up()
            else:
                session.fail(internal_error("scheduler failed", error))

    async def _open(self, request: Open, principal: Principal) -> tuple[Session, Outbox]:
        self._check_serving()
        if request.target_digest not in ("", self._info.target_digest):
            raise OutriderError(Reason.TARGET_DIFFERS, f"{self._target.spec.model} is served here; ask GetInfo again.")
        end = check_open(request, self._target.vocabulary, self._target.spec.context_length)
        await self._wait_for_ending_session()
        account = self._accounts.of(principal, _now())
        window = account.window(self._config.session.window)
        slot, reused_length = self._take_slot(request, principal)
        limits = replace(self._config.session, window=window)
        session = Session(secrets.token_hex(16), slot, request, self._target.vocabulary, end, limits)
        self._sessions[session] = principal
        account.join(session, window)
        outbox = session.attach(reused_length)
        try:
            # A rewind waits for the running pass; most slots need none.
            if slot in self._unsound_slots or self._target.cached_length(slot) != reused_length:
                await self._target.rewind(slot, reused_length)
                self._unsound_slots.discard(slot)
        except BaseException:
            session.cache_is_sound = False
            session.suspend()
            self._release(session)
            raise
        self._scheduler.add(session, account)
        return session, outbox

    def _resume(self, request: Resume, principal: Principal) -> tuple[Session, Outbox]:
        """Let a new stream take a session over. One that is not the caller's, is gone, or has another text than the
        edge is not found; it can be opened anew. An attempt that is not the latest is SUPERSEDED.
        """
        self._check_serving()
        session = self._parking.find(request.session_id, principal)
        is_parked = session is not None
        if session is None:
            wanted = request.session_id, principal
            session = next((s for s, owner in self._sessions.items() if (s.session_id, owner) == wanted), None)
        if session is None or not session.is_resumable or not session.knows(request):
            raise OutriderError(Reason.SESSION_NOT_FOUND)
        if request.attempt <= session.attempt:
            raise OutriderError(Reason.SUPERSEDED, f"attempt {request.attempt}, after attempt {session.attempt}.")
        account = self._accounts.of(principal, _now())
        if is_parked:
            window = account.window(self._config.session.window)
            session.set_window(window)
            account.join(session, window)
        cached_length = self._target.cached_length(session.slot)
        outbox = session.attach(min(cached_length, len(session.sequence) - 1), request)
        if is_parked:
            self._parking.take(session)
            self._sessions[session] = principal
            self._scheduler.add(session, account)
        else:
            self._scheduler.keep(session)
        return session, outbox

    def _check_serving(self) -> None:
        """Raise DRAINING or INTERNAL for a verifier that takes no streams any more."""
        if self._is_draining:
            raise OutriderError(Reason.DRAINING, retry_after_s=LEAST_S)
        if self._dead.is_set():
            raise OutriderError(Reason.INTERNAL, "The verifier has stopped serving.")

    async def _wait_for_ending_session(self) -> None:
        """With no slot to give but a session that has ended and is still in a pass, wait a moment for its slot."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ENDING_SESSION_WAIT_S):
                while not self.unused_slots and any(s.released for s in self._sessions):
                    self._slot_freed.clear()
                    await self._slot_freed.wait()

    def _take_slot(self, request: Open, principal: Principal) -> tuple[int, int]:
        """A slot for a new session and how much of its cache is of use; raises CAPACITY_EXHAUSTED."""
        earlier = self._parking.find(request.prefix_of, principal)
        if earlier is not None and earlier.finished:
            self._parking.take(earlier)
            sequence = [*request.prompt_ids, *request.committed_ids]
            usable = min(self._target.cached_length(earlier.slot), len(sequence) - 1)
            return earlier.slot, min(usable, common_length(earlier.sequence, sequence))
        if self._free:
            return self._free.pop(), 0
        displaced = self._parking.give_up(principal)
        if displaced is not None:
            return displaced.slot, 0
        raise OutriderError(
            Reason.CAPACITY_EXHAUSTED,
            f"{self._target.spec.max_slots} sessions are open.",
            retry_after_s=self._retry.next_s(),
        )

    def _release(self, session: Session) -> None:
        """A session is in no pass and has no stream any more: keep it, unless its cache is not sound."""
        principal = self._sessions.pop(session)
        self._accounts.of(principal, _now()).leave(session)
        if session.cache_is_sound:
            self._parking.park(session, principal)
        else:
            self._unsound_slots.add(session.slot)
            self._free.append(session.slot)
        self._slot_freed.set()

    def _free_slot(self, session: Session) -> None:
        """The time of a session without a stream is over."""
        self._free.append(session.slot)
        self._slot_freed.set()


def _now() -> float:
    return asyncio.get_running_loop().time()
