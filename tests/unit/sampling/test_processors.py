"""The processed distribution against a slow reference, and its edges one by one."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from outrider.shared.errors import OutriderError, Reason
from outrider.shared.sampling.noise import scaled_logits
from outrider.shared.sampling.options import Sampling
from outrider.shared.sampling.processors import (
    MASS_ERROR,
    Distribution,
    estimate_mass,
    process,
    top_k_ids,
    top_p_ids,
)

Row = npt.NDArray[np.float32]
NOTHING = np.empty(0, dtype=np.int64)


def run(logits: Any, size: int | None = None, prompt: Any = (), output: Any = (), **options: Any) -> Distribution:
    row = np.asarray(logits, dtype=np.float32)
    prompt_ids, output_ids = (np.asarray(ids, dtype=np.int64) for ids in (prompt, output))
    options.setdefault("temperature", 1.0)
    return process(row, len(row) if size is None else size, Sampling(**options), prompt_ids, output_ids)


def reference(
    logits: list[float], sampling: Sampling, prompt: list[int], output: list[int]
) -> tuple[dict[int, float], float]:
    """Ids → p step by step, and how near the top-p decision was to a coin toss."""
    row = [float(np.float32(value)) for value in logits]
    counts = Counter(output)
    for token in set(prompt) | set(output):
        factor = sampling.repetition_penalty
        row[token] = float(np.float32(row[token] / factor if row[token] > 0 else row[token] * factor))
    for token, count in counts.items():
        row[token] = float(np.float32(row[token] - sampling.frequency_penalty * count - sampling.presence_penalty))
    for token, bias in sampling.logit_bias.items():
        row[token] = float(np.float32(row[token] + bias))
    best = max(row)
    ranked = sorted((token for token in range(len(row)) if row[token] > -math.inf), key=lambda t: (-row[t], t))
    if sampling.temperature == 0:
        return {ranked[0]: 1.0}, 1.0
    weight = {token: math.exp((row[token] - best) / sampling.temperature) for token in ranked}
    if sampling.top_k:
        ranked = ranked[: sampling.top_k]
    doubt = 1.0
    if sampling.top_p < 1:
        mass = math.fsum(weight[token] for token in ranked)
        kept: list[int] = []
        for token in ranked:
            kept.append(token)
            share = math.fsum(weight[t] for t in kept) / mass
            doubt = min(doubt, abs(share - sampling.top_p))
            if share >= sampling.top_p:
                break
        ranked = kept
    doubt = min([doubt, *(abs(weight[t] - sampling.min_p) for t in ranked)]) if sampling.min_p > 0 else doubt
    ranked = [token for token in ranked if weight[token] >= sampling.min_p]
    total = math.fsum(weight[token] for token in ranked)
    return {token: weight[token] / total for token in ranked}, doubt


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[float], Sampling, list[int], list[int]]:
    size = draw(st.integers(1, 400))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    logits = random.normal(size=size) * draw(st.sampled_from([0.1, 1.0, 5.0]))
    if draw(st.booleans()):  # ties
        logits = np.round(logits * 2) / 2
    if draw(st.booleans()):
        logits[random.random(size) < 0.3] = -np.inf
        logits[random.integers(size)] = 1.0
    ids = st.lists(st.integers(0, size - 1), max_size=12)
    sampling = Sampling(
        temperature=draw(st.sampled_from([0.0, 1e-6, 0.3, 0.7, 1.0, 2.0, 50.0])),
        top_k=draw(st.sampled_from([0, 1, 2, 5, 50, 399, 1000])),
        top_p=draw(st.sampled_from([1.0, 0.999, 0.8, 0.31, 1e-9])),
        min_p=draw(st.sampled_from([0.0, 0.0513, 0.417, 1e-12])),
        repetition_penalty=draw(st.sampled_from([1.0, 1.3, 0.8])),
        frequency_penalty=draw(st.sampled_from([0.0, 0.4, -0.7])),
        presence_penalty=draw(st.sampled_from([0.0, 1.1, -0.2])),
        logit_bias=draw(st.dictionaries(st.integers(0, size - 1), st.sampled_from([-100.0, 0.3, 5.0]), max_size=4)),
    )
    return logits.tolist(), sampling, draw(ids), draw(ids)


@settings(max_examples=400, deadline=None)
@given(cases())
def test_equals_the_slow_reference(case: tuple[list[float], Sampling, list[int], list[int]]) -> None:
    logits, sampling, prompt, output = case
    expected, doubt = reference(logits, sampling, prompt, output)
    assume(doubt > 1e-9)  # exact boundaries have their own tests
    row = np.array([*logits, np.nan, np.inf], dtype=np.float32)  # a padded tail of the worst kind
    before = row.copy()
    found = process(row, len(logits), sampling, np.array(prompt, np.int64), np.array(output, np.int64))
    assert found.ids.dtype == np.int64
    assert found.log_p.dtype == np.float64
    assert found.ids.tolist() == sorted(expected)
    np.testing.assert_allclose(np.exp(found.log_p), [expected[t] for t in sorted(expected)], rtol=1e-9, atol=0.01)
    assert math.isclose(float(np.exp(found.log_p).sum()), 1.0, rel_tol=1e-12)
    assert np.array_equal(row, before, equal_nan=True)


def test_large_rows_equal_a_full_sort() -> None:
    random = np.random.default_rng(4)
    for size in (151_936, 151_665):
        row = np.round(random.normal(size=size) * 3, 2).astype(np.float32)
        order = np.argsort(-row, kind="stable")
        for count in (1, 2, 50, 500, 5_000, 100_000):
            assert top_k_ids(row, count).tolist() == np.sort(order[:count]).tolist()
        for temperature in (0.3, 1.0, 30.0):
            mass = np.exp(scaled_logits(row[order], float(row.max()), temperature))
            for top_p in (0.01, 0.8, 0.95, 0.9999):
                count = int(np.searchsorted(np.cumsum(mass), top_p * mass.sum())) + 1
                found = top_p_ids(row, float(row.max()), temperature, top_p)
                assert found.tolist() == np.sort(order[:count]).tolist()


def test_mass_estimate_keeps_its_bound() -> None:
    random = np.random.default_rng(5)
    for _ in range(60):
        row = (random.normal(size=20_000) * random.uniform(0, 9) + random.normal() * 1000).astype(np.float32)
        temperature = float(10 ** random.uniform(-3, 2))
        exact = np.exp(scaled_logits(row, float(row.max()), temperature)).sum()
        assert abs(estimate_mass(row, float(row.max()), temperature) / exact - 1) < MASS_ERROR / 10


def test_top_k_ties_keep_the_lowest_ids() -> None:
    assert run([1, 3, 2, 2, 2, 0], top_k=3).ids.tolist() == [1, 2, 3]
    assert run([5, 5, 5, 5], top_k=1).ids.tolist() == [0]


def test_top_k_ties_keep_the_lowest_ids_in_a_long_row() -> None:
    row = np.zeros(40_000, dtype=np.float32)
    row[[7, 30_000]] = 1
    assert top_k_ids(row, 4).tolist() == [0, 1, 7, 30_000]


def test_top_p_on_an_exact_boundary_stops_there() -> None:
    assert run([0, 0, 0, 0], top_p=0.5).ids.tolist() == [0, 1]
    assert run([0, 0, 0, 0], top_p=0.51).ids.tolist() == [0, 1, 2]
    assert run([0, 0, 0, 0], top_p=0.75).ids.tolist() == [0, 1, 2]
    assert run(np.zeros(20_000), top_p=0.25).ids.tolist() == list(range(5_000))


def test_top_p_ties_keep_the_lowest_ids() -> None:
    assert run([0, 2, 1, 1, 1, 1], top_p=0.5).ids.tolist() == [1, 2]


def test_top_p_keeps_at_least_one() -> None:
    assert run([0, 0.1, 0], top_p=1e-12).ids.tolist() == [1]


def test_top_p_is_taken_of_what_top_k_left() -> None:
    logits = np.log([0.4, 0.3, 0.2, 0.1])
    assert run(logits, top_p=0.5).ids.tolist() == [0, 1]
    assert run(logits, top_p=0.5, top_k=2).ids.tolist() == [0]  # 0.4 / 0.7 is enough


def test_min_p_is_relative_to_the_largest_and_keeps_ties() -> None:
    assert run([0, 1, 1, 0.5], min_p=1.0).ids.tolist() == [1, 2]
    assert run(np.log([0.4, 0.1, 0.3, 0.2]), min_p=0.5001).ids.tolist() == [0, 2]
    assert run([3, 3], min_p=1.0).ids.tolist() == [0, 1]


def test_renormalised_probabilities_are_those_of_the_kept() -> None:
    found = run(np.log([0.5, 0.25, 0.125, 0.125]), top_k=2)
    np.testing.assert_allclose(np.exp(found.log_p), [2 / 3, 1 / 3], rtol=1e-6)


def test_temperature_zero_is_argmax_and_the_lowest_id_wins_a_tie() -> None:
    found = run([1, 7, 7, 2], temperature=0, top_k=3, top_p=0.5)
    assert (found.ids.tolist(), found.log_p.tolist()) == ([1], [0.0])


def test_a_tiny_temperature_approaches_argmax_without_overflow() -> None:
    row = np.array([3.0e38, -3.0e38, 1, 2.9e38], dtype=np.float32)
    for temperature in (1e-6, 1e-30, 0.01, 5e-324):
        with np.errstate(all="raise", under="ignore"):
            for options in ({}, {"top_p": 0.9}, {"top_k": 2}, {"min_p": 0.1}):
                found = run(row, temperature=temperature, **options)
                assert not np.isnan(found.log_p).any()
                assert found.ids[found.log_p.argmax()] == 0
                assert found.log_p.max() == 0


def test_repetition_penalty_counts_once_over_prompt_and_output() -> None:
    found = run([2, -2, 2, -2, 1], prompt=[0, 1, 1], output=[1, 2, 2], repetition_penalty=2.0)
    expected = np.array([1, -4, 1, -2, 1], dtype=np.float64)
    np.testing.assert_allclose(found.log_p, expected - np.log(np.exp(expected).sum()), rtol=1e-12)


def test_frequency_and_presence_count_the_output_alone() -> None:
    found = run([1, 1, 1], prompt=[2, 2], output=[0, 0, 0, 1], frequency_penalty=0.5, presence_penalty=0.25)
    expected = np.array([1 - 1.75, 1 - 0.75, 1], dtype=np.float64)
    np.testing.assert_allclose(found.log_p, expected - np.log(np.exp(expected).sum()), rtol=1e-12)


def test_bias_comes_after_the_penalties() -> None:
    found = run([2, 0], prompt=[0], repetition_penalty=2.0, logit_bias={0: 4.0})
    assert math.isclose(float(found.log_p[0] - found.log_p[1]), 5.0)  # 2 / 2 + 4, not (2 + 4) / 2


def test_extreme_penalties_and_biases_stay_finite() -> None:
    found = run([1, 2, 3, -np.inf], logit_bias={0: 1e300, 1: -1e300, 3: 1e300})
    assert found.ids.tolist() == [0, 1, 2]
    assert found.log_p[0] == 0
    assert np.isfinite(found.log_p).all()
    found = run([3, 1, -3], output=[0, 2], repetition_penalty=0.01)
    assert not np.isnan(found.log_p).any()
    assert found.log_p[0] == 0


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("bad", [[np.nan, 1, 2], [1, 2, np.nan], [-np.inf] * 3, [1, np.inf, 2]])
def test_a_row_without_meaning_is_refused(bad: list[float], temperature: float) -> None:
    for options in ({}, {"top_k": 1}, {"top_p": 0.5}, {"min_p": 0.5}, {"logit_bias": {0: 1.0}}):
        with pytest.raises(OutriderError) as caught:
            run(bad, temperature=temperature, **options)
        assert caught.value.reason is Reason.INTERNAL


def test_a_row_shorter_than_the_vocabulary_is_refused() -> None:
    with pytest.raises(OutriderError) as caught:
        run([1, 2, 3], size=4)
    assert caught.value.reason is Reason.INTERNAL


@pytest.mark.parametrize("wrong", [-1, 3, 2**31 - 1])
def test_ids_outside_the_vocabulary_are_refused(wrong: int) -> None:
    for arguments in (
        {"prompt": [wrong], "repetition_penalty": 2.0},
        {"output": [0, wrong], "presence_penalty": 1.0},
        {"logit_bias": {wrong: 1.0}},
    ):
        with pytest.raises(OutriderError) as caught:
            run([1, 2, 3, 9, 9], size=3, **arguments)
        assert caught.value.reason is Reason.TOKEN_OUT_OF_RANGE
