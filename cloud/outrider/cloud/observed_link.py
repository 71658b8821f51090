"""A link that tells of the life of its stream: to the log, and to an observer if there is one."""

from __future__ import annotations

import logging
import time

from outrider.cloud.logs import StreamNames
from outrider.cloud.observer import AnswerEnd, Observer
from outrider.shared.link import CloudLink
from outrider.shared.messages import CloudMessage, Commit, EdgeMessage, Finished, Opened

logger = logging.getLogger(__name__)


class ObservedLink:
    """A `CloudLink` over another one."""

    def __init__(self, inner: CloudLink, names: StreamNames, observer: Observer | None) -> None:
        self._inner = inner
        self._names = names
        self._observer = observer
        self._began_s: float | None = None
        self._first_token_s: float | None = None
        self._first_length = self._length = 0
        self._is_open = False

    async def send(self, message: CloudMessage) -> None:
        """See `CloudLink.send`."""
        match message:
            case Opened():
                self._on_opened(message)
            case Commit():
                if self._first_token_s is None:
                    self._first_token_s = self._elapsed_s()
                self._length = message.committed_length
            case Finished():
                self._on_finished(message)
        await self._inner.send(message)

    async def receive(self) -> EdgeMessage | None:
        """See `CloudLink.receive`."""
        message = await self._inner.receive()
        if self._began_s is None:
            self._began_s = time.monotonic()
        return message

    def end(self) -> None:
        """The stream is over."""
        if self._is_open:
            logger.info("left after %d tokens in %.3f s", self._length - self._first_length, self._elapsed_s())

    def _elapsed_s(self) -> float:
        return 0.0 if self._began_s is None else time.monotonic() - self._began_s

    def _on_opened(self, message: Opened) -> None:
        self._is_open = True
        self._first_length = self._length = message.committed_length
        self._names.opened(message.session_id)
        if self._observer is not None:
            self._observer.on_opened(message.session_id)
        logger.info("opened, %d tokens committed, %d cached", message.committed_length, message.reused_length)

    def _on_finished(self, message: Finished) -> None:
        self._is_open = False
        end = AnswerEnd(
            reason=message.reason,
            token_count=self._length - self._first_length,
            passes=message.passes,
            first_token_s=self._first_token_s,
            total_s=self._elapsed_s(),
        )
        if self._observer is not None:
            self._observer.on_finished(end)
        logger.info(
            "finished (%s): %d tokens, %d passes, %.3f s", end.reason.value, end.token_count, end.passes, end.total_s
        )
