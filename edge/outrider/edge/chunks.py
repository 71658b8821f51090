"""What an answer is handed out as: chunks of text with the ids and origin behind them, and at the end the result."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

from outrider.edge.profile import Profile
from outrider.edge.resume_handle import ResumeHandle
from outrider.edge.text import Released, TextStream
from outrider.shared.token_tree import CommittedToken, Origin
from outrider.shared.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class Result:
    """A whole answer. `stats` has the keys of the command-line contract; `committed_ids` are all ids that the target
    chose, with the stop id and what a stop text cut off; `gaps`, if they were asked for, has one for each of these, NaN
    where the verifier did not tell it. `profile` knows where the time went. An answer whose end no
    verifier has seen has a `handle`, with which it can be checked later.
    """

    text: str
    token_ids: list[int]
    finish_reason: str
    session_id: str
    stats: dict[str, Any]
    committed_ids: list[int]
    gaps: list[float]
    profile: Profile
    handle: ResumeHandle | None = None


@dataclass(frozen=True, slots=True)
class Retract:
    """Of what was said without a verifier only this much stays: the first `text_length` characters of the answer's
    text, the first `token_count` of its ids. `withdrawn` is the text that does not stay.
    """

    text_length: int
    token_count: int
    withdrawn: str


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of an answer. `origin` says where its tokens came from; the last chunk holds the `result`.

    Where a verifier differs from what was said without it, a chunk has a `retract`, to be followed before its text is
    added. Where it agrees, `verified` counts the tokens, said before, that have become final.
    """

    text: str
    token_ids: list[int]
    origin: Origin
    result: Result | None = None
    retract: Retract | None = None
    verified: int = 0


class ChunkAssembler:
    """Turns committed tokens into chunks of one origin each, without stop ids and what a stop text cuts off. Tokens
    that nobody has verified are given out at once, and compared with the committed ones that follow.
    """

    def __init__(self, vocabulary: Vocabulary, stop_ids: frozenset[int], stop: Sequence[str]) -> None:
        self._stop_ids = stop_ids
        self._final = _Assembled(TextStream(vocabulary, stop))
        # What goes beyond the committed tokens: those that have not been compared yet, and all text with them.
        self._open_tokens: deque[int] = deque()
        self._ahead: _Assembled | None = None
        self.retracts: list[Retract] = []

    @property
    def text(self) -> str:
        """What has been given out."""
        return self._shown.text

    @property
    def token_ids(self) -> list[int]:
        """Ids that have been given out."""
        return self._shown.token_ids

    @property
    def drafted_count(self) -> int:
        """How many of them are guesses that a pass accepted."""
        return self._final.drafted_count

    @property
    def unverified_count(self) -> int:
        """How many of them nobody has verified."""
        return len(self._shown.token_ids) - len(self._final.token_ids)

    @property
    def stopped(self) -> bool:
        """Whether a stop text has been found in what is final; nothing may be pushed afterwards."""
        return self._final.stream.stopped

    @property
    def stopped_ahead(self) -> bool:
        """Whether one has been found in what is not final yet."""
        return self._ahead is not None and self._ahead.stream.stopped

    @property
    def _shown(self) -> _Assembled:
        return self._final if self._ahead is None else self._ahead

    def push(self, tokens: Sequence[CommittedToken]) -> list[Chunk]:
        """Chunks to give out with `tokens`."""
        chunks: list[Chunk] = []
        for token in tokens:
            if self.stopped:
                break
            if token.origin is Origin.UNVERIFIED:
                self._go_ahead(token, chunks)
                continue
            if self._ahead is not None and self._confirm(token, chunks):
                continue
            if token.token in self._stop_ids:
                break
            self._final.push(token, chunks)
        return chunks

    def take_back(self) -> list[Chunk]:
        """Withdraw what nobody has verified."""
        chunks: list[Chunk] = []
        if self._ahead is not None:
            self._retract(chunks)
        return chunks

    def flush(self, *, unverified: bool = False) -> list[Chunk]:
        """What was held back, once the answer is complete; with `unverified`, complete as nobody has verified it."""
        chunks = [] if unverified else self.take_back()
        if not self._shown.stream.stopped:
            self._shown.flush(chunks)
        return chunks

    def _go_ahead(self, token: CommittedToken, chunks: list[Chunk]) -> None:
        if self._ahead is None:
            self._ahead = self._final.fork()
        if not self._ahead.stream.stopped:
            self._open_tokens.append(token.token)
            self._ahead.push(token, chunks)

    def _confirm(self, token: CommittedToken, chunks: list[Chunk]) -> bool:
        """Compare a committed token with what was said there; returns whether it was the same."""
        if not self._open_tokens or self._open_tokens[0] != token.token:
            self._retract(chunks)
            return False
        self._open_tokens.popleft()
        before = len(self._final.token_ids)
        # All that this gives out has been given out.
        self._final.push(token, [])
        verified = len(self._final.token_ids) - before
        if verified and chunks and chunks[-1].verified and chunks[-1].origin is token.origin:
            chunks[-1] = replace(chunks[-1], verified=chunks[-1].verified + verified)
        elif verified:
            chunks.append(Chunk("", [], token.origin, verified=verified))
        if not self._open_tokens:
            self._ahead = None
        return True

    def _retract(self, chunks: list[Chunk]) -> None:
        """Take back what was said beyond the committed tokens."""
        assert self._ahead is not None
        ahead, self._ahead = self._ahead, None
        self._open_tokens.clear()
        stays = len(self._final.text)
        retract = Retract(stays, len(self._final.token_ids), ahead.text[stays:])
        if retract.withdrawn or len(ahead.token_ids) > retract.token_count:
            self.retracts.append(retract)
            chunks.append(Chunk("", [], Origin.CORRECTED, retract=retract))


class _Assembled:
    """Text and ids of tokens, and those that wait for the text to go on."""

    def __init__(self, stream: TextStream) -> None:
        self.stream = stream
        self.text = ""
        self.token_ids: list[int] = []
        self.drafted_count = 0
        self._waiting: deque[CommittedToken] = deque()
        # Of text that completes no token.
        self._origin = Origin.CLOUD

    def fork(self) -> _Assembled:
        """Another one that has read the same and goes on with what nobody has verified."""
        other = copy(self)
        other._origin = Origin.UNVERIFIED
        other.stream = self.stream.fork()
        other.token_ids = list(self.token_ids)
        # What is final but held back may still be cut off, whatever comes next here.
        other._waiting = deque(CommittedToken(waiting.token, Origin.UNVERIFIED) for waiting in self._waiting)
        return other

    def push(self, token: CommittedToken, chunks: list[Chunk]) -> None:
        """Add what `token` gives out to `chunks`."""
        self._waiting.append(token)
        self._release(self.stream.push(token.token), chunks)

    def flush(self, chunks: list[Chunk]) -> None:
        """Add what was held back to `chunks`."""
        self._release(self.stream.flush(), chunks)

    def _release(self, released: Released, chunks: list[Chunk]) -> None:
        """Add what was released to `chunks`: one for each run of tokens of one origin, the text with the last."""
        tokens = [self._waiting.popleft() for _ in range(released.token_count)]
        self.text += released.text
        self.token_ids.extend(token.token for token in tokens)
        self.drafted_count += sum(1 for token in tokens if token.origin is Origin.DRAFTED)
        for token in tokens:
            if chunks and chunks[-1].retract is not None and not chunks[-1].token_ids:
                chunks[-1] = replace(chunks[-1], origin=token.origin)
            if chunks and chunks[-1].origin is token.origin:
                chunks[-1].token_ids.append(token.token)
            else:
                chunks.append(Chunk("", [token.token], token.origin))
        if released.text:
            last = chunks.pop() if chunks else Chunk("", [], self._origin)
            chunks.append(replace(last, text=last.text + released.text))
