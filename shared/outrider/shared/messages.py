"""What the two ends say to each other, as plain values. The wire form is made of them in `convert`; everything else
in the program knows only these.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from outrider.shared.sampling.options import Sampling
from outrider.shared.vocabulary import Fingerprint

INITIAL_WINDOW = 32
FEATURE_PREFIX = "prefix_of"
FEATURE_GAPS = "gaps"
FEATURE_RESUME = "resume"
FEATURES = (FEATURE_GAPS, FEATURE_PREFIX, FEATURE_RESUME)


class FinishReason(StrEnum):
    """Why an answer ended."""

    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Open:
    """Starts a session; `committed_ids` are answer tokens that are final already."""

    prompt_ids: tuple[int, ...]
    sampling: Sampling
    seed: int
    max_tokens: int
    committed_ids: tuple[int, ...] = ()
    stop_ids: tuple[int, ...] = ()
    prefix_of: str = ""
    required_features: tuple[str, ...] = ()
    want_gaps: bool = False
    target_digest: str = ""


@dataclass(frozen=True, slots=True)
class Resume:
    """Takes a session over on a new stream; `attempt` rises, the highest wins. The edge has `committed_length` tokens
    of the answer, and `hash` is that of prompt and these.
    """

    session_id: str
    attempt: int
    committed_length: int
    hash: int


@dataclass(frozen=True, slots=True)
class Grow:
    """Adds nodes: node `first_id + i` with token `tokens[i]` below the node `parents[i]`; parent 0 is the root,
    the committed token at `base - 1`. `run_to` is the committed length up to which the verifier may go alone.
    """

    first_id: int
    base: int
    parents: tuple[int, ...] = ()
    tokens: tuple[int, ...] = ()
    run_to: int = 0


@dataclass(frozen=True, slots=True)
class Close:
    """Ends a session for good."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A session is open; `token_limit` is the committed length at which it ends at the latest. `missing_ids` are the
    last committed ids, which a resuming edge did not have.
    """

    session_id: str
    committed_length: int
    hash: int
    window: int
    token_limit: int
    reused_length: int = 0
    missing_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Commit:
    """Moves the root from committed length `base` down to `accepted_node` (0: none), then along `tokens`."""

    base: int
    accepted_node: int
    tokens: tuple[int, ...]
    committed_length: int
    hash: int
    checked_count: int = 0
    queue_ns: int = 0
    pass_ns: int = 0
    load_percent: int = 0
    gaps: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Finished:
    """The answer is complete: the last message of a session, with its totals."""

    reason: FinishReason
    passes: int
    prefill_passes: int


@dataclass(frozen=True, slots=True)
class GoAway:
    """The verifier is about to stop; the answer can go on elsewhere."""

    session_id: str


EdgeMessage = Open | Resume | Grow | Close
CloudMessage = Opened | Commit | Finished | GoAway


@dataclass(frozen=True, slots=True)
class Limits:
    """What a verifier allows; see `outrider.v1.Limits`."""

    context_length: int
    max_sessions: int
    window: int
    initial_window: int
    max_run_ahead: int
    max_branches: int

    @property
    def allows_eager(self) -> bool:
        """Whether a session may be decoded on without guesses, beyond the one token that an edge without any needs."""
        return self.max_run_ahead > 1


_IDENTITY = ("model", "revision", "engine", "fingerprint", "stop_ids", "numerics")


@dataclass(frozen=True, slots=True)
class VerifierInfo:
    """What a verifier serves; see `outrider.v1.GetInfoResponse`."""

    model: str
    revision: str
    engine: str
    fingerprint: Fingerprint
    stop_ids: frozenset[int]
    numerics: str
    near_tie_gap: float
    limits: Limits
    features: frozenset[str]
    settings: dict[str, str]
    software_version: str
    tokenizer_digest: str
    target_digest: str = ""

    def target_identity(self) -> dict[str, object]:
        """All that tells this target's text from another's, by name of field."""
        # Where a text ends may be for its context to say.
        return {name: getattr(self, name) for name in _IDENTITY} | {"context_length": self.limits.context_length}

    def with_target_digest(self) -> VerifierInfo:
        """The same, with the digest of that."""
        stop_ids = sorted(self.stop_ids)
        text = repr([*(self.target_identity() | {"stop_ids": stop_ids}).items()])
        return replace(self, target_digest=hashlib.sha256(text.encode()).hexdigest()[:32])


class TokenHash:
    """CRC-32 over token ids, each as uint32 in little endian, extended as ids are committed."""

    def __init__(self, ids: Sequence[int] = ()) -> None:
        self.value = 0
        self.extend(ids)

    def extend(self, ids: Sequence[int]) -> None:
        """Append `ids` to what has been hashed."""
        self.value = zlib.crc32(struct.pack(f"<{len(ids)}I", *ids), self.value)
