"""From committed ids to text that can be shown: bytes of characters split over tokens wait for the rest, and text that
may be the beginning of a stop string waits until that is decided. Works in bytes, so that text and ids are cut at
the same place.
"""

from __future__ import annotations

import codecs
import copy
from collections.abc import Sequence
from dataclasses import dataclass

from outrider.shared.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class Released:
    """Text that is final, and how many tokens it completes (in order of arrival)."""

    text: str
    token_count: int


class TextStream:
    """Decodes one answer. After `stopped` is true nothing more may be pushed.

    Of several stop strings the one that is complete first counts, as if text came byte by byte: how it is split into
    tokens does not matter. A token that a stop string cuts in two stays in the answer, one that lies wholly in or
    after it does not.
    """

    def __init__(self, vocabulary: Vocabulary, stop: Sequence[str]) -> None:
        self._pieces = vocabulary.pieces
        self._special_ids = vocabulary.special_ids
        self._stops = [text.encode() for text in stop]
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._bytes = b""
        # Ends of the tokens that wait, as offsets into `_bytes`.
        self._ends: list[int] = []
        self.stopped = False

    def fork(self) -> TextStream:
        """Another one that has read the same."""
        other = copy.copy(self)
        other._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        other._decoder.setstate(self._decoder.getstate())
        other._ends = list(self._ends)
        return other

    def push(self, token: int) -> Released:
        """Take one committed id in; returns what became final with it."""
        assert not self.stopped
        piece = b"" if token in self._special_ids else self._pieces[token]
        searched_from = max(0, len(self._bytes) - max(map(len, self._stops), default=0))
        self._bytes += piece
        self._ends.append(len(self._bytes))
        hits = [(hit + len(stop), hit) for stop in self._stops if (hit := self._bytes.find(stop, searched_from)) >= 0]
        if hits:
            self.stopped = True
            return self._release_cut(min(hits)[1])
        return self._release_tokens(len(self._bytes) - self._held_back())

    def flush(self) -> Released:
        """What is left when the answer ends."""
        released = self._release_tokens(len(self._bytes))
        return Released(released.text + self._decoder.decode(b"", final=True), released.token_count)

    def _held_back(self) -> int:
        """Length of the longest end of the text that a stop string begins with."""
        longest = max(map(len, self._stops), default=0) - 1
        for length in range(min(longest, len(self._bytes)), 0, -1):
            if any(stop.startswith(self._bytes[-length:]) for stop in self._stops):
                return length
        return 0

    def _release_tokens(self, sure: int) -> Released:
        """Release the tokens that end within the first `sure` bytes."""
        count = sum(1 for end in self._ends if end <= sure)
        if not count:
            return Released("", 0)
        cut = self._ends[count - 1]
        text = self._decoder.decode(self._bytes[:cut])
        self._bytes = self._bytes[cut:]
        self._ends = [end - cut for end in self._ends[count:]]
        return Released(text, count)

    def _release_cut(self, cut: int) -> Released:
        """Release the text before `cut` and the tokens that begin before it (those of no bytes: at it or before)."""
        starts = [0, *self._ends[:-1]]
        count = sum(1 for start, end in zip(starts, self._ends, strict=True) if start < cut or end <= cut)
        text = self._decoder.decode(self._bytes[:cut], final=True)
        return Released(text, count)
