"""Lookups in an answer's own text and, beside it, in a corpus that many answers share. The longer match wins; of equals
the answer's own, which is the more reliable.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from outrider.shared.corpus_index import CorpusIndex, Occurrences, followed
from outrider.shared.lookup import Continuation, LookupIndex, Match, Reliability

# Share of the guesses on which all occurrences agree that were right, by length of the ending, where the corpus had
# more of it than the text itself: sources of Python packages, looked up while reading further files of them.
_PRIOR = (0.1, 0.35, 0.42, 0.46, 0.55, 0.65, 0.7, 0.76, 0.78, 0.8, 0.82, 0.83, 0.94)
# Share of what was learned that a sighting leaves, over all answers: the last hundred or so count.
_KEPT = 0.99


def corpus_reliability(shares: Sequence[float] = _PRIOR) -> Reliability:
    """What is known of a corpus over all answers; at first that `shares` (see `Reliability.shares`) were right."""
    return Reliability(shares, kept=_KEPT)


@dataclass(frozen=True, slots=True)
class LayeredMatch(Match):
    """A match in the answer's own text, and the ending itself, for the corpus: its last tokens, newest first."""

    recent: bytes = b""


class LayeredLookup:
    """See `Lookup`. Only the answer's own text is read; the corpus is searched."""

    def __init__(self, ids: Iterable[int], corpus: CorpusIndex, learned: Reliability) -> None:
        """`learned` is of the corpus in all answers: this one begins with what it says, and adds to it."""
        self._own = LookupIndex()
        self._corpus = corpus
        self._learned = learned
        self._here = Reliability(learned.shares())
        self._recent = b""
        for token in ids:
            self.read(token)

    def __len__(self) -> int:
        return len(self._own)

    def read(self, token: int, *, learn: bool = False) -> None:
        """See `LookupIndex.read`."""
        if learn:
            self._learn(token)
        self._own.read(token, learn=learn)
        self._recent = followed(self._recent, token)

    def ending(self) -> LayeredMatch:
        """See `LookupIndex.ending`; the match is of the answer's own text."""
        own = self._own.ending()
        return LayeredMatch(own.state, own.length, self._recent)

    def follow(self, match: Match, token: int) -> LayeredMatch:
        """See `LookupIndex.follow`."""
        assert isinstance(match, LayeredMatch), "a match is good for the lookup that made it"
        own = self._own.follow(match, token)
        return LayeredMatch(own.state, own.length, followed(match.recent, token))

    def continuation(self, match: Match, most: int) -> Continuation:
        """See `LookupIndex.continuation`; one of the corpus ends where the corpus does."""
        assert isinstance(match, LayeredMatch), "a match is good for the lookup that made it"
        own = self._own.continuation(match, most)
        found = self._longer(match, own)
        if found is None:
            return own
        tokens, shares = self._corpus.continuation(found, most)
        chances = (share * self._here.of(found.length + i) for i, share in enumerate(shares))
        return Continuation(tuple(tokens), tuple(chances))

    def _longer(self, match: LayeredMatch, own: Continuation) -> Occurrences | None:
        """Where the corpus has the ending, if it has more of it than the answer's own text."""
        found = self._corpus.find(match.recent)
        return found if found.length > (match.length if own.tokens else 0) else None

    def _learn(self, token: int) -> None:
        """Only where the corpus is asked does it count whether it is right."""
        match = self.ending()
        found = self._longer(match, self._own.continuation(match, 1))
        if found is None:
            return
        tokens, shares = self._corpus.continuation(found, 1)
        for reliability in (self._here, self._learned):
            reliability.learn(found.length, tokens[0] == token, shares[0])
