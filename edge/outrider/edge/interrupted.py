"""An answer that was cut short."""

from __future__ import annotations

from outrider.edge.chunks import Result
from outrider.edge.resume_handle import ResumeHandle
from outrider.shared.errors import OutriderError


class AnswerInterrupted(OutriderError):
    """No verifier could be reached any more. `partial` is the verified part of the answer, `handle` continues it."""

    def __init__(self, cause: OutriderError, handle: ResumeHandle, partial: Result) -> None:
        super().__init__(cause.reason, cause.detail, from_peer=cause.from_peer, retry_after_s=cause.retry_after_s)
        self.handle = handle
        self.partial = partial
