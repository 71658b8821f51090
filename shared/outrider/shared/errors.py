"""Every failure that a peer, a user or a file can cause, in one table: reason, gRPC code, exit code, public text.

`assert` stays for our own bugs. The table knows nothing of gRPC itself: codes are names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any

ERROR_DOMAIN = "outrider"
STATUS_DETAILS_KEY = "grpc-status-details-bin"
EXIT_REFUSED_BY_PEER = 3


class Reason(StrEnum):
    """What went wrong, as it travels in `google.rpc.ErrorInfo.reason` and in `--json` errors."""

    USAGE = "USAGE"
    SAMPLING_INVALID = "SAMPLING_INVALID"
    TOKEN_OUT_OF_RANGE = "TOKEN_OUT_OF_RANGE"
    PROMPT_EMPTY = "PROMPT_EMPTY"
    PROMPT_TOO_LONG = "PROMPT_TOO_LONG"
    GROW_MALFORMED = "GROW_MALFORMED"
    PARENT_UNKNOWN = "PARENT_UNKNOWN"
    CHILD_DUPLICATE = "CHILD_DUPLICATE"
    CHILD_OF_STOP = "CHILD_OF_STOP"
    WINDOW_EXCEEDED = "WINDOW_EXCEEDED"
    OPEN_EXPECTED = "OPEN_EXPECTED"
    OPEN_INVALID = "OPEN_INVALID"
    MESSAGE_MALFORMED = "MESSAGE_MALFORMED"
    MESSAGE_UNKNOWN = "MESSAGE_UNKNOWN"
    FEATURE_UNSUPPORTED = "FEATURE_UNSUPPORTED"
    SESSION_IDLE = "SESSION_IDLE"
    SESSION_NOT_FOUND = "SESSION_NOT_FOUND"
    SUPERSEDED = "SUPERSEDED"
    DRAINING = "DRAINING"
    CAPACITY_EXHAUSTED = "CAPACITY_EXHAUSTED"
    QUOTA_EXCEEDED = "QUOTA_EXCEEDED"
    UNAUTHENTICATED = "UNAUTHENTICATED"
    MESSAGE_TOO_LARGE = "MESSAGE_TOO_LARGE"
    INTERNAL = "INTERNAL"
    PEER_VIOLATION = "PEER_VIOLATION"
    VERIFIER_UNREACHABLE = "VERIFIER_UNREACHABLE"
    VERIFIER_START_FAILED = "VERIFIER_START_FAILED"
    LISTEN_NOT_LOOPBACK = "LISTEN_NOT_LOOPBACK"
    PORT_IN_USE = "PORT_IN_USE"
    VOCABULARY_MISMATCH = "VOCABULARY_MISMATCH"
    TARGET_DIFFERS = "TARGET_DIFFERS"
    DRAFTER_UNUSABLE = "DRAFTER_UNUSABLE"
    MODEL_UNKNOWN = "MODEL_UNKNOWN"
    MODEL_MISSING = "MODEL_MISSING"
    MODEL_CORRUPT = "MODEL_CORRUPT"
    MODEL_UNAVAILABLE = "MODEL_UNAVAILABLE"
    MODEL_UNSUPPORTED = "MODEL_UNSUPPORTED"
    FILE_UNREADABLE = "FILE_UNREADABLE"
    MEASUREMENT_INVALID = "MEASUREMENT_INVALID"


@dataclass(frozen=True, slots=True)
class ErrorSpec:
    """One row of the table. `status` is a `grpc.StatusCode` name; `public` is safe to show to any peer."""

    status: str
    exit_code: int
    public: str


ERROR_TABLE: dict[Reason, ErrorSpec] = {
    Reason.USAGE: ErrorSpec("INVALID_ARGUMENT", 2, "The command line or configuration is not valid."),
    Reason.SAMPLING_INVALID: ErrorSpec("INVALID_ARGUMENT", 2, "A sampling option is out of its range."),
    Reason.TOKEN_OUT_OF_RANGE: ErrorSpec("INVALID_ARGUMENT", 2, "A token id is not in the vocabulary."),
    Reason.PROMPT_EMPTY: ErrorSpec("INVALID_ARGUMENT", 2, "The prompt holds no token."),
    Reason.PROMPT_TOO_LONG: ErrorSpec("INVALID_ARGUMENT", 2, "The prompt leaves no room in the context."),
    Reason.GROW_MALFORMED: ErrorSpec("INVALID_ARGUMENT", 3, "A Grow message breaks the protocol."),
    Reason.PARENT_UNKNOWN: ErrorSpec("INVALID_ARGUMENT", 3, "A node names a parent that was never sent."),
    Reason.CHILD_DUPLICATE: ErrorSpec("INVALID_ARGUMENT", 3, "A parent has two children with one token."),
    Reason.CHILD_OF_STOP: ErrorSpec("INVALID_ARGUMENT", 3, "A node hangs below a stop token."),
    Reason.WINDOW_EXCEEDED: ErrorSpec("INVALID_ARGUMENT", 3, "More live nodes than the window allows."),
    Reason.OPEN_EXPECTED: ErrorSpec("INVALID_ARGUMENT", 3, "The first message of a stream must be Open."),
    Reason.OPEN_INVALID: ErrorSpec("INVALID_ARGUMENT", 3, "The Open message breaks the protocol."),
    Reason.MESSAGE_MALFORMED: ErrorSpec("INVALID_ARGUMENT", 3, "The bytes of a message are none of its kind."),
    Reason.MESSAGE_UNKNOWN: ErrorSpec("UNIMPLEMENTED", 3, "A message of a kind this side does not know."),
    Reason.FEATURE_UNSUPPORTED: ErrorSpec("UNIMPLEMENTED", 3, "A required feature is not supported here."),
    Reason.SESSION_IDLE: ErrorSpec("ABORTED", 3, "Nothing was asked for so long that the session was ended."),
    Reason.SESSION_NOT_FOUND: ErrorSpec("NOT_FOUND", 3, "No such session; open it anew with all its ids."),
    Reason.SUPERSEDED: ErrorSpec("ABORTED", 3, "Another stream has taken the session over."),
    Reason.DRAINING: ErrorSpec("UNAVAILABLE", 4, "The verifier is about to stop and takes no new answers."),
    Reason.CAPACITY_EXHAUSTED: ErrorSpec("RESOURCE_EXHAUSTED", 3, "All sessions are taken; try again later."),
    Reason.QUOTA_EXCEEDED: ErrorSpec(
        "RESOURCE_EXHAUSTED", 3, "The caller has as much as it may have; try again later."
    ),
    Reason.UNAUTHENTICATED: ErrorSpec("UNAUTHENTICATED", 3, "The verifier does not know the caller."),
    Reason.MESSAGE_TOO_LARGE: ErrorSpec("RESOURCE_EXHAUSTED", 3, "A message is larger than the other side takes."),
    Reason.INTERNAL: ErrorSpec("INTERNAL", 3, "Internal error."),
    Reason.PEER_VIOLATION: ErrorSpec("INTERNAL", 3, "The verifier broke the protocol."),
    Reason.VERIFIER_UNREACHABLE: ErrorSpec("UNAVAILABLE", 4, "The verifier cannot be reached."),
    Reason.VERIFIER_START_FAILED: ErrorSpec("UNAVAILABLE", 4, "The private verifier did not start."),
    Reason.LISTEN_NOT_LOOPBACK: ErrorSpec(
        "FAILED_PRECONDITION", 2, "Beyond loopback only TLS and callers that are known will do."
    ),
    Reason.PORT_IN_USE: ErrorSpec("UNAVAILABLE", 2, "The port is in use."),
    Reason.VOCABULARY_MISMATCH: ErrorSpec("FAILED_PRECONDITION", 5, "Draft and target vocabularies differ."),
    Reason.TARGET_DIFFERS: ErrorSpec("FAILED_PRECONDITION", 5, "The verifiers do not serve the same target."),
    Reason.DRAFTER_UNUSABLE: ErrorSpec("FAILED_PRECONDITION", 5, "The drafter cannot be used."),
    Reason.MODEL_UNKNOWN: ErrorSpec("NOT_FOUND", 5, "No model has this name and no file has this path."),
    Reason.MODEL_MISSING: ErrorSpec("NOT_FOUND", 5, "The model is not on this machine."),
    Reason.MODEL_CORRUPT: ErrorSpec("DATA_LOSS", 5, "The model file is damaged or not the one it should be."),
    Reason.MODEL_UNAVAILABLE: ErrorSpec("UNAVAILABLE", 5, "No source could provide the model."),
    Reason.MODEL_UNSUPPORTED: ErrorSpec("FAILED_PRECONDITION", 5, "The model cannot be served here."),
    Reason.FILE_UNREADABLE: ErrorSpec("NOT_FOUND", 5, "A file cannot be read or does not hold what it should."),
    Reason.MEASUREMENT_INVALID: ErrorSpec("ABORTED", 1, "The measurement does not count."),
}


class OutriderError(Exception):
    """A typed failure: a `Reason` from the table and a detail that says what was expected and what was found.

    The detail of an error raised while serving a peer reaches that peer, so it names only what the peer sent.
    """

    def __init__(
        self,
        reason: Reason,
        detail: str = "",
        *,
        from_peer: bool = False,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(detail or ERROR_TABLE[reason].public)
        self.reason = reason
        self.detail = detail
        self.from_peer = from_peer
        self.retry_after_s = retry_after_s
        # What else to print beside the error, by the keys of the command-line contract.
        self.more: dict[str, Any] = {}

    def __reduce__(self) -> tuple[Callable[..., OutriderError], tuple[Any, ...]]:
        """Whole, so that it may come out of another process."""
        make = partial(type(self), from_peer=self.from_peer, retry_after_s=self.retry_after_s)
        return make, (self.reason, self.detail)

    @property
    def message(self) -> str:
        """The public text of the reason, followed by the detail; of a peer's error what the peer said."""
        public = ERROR_TABLE[self.reason].public
        if self.from_peer and self.detail:
            return self.detail
        return f"{public} {self.detail}" if self.detail else public

    @property
    def status(self) -> str:
        """Name of the `grpc.StatusCode` that carries this error."""
        return ERROR_TABLE[self.reason].status

    @property
    def exit_code(self) -> int:
        """Exit code of a command that ends with this error."""
        spec = ERROR_TABLE[self.reason]
        return EXIT_REFUSED_BY_PEER if self.from_peer and spec.status != "UNAVAILABLE" else spec.exit_code
