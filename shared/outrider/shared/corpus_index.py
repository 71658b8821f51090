"""A text that is searched and never grows: where does another text's ending occur in it, and what came next there?
Small and quickly built, unlike `LookupIndex`, as all of it is known beforehand. It knows no model and no answer.

Source: Manber and Myers, "Suffix arrays: a new method for on-line string searches" (1993), over the text read
backwards, so that an ending is a beginning.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# Tokens of an ending that are compared; longer ones are as good as that.
COMPARED = 64
# Occurrences that are asked what came next.
ASKED = 32
_BYTES = 4


@dataclass(frozen=True, slots=True)
class Occurrences:
    """The longest ending that occurs with something after it: its length, and a range of the sorted places."""

    length: int
    first: int
    end: int


NOWHERE = Occurrences(0, 0, 0)


class CorpusIndex:
    """Takes 8 bytes of memory a token, and about 60 while it is made. Safe to share, also between threads."""

    def __init__(self, ids: Sequence[int]) -> None:
        """`ids` are from 0 to 2^31 - 1."""
        backwards = np.asarray(ids, np.int64)[::-1]
        # Big-endian, so that bytes are ordered as ids are.
        self._data = backwards.astype(">u4").tobytes()
        places = _sorted_places(backwards)
        # Nothing comes after the last token.
        self._places = array("i", places[places > 0].astype(np.int32).tobytes())

    def __len__(self) -> int:
        return len(self._data) // _BYTES

    def find(self, recent: bytes) -> Occurrences:
        """Occurrences of the longest ending of a text whose last tokens, newest first, are `recent` (see
        `followed`; b"" is the empty text).
        """
        recent = recent[: _BYTES * COMPARED]
        at = self._first(recent)
        # The places next to where it would stand have the most in common with it.
        length = max(self._shared_with(at - 1, recent), self._shared_with(at, recent))
        if length == 0:
            return NOWHERE
        ending = recent[: _BYTES * length]
        first = self._first(ending)
        return Occurrences(length, first, self._end(ending, first))

    def continuation(self, found: Occurrences, most: int) -> tuple[list[int], list[float]]:
        """Up to `most` tokens that came after the occurrences, at each step the one that came most often (of equals,
        the latest) where all those before came too; and of how many of the occurrences each is true, as a share.
        """
        count = found.end - found.first
        asked = min(count, ASKED)
        picked = [self._places[found.first + i * count // asked] for i in range(asked)] if asked else []
        # Backwards, what comes next stands before; the latest place of the text comes first.
        places = sorted(picked)
        tokens: list[int] = []
        shares: list[float] = []
        while len(tokens) < most:
            places = [place - 1 for place in places if place > 0]
            if not places:
                break
            nexts = [self._token(place) for place in places]
            ((token, times),) = Counter(nexts).most_common(1)
            tokens.append(token)
            shares.append(times / len(places))
            places = [place for place, next_ in zip(places, nexts, strict=True) if next_ == token]
        return tokens, shares

    def _first(self, beginning: bytes) -> int:
        """Index of the first place in order that does not stand before `beginning`."""
        return bisect_left(self._places, beginning, key=self._cut(len(beginning)))

    def _end(self, beginning: bytes, first: int) -> int:
        """Index behind the last place that begins with `beginning`."""
        return bisect_right(self._places, beginning, first, key=self._cut(len(beginning)))

    def _cut(self, size: int) -> Callable[[int], bytes]:
        data = self._data
        return lambda place: data[_BYTES * place : _BYTES * place + size]

    def _shared_with(self, index: int, recent: bytes) -> int:
        """How many tokens the text at a place, by its index, and `recent` have in common."""
        if not 0 <= index < len(self._places):
            return 0
        there = self._cut(len(recent))(self._places[index])
        size = min(len(there), len(recent))
        difference = int.from_bytes(there[:size]) ^ int.from_bytes(recent[:size])
        return (8 * size - difference.bit_length()) // (8 * _BYTES)

    def _token(self, place: int) -> int:
        return int.from_bytes(self._data[_BYTES * place : _BYTES * (place + 1)])


def followed(recent: bytes, token: int) -> bytes:
    """`recent`, as `CorpusIndex.find` takes it, of the same text with one more token."""
    return token.to_bytes(_BYTES) + recent[: _BYTES * (COMPARED - 1)]


def _sorted_places(ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """The places of a text in the order of what stands there, as far as `COMPARED` tokens; int64 [len(ids)]."""
    # Sorted by 1, 2, 4, ... tokens: twice as many are two places whose order is known.
    ranks, order, known = ids + 1, np.argsort(ids, kind="stable"), 1
    while known < COMPARED and len(ids):
        keys = ranks * (int(ranks.max()) + 1)
        keys[:-known] += ranks[known:]
        order = np.argsort(keys, kind="stable")
        in_order = keys[order]
        ranks = np.empty_like(ranks)
        ranks[order] = np.concatenate(([0], np.cumsum(in_order[1:] != in_order[:-1]))) + 1
        known *= 2
        if ranks[order[-1]] == len(ids):
            break
    return order
