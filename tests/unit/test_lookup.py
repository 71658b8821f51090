"""Lookups against a search of the whole text, and what a verifier adds of its own."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from outrider.cloud.lookup import with_lookup
from outrider.cloud.targets.base import ROOT_PARENT
from outrider.shared.lookup import LONGEST, LookupIndex


def search(text: Sequence[int]) -> tuple[int, int]:
    """Length of the longest ending that occurs earlier, and where its latest earlier occurrence ends."""
    for length in range(len(text) - 1, 0, -1):
        ending = text[len(text) - length :]
        ends = [e for e in range(length - 1, len(text) - 1) if text[e - length + 1 : e + 1] == ending]
        if ends:
            return length, max(ends)
    return 0, -1


@pytest.mark.parametrize("seed", range(60))
def test_the_longest_ending_and_its_latest_place_are_found(seed: int) -> None:
    draws = random.Random(seed)
    size = draws.choice([2, 3, 6])
    index, text = LookupIndex(), list[int]()
    for _ in range(50):
        text.append(draws.randrange(size))
        index.read(text[-1], learn=True)
        length, end = search(text)
        match = index.ending()
        assert match.length == length
        expected = (text[end + 1 :] * 3)[:3] if length else []
        assert list(index.continuation(match, 3).tokens) == expected


@pytest.mark.parametrize("seed", range(60))
def test_a_path_of_guesses_is_followed_without_being_read(seed: int) -> None:
    draws = random.Random(seed)
    text = [draws.randrange(3) for _ in range(draws.randrange(2, 40))]
    index = LookupIndex(text)
    match, path = index.ending(), list[int]()
    for _ in range(5):
        path.append(draws.randrange(4))
        match = index.follow(match, path[-1])
        whole = [*text, *path]
        lengths = [
            length
            for length in range(1, len(whole))
            if any(text[i : i + length] == whole[len(whole) - length :] for i in range(len(text) - length + 1))
        ]
        assert match.length == max(lengths, default=0)
    assert len(index) == len(text)


def test_confidence_follows_what_became_of_the_guesses() -> None:
    right, wrong = LookupIndex([7, 8, 9] * 3), LookupIndex([7, 8, 9] * 3)
    before = right.continuation(right.ending(), 1).probabilities[0]
    for token in [7, 8, 9] * 10:
        right.read(token, learn=True)
    draws = random.Random(1)
    for token in [draws.randrange(7, 10) for _ in range(200)]:
        wrong.read(token, learn=True)
    assert right.ending().length > LONGEST
    assert right.continuation(right.ending(), 1).probabilities[0] > before
    guess = wrong.continuation(wrong.ending(), 1)
    assert guess.probabilities[0] < 0.6


def test_an_unread_beginning_has_no_continuation() -> None:
    assert LookupIndex().continuation(LookupIndex().ending(), 5).tokens == ()
    assert LookupIndex([1, 2, 3]).continuation(LookupIndex([1, 2, 3]).ending(), 5).tokens == ()


def test_a_verifier_hangs_its_own_guesses_below_those_of_the_edge_and_repeats_none() -> None:
    index = LookupIndex([1, 2, 3, 4, 5, 6, 9, 1, 2, 3])
    tokens, parents = with_lookup(index, (), (), 4)
    # A fourth one would make the path too unlikely.
    assert tokens == (4, 5, 6)
    assert parents == (ROOT_PARENT, 0, 1)
    tokens, parents = with_lookup(index, (8, 4, 5, 7), (ROOT_PARENT, ROOT_PARENT, 1, 2), 4)
    assert tokens == (8, 4, 5, 7, 6)
    assert parents == (ROOT_PARENT, ROOT_PARENT, 1, 2, 2)
    assert with_lookup(index, (4,), (ROOT_PARENT,), 1) == ((4,), (ROOT_PARENT,))
    assert with_lookup(index, (4,), (ROOT_PARENT,), 0) == ((4,), (ROOT_PARENT,))
