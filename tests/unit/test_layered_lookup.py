"""Lookups in a corpus beside the answer's own text, against a search of every place of both."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.shared.corpus_index import ASKED, COMPARED, CorpusIndex, followed
from outrider.shared.layered_lookup import LayeredLookup, corpus_reliability
from outrider.shared.lookup import LONGEST, LookupIndex

MOST = 4
# Their bytes are ordered otherwise than they are, if they are not put together right.
LETTERS = st.sampled_from([0, 255, 256, 65_536, 2**31 - 1])
TEXTS = st.lists(LETTERS, max_size=40)


def ends_of(part: Sequence[int], whole: Sequence[int]) -> list[int]:
    """Index of the last token of each occurrence."""
    size = len(part)
    return [i + size - 1 for i in range(len(whole) - size + 1) if whole[i : i + size] == part]


def search(text: list[int], place: list[int], path: list[int]) -> tuple[int, list[int]]:
    """Length of the longest ending of text + path that occurs in `place`, and where each occurrence that something
    comes after ends. Of the text itself its own end is no occurrence.
    """
    whole = [*text, *path]
    for length in range(len(whole), 0, -1):
        ends = ends_of(whole[len(whole) - length :], place)
        followed_ends = [end for end in ends if end < len(place) - 1]
        if place is text and path and ends:
            return length if followed_ends else 0, followed_ends
        if followed_ends:
            return length, followed_ends
    return 0, []


def most_common_way(corpus: list[int], ends: list[int]) -> tuple[list[int], list[float]]:
    tokens, shares = list[int](), list[float]()
    while len(tokens) < MOST and (ends := [end for end in ends if end < len(corpus) - 1]):
        nexts = [corpus[end + 1] for end in ends]
        times = max(map(nexts.count, nexts))
        latest = max(end for end, token in zip(ends, nexts, strict=True) if nexts.count(token) == times)
        tokens.append(corpus[latest + 1])
        shares.append(times / len(ends))
        ends = [end + 1 for end, token in zip(ends, nexts, strict=True) if token == tokens[-1]]
    return tokens, shares


def expected_continuation(
    text: list[int], corpus: list[int], path: list[int]
) -> tuple[int, int, list[int], list[float]]:
    """Length in the text, length in the corpus, tokens, and shares if they are of the corpus."""
    own_length, own_ends = search(text, text, path)
    length, ends = search(text, corpus, path)
    if length > own_length:
        return own_length, length, *most_common_way(corpus, ends)
    if not own_ends:
        return own_length, length, [], []
    rest = text[max(own_ends) + 1 :]
    return own_length, length, (rest * MOST)[:MOST], []


def recent_of(text: Sequence[int]) -> bytes:
    recent = b""
    for token in text:
        recent = followed(recent, token)
    return recent


@given(text=TEXTS, corpus=TEXTS, path=st.lists(LETTERS, max_size=4))
def test_the_longest_ending_in_text_or_corpus_is_continued(text: list[int], corpus: list[int], path: list[int]) -> None:
    lookup = LayeredLookup(text, CorpusIndex(corpus), corpus_reliability())
    match = lookup.ending()
    for token in path:
        match = lookup.follow(match, token)
    own_length, length, tokens, shares = expected_continuation(text, corpus, path)
    found = lookup.continuation(match, MOST)
    assert list(found.tokens) == tokens
    if length > own_length:
        prior = corpus_reliability()
        chances = [share * prior.of(length + i) for i, share in enumerate(shares)]
        assert found.probabilities == pytest.approx(chances)
    assert len(lookup) == len(text), "only the answer's own text is read"


@given(corpus=st.lists(st.sampled_from([1, 2]), max_size=300), text=st.lists(st.sampled_from([1, 2, 3]), max_size=100))
def test_a_corpus_finds_every_occurrence_of_the_longest_ending_that_it_compares(
    corpus: list[int], text: list[int]
) -> None:
    index = CorpusIndex(corpus)
    length, ends = search(text[-COMPARED:], corpus, [])
    found = index.find(recent_of(text))
    assert (found.length, found.end - found.first) == (length, len(ends))
    if len(ends) <= ASKED:
        assert index.continuation(found, MOST) == most_common_way(corpus, ends)


@pytest.mark.parametrize("repeats", [2, 3, 70, 500])
def test_long_repeats_are_ordered_as_far_as_they_are_compared(repeats: int) -> None:
    corpus = [7, 8] * repeats + [9]
    index = CorpusIndex(corpus)
    for size in range(1, min(2 * repeats, COMPARED) + 1):
        ending = corpus[2 * repeats - size : 2 * repeats]
        found = index.find(recent_of(ending))
        assert (found.length, found.end - found.first) == (size, len(ends_of(ending, corpus[:-1])))


def test_of_many_occurrences_some_from_all_over_are_asked() -> None:
    corpus = [5, 6] * 700 + [5, 7] * 300
    tokens, shares = CorpusIndex(corpus).continuation(CorpusIndex(corpus).find(recent_of([5])), 1)
    assert tokens == [6]
    assert 0.6 < shares[0] < 0.8


def test_a_corpus_is_no_text_so_far() -> None:
    lookup = LayeredLookup([], CorpusIndex([1, 2, 3, 1, 2]), corpus_reliability())
    assert lookup.ending().length == 0
    assert lookup.continuation(lookup.ending(), 3).tokens == ()
    lookup.read(9)
    assert lookup.continuation(lookup.ending(), 3).tokens == (), "9 is nowhere, so nothing is known of what comes next"
    lookup.read(2)
    assert lookup.continuation(lookup.ending(), 9).tokens == (3, 1, 2), "a corpus ends where it ends"


def test_of_equal_matches_the_answers_own_is_taken_however_long_both_are() -> None:
    for size in (3, COMPARED + 6):
        ending = list(range(100, 100 + size))
        lookup = LayeredLookup([*ending, 1, *ending], CorpusIndex([0, *ending, 2]), corpus_reliability())
        assert lookup.continuation(lookup.ending(), 1).tokens == (1,)


def test_what_is_learned_of_the_corpus_says_nothing_of_the_text_and_stays_for_the_next_answer() -> None:
    index, learned = CorpusIndex([1, 2, 3, 4, 5, 6] * 2), corpus_reliability()
    first = LayeredLookup([], index, learned)
    alone = LookupIndex()
    for token in [1, 2, 9, 3, 4, 9] * 20:
        first.read(token, learn=True)
        alone.read(token, learn=True)
    assert first.continuation(first.ending(), 5) == alone.continuation(alone.ending(), 5)
    assert learned.of(2) < 0.8 * corpus_reliability().of(2)
    second = LayeredLookup([4, 5], index, learned)
    guess = second.continuation(second.ending(), 1)
    assert guess.tokens == (6,)
    assert guess.probabilities == (learned.of(2),)


def test_a_guess_that_few_occurrences_support_counts_as_little() -> None:
    """It is right as often as it is common: then what is known of endings of that length must not change."""
    corpus = [1, 2] * 5 + [1, 3] * 3 + [1, 4] * 2
    learned = corpus_reliability()
    before = learned.of(1)
    for _ in range(30):
        for token in [2] * 5 + [3] * 3 + [4] * 2:
            LayeredLookup([1], CorpusIndex(corpus), learned).read(token, learn=True)
    assert learned.of(1) > 2 * before, "0.1 was far too low"
    assert learned.of(1) == pytest.approx(1.0, abs=0.1)
    assert learned.of(LONGEST) == corpus_reliability().of(LONGEST)
