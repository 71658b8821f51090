"""Guesses out of what has been read and written already: where did the text's own ending occur before, and what came
next there? A suffix automaton, so that the longest such ending is found at once. It knows no model.

Source: Blumer et al., "The smallest automaton recognizing the subwords of a text" (1985), extended by the place of the
latest occurrence.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

# Endings longer than this are as good as this.
LONGEST = 12
# How often the next token was right after an ending of that length, and how much that counts as seen. Measured with the
# shipped recordings' prompts and answers; every answer corrects it.
_PRIOR = (0.1, 0.2, 0.45, 0.55, 0.7, 0.8, 0.88, 0.9, 0.92, 0.92, 0.93, 0.93, 0.95)
_PRIOR_WEIGHT = 8.0
# States whose latest place is kept up to date with each token; beyond them an older one is good enough.
_UPDATED = 32
_ROOT = 0
_NOWHERE = -1


@dataclass(frozen=True, slots=True)
class Match:
    """The longest ending of a text that occurs in what has been read: a state of the automaton, and its length."""

    state: int
    length: int


@dataclass(frozen=True, slots=True)
class Continuation:
    """What came next where the ending occurred: tokens and, for each, how likely it is right if those before are."""

    tokens: tuple[int, ...]
    probabilities: tuple[float, ...]


class Reliability:
    """How often the next token was right after an ending of a length, for each length up to `LONGEST`."""

    def __init__(self, prior: Sequence[float], *, kept: float = 1.0) -> None:
        """`prior` holds LONGEST + 1 shares; a new sighting leaves the share `kept` of those before."""
        self._right = [p * _PRIOR_WEIGHT for p in prior]
        self._seen = [_PRIOR_WEIGHT] * len(prior)
        self._kept = kept

    def of(self, length: int) -> float:
        """For an ending of that length."""
        bin_ = min(length, LONGEST)
        return min(1.0, self._right[bin_] / self._seen[bin_])

    def shares(self) -> list[float]:
        """For every length up to LONGEST."""
        return [self.of(length) for length in range(len(self._seen))]

    def learn(self, length: int, is_right: bool, expected: float = 1.0) -> None:
        """A guess after an ending of that length was right, or was not. One that is more doubtful than others to begin
        with counts as `expected` sightings.
        """
        bin_ = min(length, LONGEST)
        self._right[bin_] = self._kept * self._right[bin_] + is_right
        self._seen[bin_] = self._kept * self._seen[bin_] + expected


class Lookup(Protocol):
    """A text that grows, and what may come next. A match is good for the lookup that made it, until the next `read`."""

    def read(self, token: int, *, learn: bool = False) -> None:
        """See `LookupIndex.read`."""

    def ending(self) -> Match:
        """See `LookupIndex.ending`."""

    def follow(self, match: Match, token: int) -> Match:
        """See `LookupIndex.follow`."""

    def continuation(self, match: Match, most: int) -> Continuation:
        """See `LookupIndex.continuation`; there may be fewer than `most`."""


class LookupIndex:
    """Everything read so far. Reading a token takes constant time on average."""

    def __init__(self, ids: Iterable[int] = ()) -> None:
        self._text: list[int] = []
        self._next: list[dict[int, int]] = [{}]
        self._link: list[int] = [_NOWHERE]
        self._length: list[int] = [0]
        # Index of the last token of the latest occurrence, and of the one before.
        self._latest: list[int] = [_NOWHERE]
        self._earlier: list[int] = [_NOWHERE]
        self._last = _ROOT
        self._reliability = Reliability(_PRIOR)
        for token in ids:
            self.read(token)

    def __len__(self) -> int:
        return len(self._text)

    def read(self, token: int, *, learn: bool = False) -> None:
        """Add a token to the text. With `learn` it first counts whether a guess would have been right."""
        if learn:
            self._learn(token)
        place = len(self._text)
        self._text.append(token)
        fresh = self._new_state(self._length[self._last] + 1, {}, _NOWHERE)
        state = self._last
        while state != _NOWHERE and token not in self._next[state]:
            self._next[state][token] = fresh
            state = self._link[state]
        self._link[fresh] = _ROOT if state == _NOWHERE else self._split(state, token)
        self._last = fresh
        self._update_places(place)

    def ending(self) -> Match:
        """The longest ending of the text itself that occurs earlier in it."""
        state = max(self._link[self._last], _ROOT)
        return Match(state, self._length[state])

    def follow(self, match: Match, token: int) -> Match:
        """The match after one more token, which need not be of the text."""
        state, length = match.state, match.length
        while state != _ROOT and token not in self._next[state]:
            state = self._link[state]
            length = self._length[state]
        if token in self._next[state]:
            return Match(self._next[state][token], length + 1)
        return Match(_ROOT, 0)

    def continuation(self, match: Match, most: int) -> Continuation:
        """The `most` tokens that came after the latest occurrence of the match; none if it has none."""
        if match.length == 0:
            return Continuation((), ())
        place = self._latest[match.state]
        if place >= len(self._text) - 1:
            place = self._earlier[match.state]
        if place == _NOWHERE:
            return Continuation((), ())
        tokens = self._text[place + 1 : place + 1 + most]
        # The text's end is no end: what repeats itself is taken to go on doing so.
        period = len(tokens)
        tokens += [tokens[i % period] for i in range(period, most)]
        return Continuation(tuple(tokens), tuple(self._reliability.of(match.length + i) for i in range(most)))

    def _learn(self, token: int) -> None:
        match = self.ending()
        guess = self.continuation(match, 1)
        if guess.tokens:
            self._reliability.learn(match.length, guess.tokens[0] == token)

    def _new_state(self, length: int, transitions: dict[int, int], link: int) -> int:
        self._length.append(length)
        self._next.append(transitions)
        self._link.append(link)
        self._latest.append(_NOWHERE)
        self._earlier.append(_NOWHERE)
        return len(self._length) - 1

    def _split(self, state: int, token: int) -> int:
        """The state that the new one links to: where `token` leads from `state`, cut to what fits."""
        target = self._next[state][token]
        if self._length[target] == self._length[state] + 1:
            return target
        clone = self._new_state(self._length[state] + 1, dict(self._next[target]), self._link[target])
        self._latest[clone], self._earlier[clone] = self._latest[target], self._earlier[target]
        while state != _NOWHERE and self._next[state].get(token) == target:
            self._next[state][token] = clone
            state = self._link[state]
        self._link[target] = clone
        return clone

    def _update_places(self, place: int) -> None:
        state = self._last
        for _ in range(_UPDATED):
            if state in (_ROOT, _NOWHERE):
                return
            self._earlier[state], self._latest[state] = self._latest[state], place
            state = self._link[state]
