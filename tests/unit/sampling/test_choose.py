"""The rule: what it chooses, how often, how clearly, and what a drafter ranks under it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.shared.errors import OutriderError, Reason
from outrider.shared.sampling.choose import Chooser
from outrider.shared.sampling.noise import NoiseRows, gumbel_row
from outrider.shared.sampling.options import Sampling
from outrider.shared.sampling.processors import process

Row = npt.NDArray[np.float32]
NOTHING = np.empty(0, dtype=np.int64)
SIZE = 151_936

OPTIONS: list[dict[str, Any]] = [
    {},
    {"temperature": 1.0},
    {"temperature": 0.7, "top_p": 0.8},
    {"temperature": 1.0, "top_k": 50},
    {"temperature": 1.3, "top_k": 40, "top_p": 0.9, "min_p": 0.05},
    {"temperature": 1.0, "min_p": 0.02},
    {"temperature": 30.0, "top_p": 0.9},
    {"temperature": 0.8, "repetition_penalty": 1.3, "frequency_penalty": 0.3, "presence_penalty": 0.2},
    {"repetition_penalty": 1.3, "logit_bias": {3: -100.0, 5: 2.0}},
]


def make_chooser(seed: int = 1, size: int = SIZE, prompt: Any = (1, 2), **options: Any) -> Chooser:
    return Chooser(Sampling(**options), seed, prompt, size, NoiseRows())


def make_row(seed: int, size: int = SIZE) -> Row:
    random = np.random.default_rng(seed)
    row = (random.normal(size=size) * 2).astype(np.float32)
    row[random.integers(size, size=8)] += random.uniform(5, 12, size=8).astype(np.float32)
    return row


def scores_by_definition(
    row: Row, size: int, sampling: Sampling, seed: int, prompt: Any, output: Any
) -> dict[int, float]:
    found = process(row, size, sampling, np.asarray(prompt, np.int64), np.asarray(output, np.int64))
    noise = gumbel_row(seed, len(prompt) + len(output), size)
    return {int(token): float(log_p + noise[token]) for token, log_p in zip(found.ids, found.log_p, strict=True)}


@pytest.mark.parametrize("options", OPTIONS)
def test_choice_is_the_argmax_of_log_p_plus_noise(options: dict[str, Any]) -> None:
    sampling = Sampling(**options)
    prompt, output = [4, 5, 5], [7, 7, 5]
    for seed in range(6):
        row = make_row(seed)
        choice = make_chooser(seed, prompt=prompt, **options).choose(row, output)
        scores = scores_by_definition(row, SIZE, sampling, seed, prompt, output)
        assert choice.token == max(scores, key=lambda token: scores[token])
        if sampling.temperature > 0:
            best, second = sorted([*scores.values(), -np.inf], reverse=True)[:2]
            assert math.isclose(choice.gap, best - second, rel_tol=1e-9, abs_tol=1e-9)


def test_greedy_takes_the_lowest_of_equals_and_reports_the_gap_of_logits() -> None:
    chooser = make_chooser(size=5)
    for logits, token, gap in (
        ([1, 9, 2, 9, 0], 1, 0.0),
        ([9, 1, 2, 4, 0], 0, 5.0),
        ([1, 2, 4, 0, 9], 4, 5.0),
        ([-np.inf, -np.inf, 3, -np.inf, -np.inf], 2, np.inf),
    ):
        choice = chooser.choose(np.array(logits, dtype=np.float32), ())
        assert (choice.token, choice.gap) == (token, gap)
    assert make_chooser(size=1, prompt=(0,)).choose(np.zeros(3, np.float32), ()).gap == np.inf


@pytest.mark.parametrize("options", OPTIONS)
def test_rank_starts_with_the_choice_and_is_distinct_and_ordered(options: dict[str, Any]) -> None:
    sampling = Sampling(**options)
    prompt, output = [4, 5, 5], [7, 7, 5]
    for seed in range(4):
        row = make_row(seed + 50)
        chooser = make_chooser(seed, prompt=prompt, **options)
        ranked = chooser.rank(row, output, 8)
        choice = chooser.choose(row, output)
        assert (ranked[0].token, ranked[0].margin) == (choice.token, choice.gap)
        assert len({candidate.token for candidate in ranked}) == 8
        assert chooser.rank(row, output, 1) == ranked[:1]
        assert [c.token for c in chooser.rank(row, output, 3)] == [c.token for c in ranked[:3]]
        margins = [candidate.margin for candidate in ranked[1:] if candidate.probability > 0]
        assert margins == sorted(margins, reverse=True)
        if sampling.temperature > 0:
            found = process(row, SIZE, sampling, np.array(prompt), np.array(output))
            scores = scores_by_definition(row, SIZE, sampling, seed, prompt, output)
            inside = sorted(scores, key=lambda token: -scores[token])[:8]
            assert [c.token for c in ranked][: len(inside)] == inside
            p = dict(zip(found.ids.tolist(), np.exp(found.log_p).tolist(), strict=True))
            for candidate in ranked:
                assert math.isclose(candidate.probability, p.get(candidate.token, 0.0), rel_tol=1e-4)


def test_rank_beyond_the_support_goes_on_with_what_truncation_dropped() -> None:
    sampling = Sampling(temperature=1.0, top_k=2)
    for seed in range(20):
        row = make_row(seed)
        ranked = make_chooser(seed, top_k=2, temperature=1.0).rank(row, (), 6)
        assert [c.probability > 0 for c in ranked] == [True, True, False, False, False, False]
        noise = gumbel_row(seed, 2, SIZE).astype(np.float64)
        scores = row.astype(np.float64) - float(row.max()) + noise
        inside = process(row, SIZE, sampling, NOTHING, NOTHING).ids
        best = float(scores[inside].max())
        scores[inside] = -np.inf
        order = np.argsort(-scores, kind="stable")[:4]
        assert [c.token for c in ranked[2:]] == order.tolist()
        np.testing.assert_allclose([c.margin for c in ranked[2:]], scores[order] - best, atol=1e-9)


def test_rank_beyond_the_support_still_obeys_the_bias() -> None:
    row = make_row(3, 1000)
    banned = int(row.argsort()[-2])
    cases: tuple[dict[str, Any], ...] = ({"top_k": 1, "temperature": 0.5}, {})
    for options in cases:
        ranked = make_chooser(size=1000, logit_bias={banned: -100.0}, **options).rank(row, (), 50)
        assert len(ranked) == 50
        assert banned not in [candidate.token for candidate in ranked]


def test_rank_of_a_single_allowed_token_has_an_infinite_margin() -> None:
    ranked = make_chooser(temperature=1.0, top_k=1).rank(make_row(1), (), 3)
    assert ranked[0].margin == np.inf
    assert math.isclose(ranked[0].probability, 1.0, rel_tol=1e-4)


def test_greedy_rank_gives_the_softmax_and_distances_of_logits() -> None:
    ranked = make_chooser(size=4).rank(np.array([1, 3, 2, 3, 99], dtype=np.float32), (), 9)
    assert [c.token for c in ranked] == [1, 3, 2, 0]
    assert [c.margin for c in ranked] == [0.0, 0.0, -1.0, -2.0]
    weights = np.exp([3.0, 3.0, 2.0, 1.0])
    np.testing.assert_allclose([c.probability for c in ranked], weights / weights.sum(), rtol=1e-4)


def test_rank_never_proposes_an_impossible_token() -> None:
    row = np.full(300, -np.inf, dtype=np.float32)
    row[[10, 200]] = [1, 2]
    cases: tuple[dict[str, Any], ...] = ({}, {"temperature": 1.0}, {"temperature": 1.0, "top_k": 1})
    for options in cases:
        assert sorted(c.token for c in make_chooser(size=300, **options).rank(row, (), 5)) == [10, 200]


@pytest.mark.parametrize(
    "options", [{"temperature": 1.0}, {"temperature": 0.7, "top_p": 0.9}, {"temperature": 2.0, "top_k": 6}]
)
@pytest.mark.parametrize("over", ["seeds", "positions"])
def test_frequencies_follow_p(options: dict[str, Any], over: str) -> None:
    """Chi-square at odds of 1e-6 a case; seeds and positions are fixed, so a pass stays a pass."""
    row = np.log(np.array([0.3, 0.2, 0.05, 0.15, 0.1, 0.08, 0.07, 0.05], dtype=np.float32))
    found = process(row, 8, Sampling(**options), NOTHING, NOTHING)
    draws = 4000
    counts = np.zeros(8)
    rows = NoiseRows()
    for number in range(draws):
        seed, prompt = (number, (1,)) if over == "seeds" else (9, range(number))
        prompt_ids = [1] * len(prompt)
        counts[Chooser(Sampling(**options), seed, prompt_ids[:1], 8, rows).choose(row, prompt_ids[1:]).token] += 1
    expected = np.exp(found.log_p) * draws
    assert counts.sum() == counts[found.ids].sum() == draws
    chi_square = float(((counts[found.ids] - expected) ** 2 / expected).sum())
    critical = {4: 30.66, 5: 33.38, 6: 35.89, 7: 38.26, 8: 40.52}
    assert len(found.ids) in critical
    assert chi_square < critical[len(found.ids)]


def test_other_seed_or_position_gives_other_tokens() -> None:
    row = np.zeros(SIZE, dtype=np.float32)
    same = [make_chooser(5, temperature=1.0).choose(row, ()).token for _ in range(2)]
    assert same[0] == same[1]
    by_seed = {make_chooser(seed, temperature=1.0).choose(row, ()).token for seed in range(20)}
    chooser = make_chooser(5, temperature=1.0)
    by_position = {chooser.choose(row, [0] * length).token for length in range(20)}
    # 20 draws of 151,936: some pair alike with odds of 0.13%, and the inputs are fixed.
    assert len(by_seed) == len(by_position) == 20


def test_position_counts_prompt_and_output() -> None:
    row = make_row(8)
    one = Chooser(Sampling(temperature=3.0), 5, [1, 2, 3], SIZE, NoiseRows()).choose(row, [4])
    other = Chooser(Sampling(temperature=3.0), 5, [1], SIZE, NoiseRows()).choose(row, [2, 3, 4])
    assert one == other


@pytest.mark.parametrize("options", OPTIONS)
def test_answers_do_not_depend_on_what_was_asked_before(options: dict[str, Any]) -> None:
    rows = [make_row(n, 5000) for n in range(4)]
    outputs = [[], [7], [7, 7], [7, 7, 9]]
    fresh = [make_chooser(3, 5000, **options).choose(row, out) for row, out in zip(rows, outputs, strict=True)]
    used = make_chooser(3, 5000, **options)
    for index in (3, 0, 2, 2, 1, 3, 0):
        used.rank(rows[index], outputs[index], 3)
        assert used.choose(rows[index], outputs[index]) == fresh[index]


@pytest.mark.parametrize("options", OPTIONS)
def test_padded_tail_is_never_chosen_or_ranked(options: dict[str, Any]) -> None:
    size = 1000
    for tail in (1e9, np.inf, np.nan, -np.inf):
        row = np.concatenate((make_row(2, size), np.full(24, tail, dtype=np.float32)))
        for seed in range(10):
            chooser = make_chooser(seed, size, **options)
            assert chooser.choose(row, [7]).token < size
            assert all(c.token < size for c in chooser.rank(row, [7], 20))
            assert chooser.choose(row, [7]) == chooser.choose(row[:size], [7])


@pytest.mark.parametrize("options", [{}, {"temperature": 1.0}, {"temperature": 1.5, "top_p": 0.95}])
def test_bias_of_minus_100_keeps_an_id_out_at_every_position(options: dict[str, Any]) -> None:
    row = make_row(6, 1000)
    favourite = int(row.argmax())
    free = make_chooser(1, 1000, **options)
    barred = make_chooser(1, 1000, logit_bias={favourite: -100.0}, **options)
    output: list[int] = []
    seen_free = 0
    for _ in range(300):
        seen_free += free.choose(row, output).token == favourite
        token = barred.choose(row, output).token
        assert token != favourite
        output.append(token)
    assert seen_free > 30


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1))
def test_a_tiny_temperature_chooses_the_argmax(seed: int, row_seed: int) -> None:
    row = np.random.default_rng(row_seed).normal(size=500).astype(np.float32)
    greedy = make_chooser(seed, 500).choose(row, ())
    assert make_chooser(seed, 500, temperature=1e-9).choose(row, ()).token == greedy.token


def test_a_broken_row_is_refused_by_choose_and_rank() -> None:
    for options in OPTIONS:
        chooser = make_chooser(size=6, prompt=(1,), **{**options, "logit_bias": {}})
        for bad in ([1, np.nan, 2, 3, 4, 5], [-np.inf] * 6, [0, np.inf, 1, 2, 3, 4]):
            row = np.array(bad, dtype=np.float32)
            with pytest.raises(OutriderError) as caught:
                chooser.choose(row, ())
            assert caught.value.reason is Reason.INTERNAL
            with pytest.raises(OutriderError) as caught:
                chooser.rank(row, (), 2)
            assert caught.value.reason is Reason.INTERNAL


@pytest.mark.parametrize("wrong", [-1, 6, 2**31 - 1])
def test_ids_outside_the_vocabulary_are_refused_before_the_first_token(wrong: int) -> None:
    for arguments in ({"prompt": (0, wrong)}, {"prompt": (0,), "logit_bias": {wrong: 1.0}}):
        with pytest.raises(OutriderError) as caught:
            make_chooser(size=6, **arguments)
        assert caught.value.reason is Reason.TOKEN_OUT_OF_RANGE


def test_the_callers_logits_are_not_changed() -> None:
    for options in OPTIONS:
        row = make_row(1)
        before = row.copy()
        row.flags.writeable = False
        chooser = make_chooser(**options)
        chooser.choose(row, [3])
        chooser.rank(row, [3], 4)
        assert np.array_equal(row, before)
