"""The verifier: opens sessions within its capacity, gives each a slot of the target, and keeps the cached prefix of
ended ones until the slot is needed. Plain asyncio over a link; the transport is somebody else's.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections import OrderedDict
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from outrider.cloud.scheduler import Scheduler
from outrider.cloud.session import Session, SessionLimits
from outrider.cloud.target import Target
from outrider.shared.errors import OutriderError, Reason
from outrider.shared.link import CloudLink
from outrider.shared.messages import (
    FEATURES,
    INITIAL_WINDOW,
    Close,
    FinishReason,
    Grow,
    Limits,
    Open,
    VerifierInfo,
)
from outrider.shared.tokenizer_asset import TokenizerAsset
from outrider.shared.version import software_version

logger = logging.getLogger(__name__)

RETRY_AFTER_S = 1.0
LINGER_S = 5.0
MAX_REQUIRED_FEATURES = 32


@dataclass(frozen=True, slots=True)
class VerifierConfig:
    """What the operator sets. `max_rows` bounds the rows of one pass over all sessions."""

    max_rows: int = 512
    session: SessionLimits = field(default_factory=SessionLimits)
    revision: str = ""


@dataclass(slots=True)
class _Parked:
    """A slot whose session has ended and whose cache a later session may take over."""

    slot: int
    sequence: list[int]


class Verifier:
    """Serves sessions over links. Use `running()` around its life."""

    def __init__(self, target: Target, config: VerifierConfig) -> None:
        self._target = target
        self._config = config
        self._scheduler = Scheduler(target, config.max_rows, self._release)
        self._free = list(range(target.spec.max_slots))[::-1]
        self._parked: OrderedDict[str, _Parked] = OrderedDict()
        self._sessions: set[Session] = set()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run passes inside the context; on leaving it, end all sessions and free the target."""
        task = asyncio.create_task(self._scheduler.run(), name="scheduler")
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            await self._target.close()

    @property
    def tokenizer_asset(self) -> TokenizerAsset:
        """What an edge needs to tokenize for this verifier."""
        return self._target.tokenizer_asset

    def info(self) -> VerifierInfo:
        """What this verifier serves and where its limits are."""
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
        )

    async def serve(self, link: CloudLink) -> None:
        """Serve one stream from its first message to its end; raises `OutriderError` where the edge is to be told.

        A stream that ends without Close leaves the session's cache for another one to take over.
        """
        request = await link.receive()
        if request is None:
            return
        if not isinstance(request, Open):
            raise OutriderError(Reason.OPEN_EXPECTED, f"got {type(request).__name__}.")
        session = await self._open(request)
        reader = asyncio.create_task(self._read(link, session), name=f"read-{session.session_id}")
        try:
            try:
                await self._write(link, session)
            finally:
                session.fail(None)
                self._scheduler.end(session)
            # The edge may be writing; a stream that ends under its pen would cost it the last messages.
            await asyncio.wait([reader], timeout=LINGER_S)
        finally:
            reader.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reader

    async def _write(self, link: CloudLink, session: Session) -> None:
        """Send what the session says, until it has said its last word; raises its error if it failed."""
        while (message := await session.outbox.get()) is not None:
            if isinstance(message, OutriderError):
                raise message
            await link.send(message)
            if session.finished and session.outbox.empty():
                return

    async def _read(self, link: CloudLink, session: Session) -> None:
        """Take the edge's messages in until the stream ends."""
        try:
            while True:
                match await link.receive():
                    case Grow() as grow:
                        session.grow(grow)
                    case Close():
                        session.finish(FinishReason.CANCELLED)
                    case Open():
                        raise OutriderError(Reason.OPEN_INVALID, "a second Open on one stream.")
                    case None:
                        session.fail(None)
                        return
                self._scheduler.wake(session)
        except OutriderError as error:
            session.fail(error)
        except asyncio.CancelledError:
            raise
        except Exception:
            incident = secrets.token_hex(8)
            logger.exception("reading failed, incident %s", incident)
            session.fail(OutriderError(Reason.INTERNAL, f"Incident {incident}."))

    async def _open(self, request: Open) -> Session:
        end = self._check(request)
        slot, reused_length = self._take_slot(request)
        session = Session(secrets.token_hex(16), slot, request, self._target.vocabulary, end, self._config.session)
        self._sessions.add(session)
        session.outbox.put_nowait(session.opened(reused_length))
        try:
            await self._target.rewind(slot, reused_length)
        except BaseException:
            session.fail(None)
            self._release(session)
            raise
        self._scheduler.add(session)
        return session

    def _check(self, request: Open) -> int:
        """Refuse what cannot be served; returns the answer length at which the answer is complete."""
        vocabulary = self._target.vocabulary
        unknown = sorted(set(request.required_features[:MAX_REQUIRED_FEATURES]) - set(FEATURES))
        if unknown or len(request.required_features) > MAX_REQUIRED_FEATURES:
            raise OutriderError(Reason.FEATURE_UNSUPPORTED, f"unknown here: {', '.join(unknown)[:200]}.")
        if not request.prompt_ids:
            raise OutriderError(Reason.PROMPT_EMPTY)
        vocabulary.check_ids(request.prompt_ids, "Open.prompt_ids")
        vocabulary.check_ids(request.committed_ids, "Open.committed_ids")
        vocabulary.check_ids(request.stop_ids, "Open.stop_ids")
        vocabulary.check_ids(request.sampling.logit_bias, "Open.sampling.logit_bias")
        room = self._target.spec.context_length - len(request.prompt_ids)
        if room < 1:
            raise OutriderError(
                Reason.PROMPT_TOO_LONG,
                f"{len(request.prompt_ids)} prompt tokens, context {self._target.spec.context_length}.",
            )
        end = min(request.max_tokens, room)
        stop_ids = vocabulary.stop_ids | frozenset(request.stop_ids)
        if len(request.committed_ids) >= end or stop_ids.intersection(request.committed_ids):
            raise OutriderError(
                Reason.OPEN_INVALID, f"{len(request.committed_ids)} committed ids leave nothing to decode."
            )
        return end

    def _take_slot(self, request: Open) -> tuple[int, int]:
        """A slot for a new session and how much of its cache is of use; raises CAPACITY_EXHAUSTED."""
        parked = self._parked.pop(request.prefix_of, None)
        if parked is not None:
            sequence = [*request.prompt_ids, *request.committed_ids]
            usable = min(self._target.cached_length(parked.slot), len(sequence) - 1)
            return parked.slot, _common_length(parked.sequence, sequence, usable)
        if self._free:
            return self._free.pop(), 0
        if self._parked:
            return self._parked.popitem(last=False)[1].slot, 0
        raise OutriderError(
            Reason.CAPACITY_EXHAUSTED,
            f"{self._target.spec.max_slots} sessions are open.",
            retry_after_s=RETRY_AFTER_S,
        )

    def _release(self, session: Session) -> None:
        """Take the slot of an ended session back, with its cache if that is sound."""
        self._sessions.discard(session)
        if session.cache_is_sound:
            self._parked[session.session_id] = _Parked(session.slot, session.sequence)
        else:
            self._free.append(session.slot)


def _common_length(first: list[int], second: list[int], limit: int) -> int:
    length = 0
    while length < limit and first[length] == second[length]:
        length += 1
    return length
