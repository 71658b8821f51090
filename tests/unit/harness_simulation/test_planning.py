"""Plans: the verdict is what runs say, in plain words and in numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from outrider.harness.commands.plan import plan_json, plan_text
from outrider.harness.links import LinkProfile
from outrider.harness.profiles import DrafterProfile
from outrider.harness.simulation.measures import measures
from outrider.harness.simulation.planning import LEAST_GAIN, make_plan
from outrider.harness.simulation.virtual_run import run_virtual
from outrider.shared.errors import Reason
from support.refusal import refused
from unit.harness_simulation.setups import PASS_MS, make_setup


def test_a_fast_drafter_close_by_helps_and_the_flags_give_what_is_promised() -> None:
    setup = make_setup(0.8, rtt_ms=20, answers=2, tokens=64)
    plan = make_plan(setup)
    assert plan.helps
    assert plan.streaming["ms_per_token"] == PASS_MS
    again = setup.with_drafting(control=plan.best.control, gamma=plan.best.gamma, pace=plan.best.pace)
    assert measures(run_virtual(again))["ms_per_token"] == plan.best.result["ms_per_token"]
    text = "\n".join(plan_text(plan, setup, price_per_hour=8.0))
    assert f"Splitting helps: {plan.speedup:.2f} times" in text
    assert f"Set: {plan.best.flags}" in text
    assert "a million tokens cost" in text
    price = plan_json(plan, setup, 8.0)["price_per_million_tokens"]["streaming"]
    assert price == pytest.approx(plan.streaming["accelerator_ms_per_token"] / 3.6 * 8, abs=1e-3)


def test_costs_are_compared_with_streaming_to_as_many_at_once() -> None:
    setup = make_setup(0.8, answers=4, sessions=4, tokens=40)
    plan = make_plan(setup)
    prices = plan_json(plan, setup, 8.0)["price_per_million_tokens"]
    assert plan.batched["sessions"] == 4
    assert plan.batched["accelerator_ms_per_token"] < 0.4 * plan.streaming["accelerator_ms_per_token"]
    assert prices["streaming"] == pytest.approx(plan.batched["accelerator_ms_per_token"] / 3.6 * 8, abs=1e-3)
    if plan.cheapest is not None:
        ratio = plan.cheapest.result["accelerator_ms_per_token"] / plan.batched["accelerator_ms_per_token"]
        assert ratio <= 1 / LEAST_GAIN


def test_answers_of_one_update_are_too_short_to_plan_by() -> None:
    with refused(Reason.USAGE, "too short"):
        make_plan(make_setup(0.8, answers=1, tokens=1))


def test_break_even_is_where_the_gain_ends() -> None:
    setup = replace(make_setup(0.6, answers=2, tokens=64), device=DrafterProfile(token_ms=14, prompt_token_ms=14))
    rtt_ms = make_plan(setup).break_even_rtt_ms
    assert rtt_ms is not None
    assert rtt_ms > 0
    near, far = (replace(setup, link=LinkProfile.of_rtt(factor * rtt_ms)) for factor in (0.7, 1.5))
    assert make_plan(near).speedup >= LEAST_GAIN
    assert make_plan(far).speedup < make_plan(near).speedup


def test_a_slow_drafter_does_not_help_and_is_told_so() -> None:
    setup = replace(make_setup(0.7, answers=1), device=DrafterProfile(token_ms=90, prompt_token_ms=0))
    plan = make_plan(setup)
    assert not plan.helps
    assert plan.break_even_rtt_ms == 0.0
    text = "\n".join(plan_text(plan, setup, price_per_hour=None))
    assert "no faster" in text or "does not help" in text
    assert "at no round trip" in text
    assert "Splitting helps" not in text
    assert plan_json(plan, setup, None)["helps"] is False
