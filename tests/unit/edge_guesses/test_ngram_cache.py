"""The answer's own n-grams pull guesses towards what came before, as far as that has proved right."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.edge.drafters.base import Proposal
from outrider.edge.guesses.ngram_cache import LONGEST, WINDOW, NgramCache

# The drafter prefers 8 a little; after 1, 2, 3 the answer has always gone on with 9.
SAID = [Proposal(8, 0.52, 0.52), Proposal(9, 0.48, 0.48)]


def read(tokens: list[int]) -> NgramCache:
    cache = NgramCache()
    for token in tokens:
        cache.read(token)
    return cache


def test_what_came_after_the_same_tokens_is_preferred() -> None:
    cache = read([1, 2, 3, 9, 1, 2, 3])
    assert [p.token for p in cache.blended(SAID, [1, 2, 3, 9, 1, 2, 3])] == [9, 8]
    assert cache.blended(SAID, [5, 6, 7]) == SAID, "nothing is known of that"


def test_its_share_grows_when_it_is_right_and_shrinks_when_it_is_wrong() -> None:
    text = [1, 2, 3, 9, 1, 2, 3]
    trusted, distrusted = read(text), read(text)
    for _ in range(30):
        trusted.observe(SAID, text, 9)
        distrusted.observe(SAID, text, 8)
    q = {p.token: p.q for p in trusted.blended(SAID, text)}
    assert q[9] > 0.6
    q = {p.token: p.q for p in distrusted.blended(SAID, text)}
    assert q[9] == pytest.approx(0.48, abs=0.02)


def test_what_the_options_rule_out_stays_ruled_out() -> None:
    cache = read([1, 2, 9, 1, 2])
    blended = cache.blended([Proposal(8, 0.9, 1.0), Proposal(9, 0.1, 0.0)], [1, 2, 9, 1, 2])
    assert [(p.token, p.q > 0) for p in blended] == [(8, True), (9, False)]


@given(st.lists(st.integers(0, 3), max_size=60))
def test_chances_stay_normalised(tokens: list[int]) -> None:
    blended = read(tokens).blended(SAID, tokens)
    assert sum(p.probability for p in blended) == pytest.approx(1)
    assert sum(p.q for p in blended) <= 1 + 1e-9


def test_old_text_is_forgotten() -> None:
    tail = [100 + i for i in range(WINDOW + LONGEST)]
    cache = read([1, 2, 3, 9, *tail])
    assert cache.blended(SAID, [1, 2, 3]) == SAID
