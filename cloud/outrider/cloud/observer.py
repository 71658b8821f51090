"""What a verifier tells those who watch it, for metrics and traces: plain values, no prompt, no token ids. Who watches
derives from `Observer`; with nobody watching nothing is computed.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from outrider.shared.errors import Reason
from outrider.shared.messages import FinishReason

logger = logging.getLogger(__name__)

Metadata = Sequence[tuple[str, str | bytes]]
"""What came with a call, as gRPC gives it."""


@dataclass(frozen=True, slots=True)
class PassShare:
    """What one session had of a pass: its rows, how many of them were guesses, how many of those were right, the tokens
    it got, and how long it had waited.
    """

    session_id: str
    rows: int
    checked_count: int
    accepted_count: int
    token_count: int
    queue_ns: int


@dataclass(frozen=True, slots=True)
class PassReport:
    """One pass over several sessions; of one that failed only rows and times are known."""

    shares: tuple[PassShare, ...]
    pass_ns: int
    failed: bool = False

    @property
    def rows(self) -> int:
        """Rows of all sessions."""
        return sum(share.rows for share in self.shares)


@dataclass(frozen=True, slots=True)
class AnswerEnd:
    """How an answer ended, as its last stream saw it: `first_token_s` and `total_s` count from the first message."""

    reason: FinishReason
    token_count: int
    passes: int
    first_token_s: float | None
    total_s: float


@dataclass(frozen=True, slots=True)
class Usage:
    """Streams, sessions that have one or are in a pass, sessions that want a pass, and slots: free ones, those kept for
    a session that has ended or may be resumed, and the tokens that all slots have cached.
    """

    streams: int
    open_sessions: int
    waiting_sessions: int
    free_slots: int
    parked_slots: int
    cached_tokens: int
    is_serving: bool


class Observer:
    """Hears what happens; does nothing with it. All but `on_pass` are called in the task of the stream they tell of."""

    @contextlib.contextmanager
    def stream(self, metadata: Metadata) -> Iterator[None]:
        """Around a `Decode` stream that came with `metadata`."""
        yield

    def on_opened(self, session_id: str) -> None:
        """The stream has a session. Its id lets others resume it: it is to be shown to nobody."""

    def on_grow(self, size: int) -> None:
        """A Grow message of `size` bytes has come."""

    def on_finished(self, end: AnswerEnd) -> None:
        """The answer is complete, or its edge has closed it."""

    def on_refused(self, reason: Reason) -> None:
        """A call of any kind ends with an error."""

    def on_pass(self, report: PassReport) -> None:
        """A pass has ended."""


class Observers(Observer):
    """Several in one. What goes wrong in one of them is logged, once, and nobody's answer suffers."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = tuple(observers)
        self._failed: set[type[Observer]] = set()

    @contextlib.contextmanager
    def stream(self, metadata: Metadata) -> Iterator[None]:
        """See `Observer.stream`."""
        with contextlib.ExitStack() as stack:
            for observer in self._observers:
                stack.enter_context(self._around(observer, metadata))
            yield

    def on_opened(self, session_id: str) -> None:
        """See `Observer.on_opened`."""
        self._tell(lambda observer: observer.on_opened(session_id))

    def on_grow(self, size: int) -> None:
        """See `Observer.on_grow`."""
        self._tell(lambda observer: observer.on_grow(size))

    def on_finished(self, end: AnswerEnd) -> None:
        """See `Observer.on_finished`."""
        self._tell(lambda observer: observer.on_finished(end))

    def on_refused(self, reason: Reason) -> None:
        """See `Observer.on_refused`."""
        self._tell(lambda observer: observer.on_refused(reason))

    def on_pass(self, report: PassReport) -> None:
        """See `Observer.on_pass`."""
        self._tell(lambda observer: observer.on_pass(report))

    def _tell(self, what: Callable[[Observer], None]) -> None:
        for observer in self._observers:
            with self._unharmed(observer):
                what(observer)

    @contextlib.contextmanager
    def _around(self, observer: Observer, metadata: Metadata) -> Iterator[None]:
        watched = contextlib.ExitStack()
        with self._unharmed(observer):
            watched.enter_context(observer.stream(metadata))
        try:
            yield
        finally:
            error = sys.exc_info()
            with self._unharmed(observer):
                # Returns or raises nothing that concerns the stream.
                watched.__exit__(*error)

    @contextlib.contextmanager
    def _unharmed(self, observer: Observer) -> Iterator[None]:
        try:
            yield
        except Exception:
            if type(observer) not in self._failed:
                self._failed.add(type(observer))
                logger.exception("what watches the verifier fails")
