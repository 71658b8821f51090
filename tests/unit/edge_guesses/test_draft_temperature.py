"""Another draft temperature is what the rule itself would have said at it; the best one is found from answers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.edge.drafters.base import Proposal, as_proposals
from outrider.edge.guesses.draft_temperature import (
    GRID,
    KL_STEP,
    KL_WINDOW,
    KlTemperature,
    TunedTemperature,
    first_choice,
    make_draft_temperature,
    parse_draft_temperature,
    reheated,
)
from outrider.shared.errors import OutriderError, Reason
from outrider.shared.sampling.choose import Chooser
from outrider.shared.sampling.options import Sampling

SIZE = 40


def proposals_of(logits: np.ndarray, seed: int, temperature: float = 1.0, **options: float) -> list[Proposal]:
    """What a drafter with these logits says of the first position, everything it could say."""
    sampling = Sampling(temperature=temperature, **options)
    return as_proposals(Chooser(sampling, seed, (1,), SIZE).rank(logits, (), SIZE), SIZE)


def row(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 2, SIZE).astype(np.float32)


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 10_000), heat=st.sampled_from(GRID))
def test_reheating_says_what_the_rule_would_have_said_at_that_temperature(seed: int, heat: float) -> None:
    found = reheated(proposals_of(row(seed), seed), heat)
    expected = proposals_of(row(seed), seed, temperature=heat)
    assert [p.token for p in found] == [p.token for p in expected]
    assert found[0].token == first_choice(proposals_of(row(seed), seed), heat)
    assert [p.probability for p in found[:4]] == pytest.approx([p.probability for p in expected[:4]], rel=1e-3)
    assert [p.q for p in found] == pytest.approx([p.q for p in expected], rel=0.02, abs=1e-6)


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 10_000), heat=st.sampled_from(GRID))
def test_what_the_answers_options_rule_out_stays_behind(seed: int, heat: float) -> None:
    found = reheated(proposals_of(row(seed), seed, top_k=3), heat)
    ruled_out = [proposal.q <= 0 for proposal in found]
    assert ruled_out == sorted(ruled_out)
    assert ruled_out.count(False) == 3


def test_without_noise_no_temperature_changes_a_guess() -> None:
    cold = proposals_of(row(1), 1, temperature=0.0)
    for heat in GRID:
        assert [p.token for p in reheated(cold, heat)] == [p.token for p in cold]


@pytest.mark.parametrize(("target_heat", "expected"), [(0.6, lambda t: t < 0.9), (1.35, lambda t: t > 1.1)])
def test_the_temperature_of_the_target_is_found(target_heat: float, expected: object) -> None:
    tuned = TunedTemperature()
    for seed in range(600):
        target = proposals_of(row(seed), seed, temperature=target_heat)
        tuned.observe(proposals_of(row(seed), seed), target[0].token)
    assert callable(expected)
    assert expected(tuned.value), tuned.value


def test_a_drafter_that_agrees_is_left_at_its_own_temperature() -> None:
    tuned = TunedTemperature()
    for seed in range(300):
        said = proposals_of(row(seed), seed)
        tuned.observe(said, said[0].token)
    assert tuned.value == 1.0


def test_the_articles_rule_goes_up_while_both_agree_and_down_when_they_part() -> None:
    agreeing, parting = KlTemperature(), KlTemperature()
    sure = [Proposal(1, 0.97, 0.97), Proposal(2, 0.03, 0.03)]
    for _ in range(KL_WINDOW):
        agreeing.observe(sure, 1)
        parting.observe(sure, 2)
    assert agreeing.value == pytest.approx(1 + KL_STEP)
    assert parting.value == pytest.approx(1 - KL_STEP)


@pytest.mark.parametrize("text", ["", "hot", "0", "-1", "nan", "inf", "5"])
def test_other_values_are_refused(text: str) -> None:
    with pytest.raises(OutriderError) as caught:
        parse_draft_temperature(text)
    assert caught.value.reason is Reason.USAGE


def test_a_number_stays_what_it_is() -> None:
    fixed = make_draft_temperature(parse_draft_temperature("1.2"))
    for seed in range(50):
        fixed.observe(proposals_of(row(seed), seed), 0)
    assert fixed.value == 1.2
