"""What an answer is handed out as: chunks of text with the ids and origin behind them, and at the end the result."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from outrider.edge.profile import Profile
from outrider.edge.text import Released, TextStream
from outrider.shared.token_tree import CommittedToken, Origin
from outrider.shared.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class Result:
    """A whole answer. `stats` has the keys of the command-line contract; `committed_ids` are all ids that the target
    chose, with the stop id and what a stop text cut off. `profile` knows where the time went.
    """

    text: str
    token_ids: list[int]
    finish_reason: str
    session_id: str
    stats: dict[str, Any]
    committed_ids: list[int]
    gaps: list[float]
    profile: Profile


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of an answer. `origin` says where its tokens came from; the last chunk holds the `result`."""

    text: str
    token_ids: list[int]
    origin: Origin
    result: Result | None = None


class ChunkAssembler:
    """Turns committed tokens into chunks of one origin each, without stop ids and what a stop text cuts off."""

    def __init__(self, vocabulary: Vocabulary, stop_ids: frozenset[int], stop: Sequence[str]) -> None:
        self._stop_ids = stop_ids
        self._stream = TextStream(vocabulary, stop)
        self._waiting: deque[CommittedToken] = deque()
        self.text = ""
        self.token_ids: list[int] = []
        self.drafted_count = 0

    @property
    def stopped(self) -> bool:
        """Whether a stop text has been found; nothing may be pushed afterwards."""
        return self._stream.stopped

    def push(self, tokens: Sequence[CommittedToken]) -> list[Chunk]:
        """Chunks that became final with `tokens`."""
        chunks: list[Chunk] = []
        for token in tokens:
            if token.token in self._stop_ids or self.stopped:
                break
            self._waiting.append(token)
            self._release(self._stream.push(token.token), chunks)
        return chunks

    def flush(self) -> list[Chunk]:
        """What was held back, once the answer is complete."""
        chunks: list[Chunk] = []
        if not self.stopped:
            self._release(self._stream.flush(), chunks)
        return chunks

    def _release(self, released: Released, chunks: list[Chunk]) -> None:
        """Add what was released to `chunks`: one for each run of tokens of one origin, the text with the last."""
        tokens = [self._waiting.popleft() for _ in range(released.token_count)]
        self.text += released.text
        self.token_ids.extend(token.token for token in tokens)
        self.drafted_count += sum(1 for token in tokens if token.origin is Origin.DRAFTED)
        for token in tokens:
            if chunks and chunks[-1].origin is token.origin:
                chunks[-1].token_ids.append(token.token)
            else:
                chunks.append(Chunk("", [token.token], token.origin))
        if released.text:
            last = chunks.pop() if chunks else Chunk("", [], Origin.CLOUD)
            chunks.append(Chunk(last.text + released.text, last.token_ids, last.origin))
