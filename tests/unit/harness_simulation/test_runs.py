"""Runs against times worked out by hand, for the product and for each baseline."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from outrider.harness.links import Cut, LinkProfile
from outrider.harness.simulation.colocated import run_colocated
from outrider.harness.simulation.draft_only import run_draft_only
from outrider.harness.simulation.measures import measures
from outrider.harness.simulation.scenario import Scenario
from outrider.harness.simulation.simulate import simulate
from outrider.harness.simulation.virtual_run import run_virtual
from unit.harness_simulation.setups import PASS_MS, STEP_MS, make_setup


@pytest.mark.parametrize("rtt_ms", [0, 20, 300])
def test_streaming_takes_one_pass_a_token_and_one_round_trip_an_answer(rtt_ms: float) -> None:
    result = measures(run_virtual(make_setup(rtt_ms=rtt_ms, drafter="none", pace="eager")))
    assert result["ms_per_token"] == PASS_MS
    assert result["gap_ms"] == {"p50": PASS_MS, "p95": PASS_MS, "p99": PASS_MS}
    # The pass that reads the prompt gives the first token.
    assert result["ttft_ms"] == rtt_ms + PASS_MS
    assert result["passes_per_token"] == 1.0
    assert result["alpha"] is None


def test_an_answer_goes_on_after_a_cut_which_is_in_its_gaps() -> None:
    setup = make_setup(rtt_ms=20, drafter="none", pace="eager", answers=1)
    cut = Cut(at_s=1.0, edge_notice_ms=500, cloud_notice_ms=500)
    whole, broken = run_virtual(setup), run_virtual(replace(setup, link=LinkProfile.of_rtt(20, cuts=(cut,))))
    [before], [after] = whole.answers, broken.answers
    assert after.token_count == before.token_count
    assert (before.stats.streams, after.stats.streams) == (1, 2)
    gaps_s = [later - sooner for (sooner, _), (later, _) in pairwise(after.updates)]
    assert [gap_s for gap_s in gaps_s if gap_s > 0.1] == [pytest.approx(0.5 + 0.02, abs=2 * PASS_MS / 1000)]


@pytest.mark.parametrize("gamma", [1, 4, 7])
def test_waiting_for_a_perfect_drafter_takes_drafts_a_round_trip_and_a_pass_a_round(gamma: int) -> None:
    rtt_ms, rounds = 20.0, 5
    setup = make_setup(1.0, rtt_ms=rtt_ms, gamma=gamma, tokens=rounds * (gamma + 1))
    result = measures(run_virtual(setup))
    round_ms = gamma * STEP_MS + rtt_ms + PASS_MS
    assert result["ms_per_token"] == pytest.approx(round_ms / (gamma + 1), abs=1e-6)
    assert result["accepted_histogram"] == [0] * gamma + [2 * rounds]
    assert result["draft_ms_wasted_per_token"] == 0.0


def test_waiting_for_a_drafter_that_is_always_wrong_wastes_all_it_drafts() -> None:
    setup = make_setup(0.0, gamma=3, tokens=20)
    result = measures(run_virtual(setup))
    assert result["ms_per_token"] == pytest.approx(3 * STEP_MS + 20 + PASS_MS, rel=0.1)
    assert result["alpha"] == 0.0
    # The last tokens of an answer are drafted for less, the very last not at all.
    assert 2.5 * STEP_MS < result["draft_ms_wasted_per_token"] <= 3 * STEP_MS


@pytest.mark.parametrize("gamma", [1, 5])
@pytest.mark.parametrize("rtt_ms", [0, 100])
def test_colocated_speculation_pays_its_drafts_on_the_accelerator_and_no_round_trips(gamma: int, rtt_ms: float) -> None:
    rounds = 6
    # The first token comes with the pass that reads the prompt.
    tokens = 1 + rounds * (gamma + 1)
    setup = make_setup(1.0, rtt_ms=rtt_ms, tokens=tokens)
    result = measures(run_colocated(setup, gamma))
    round_ms = gamma * 2.5 + PASS_MS
    assert result["ttft_ms"] == pytest.approx(rtt_ms + PASS_MS)
    assert result["gap_ms"]["p50"] == pytest.approx(round_ms)
    assert result["ms_per_token"] == pytest.approx(round_ms / (gamma + 1), abs=1e-6)
    assert result["accepted_histogram"] == [2] + [0] * (gamma - 1) + [2 * rounds]
    whole_ms = rounds * round_ms + PASS_MS
    assert result["accelerator_ms_per_token"] == pytest.approx(whole_ms / tokens, abs=1e-6)
    assert result["target_ms_per_token"] == pytest.approx((whole_ms - rounds * gamma * 2.5) / tokens, abs=1e-6)


def test_colocated_speculation_may_leave_its_drafter_out() -> None:
    setup = make_setup(0.0, tokens=40)
    result = simulate(Scenario(baselines=("colocated",)), setup)["baselines"]["colocated"]
    assert result["settings"]["gamma"] == 0
    assert result["ms_per_token"] == PASS_MS


def test_colocated_speculation_gets_the_acceptance_of_the_split_one() -> None:
    setup = make_setup(0.7, answers=8, tokens=120, gamma=4)
    split, together = measures(run_virtual(setup)), measures(run_colocated(setup, 4))
    assert split["tokens"] == together["tokens"]
    # Rounds begin at other tokens, as the prompt's pass yields one.
    for key in ("alpha", "passes_per_token"):
        assert together[key] == pytest.approx(split[key], rel=0.06), key


def test_the_draft_model_alone_writes_a_token_a_step_without_cloud_or_link() -> None:
    result = measures(run_draft_only(make_setup(rtt_ms=600)))
    assert result["ms_per_token"] == STEP_MS
    assert result["ttft_ms"] == STEP_MS
    assert result["passes_per_token"] == 0.0
    assert result["tokens_per_pass"] is None
    assert result["bytes_up_per_token"] == 0.0


def test_sessions_share_passes_and_keep_the_load_until_all_have_done_their_share() -> None:
    setup = make_setup(answers=8, tokens=100, sessions=4, drafter="none", pace="eager", session_ms=1.0)
    run = run_virtual(setup)
    result = measures(run)
    assert result["answers"] == 8
    # While four decode at once, a pass takes 43 ms and yields four tokens.
    assert PASS_MS + 2 < result["ms_per_token"] <= PASS_MS + 3
    assert result["accelerator_ms_per_token"] == pytest.approx(43 / 4, rel=0.1)
    last_quota = max(time_s for answer in run.answers for time_s, _ in answer.updates)
    in_the_middle = [record for record in run.passes if 1.0 < record.began_s < last_quota - 0.2]
    assert min(record.sessions for record in in_the_middle) >= 3
    assert run.other_tokens > 0


def test_every_session_gets_prompts_and_every_prompt_is_answered() -> None:
    for answers, sessions in ((5, 2), (2, 5), (4, 4)):
        run = run_virtual(make_setup(answers=answers, sessions=sessions, tokens=8))
        assert {answer.prompt_id for answer in run.answers} == {f"synthetic-{n + 1}" for n in range(answers)}
        assert len(run.answers) == max(answers, sessions), "each once, or one of each session"


def test_stop_and_wait_and_colocated_are_given_the_fastest_gamma() -> None:
    setup = make_setup(0.8, answers=3)
    result = simulate(Scenario(baselines=("stop_and_wait", "colocated")), setup)["baselines"]
    for gamma in range(1, 13):
        waiting = measures(run_virtual(setup.with_drafting(gamma=gamma)))
        if gamma in (1, 2, 3, 4, 5, 6, 8, 10, 12):
            assert result["stop_and_wait"]["ms_per_token"] <= waiting["ms_per_token"]
            assert result["colocated"]["ms_per_token"] <= measures(run_colocated(setup, gamma))["ms_per_token"]
    best = result["stop_and_wait"]["settings"]["gamma"]
    assert (
        result["stop_and_wait"]["ms_per_token"]
        == measures(run_virtual(setup.with_drafting(gamma=best)))["ms_per_token"]
    )


def test_each_baseline_has_the_keys_of_the_product() -> None:
    result = simulate(Scenario(), make_setup(answers=1, tokens=12))
    keys = set(result) - {"baselines"}
    assert set(result["baselines"]) == set(Scenario().baselines)
    for name, baseline in result["baselines"].items():
        assert set(baseline) == keys, name


def test_streaming_is_one_session_alone_and_batched_is_all_of_them() -> None:
    setup = make_setup(answers=4, sessions=4, session_ms=5.0)
    result = simulate(Scenario(baselines=("streaming", "batched")), setup)["baselines"]
    assert result["streaming"]["sessions"] == 1
    assert result["streaming"]["ms_per_token"] == PASS_MS
    assert result["batched"]["sessions"] == 4
    assert result["batched"]["ms_per_token"] > PASS_MS + 10
