"""The 1:10 rule: what it picks by weights and by files, when it held, and what is said of it."""

from __future__ import annotations

import pytest

from outrider.harness.drafter_ranking.rule import Contender, judge

STREAMING_MS = 40.0


def contender(name: str, weights: float | None, file: float | None, ms: float) -> Contender:
    return Contender(name, weights, file, ms)


def test_the_pick_is_nearest_to_a_tenth_where_half_and_double_are_equally_far() -> None:
    verdict = judge([contender("a", 4.0, 4.0, 20.0), contender("b", 24.0, 24.0, 30.0)], STREAMING_MS)
    assert verdict.pick is not None
    assert verdict.pick.name == "b", "1:24 is a factor of 2.4 away, 1:4 one of 2.5"


def test_files_decide_between_quantisations_of_the_same_weights() -> None:
    verdict = judge([contender("q8", 3.0, 2.0, 20.0), contender("q2", 3.0, 4.0, 25.0)], STREAMING_MS)
    assert verdict.pick is not None
    assert verdict.pick.name == "q2"
    assert verdict.fastest.name == "q8"


def test_files_stand_in_where_weights_are_not_known() -> None:
    verdict = judge([contender("a", None, 10.0, 20.0), contender("b", 4.0, 10.0, 30.0)], STREAMING_MS)
    assert verdict.pick is not None
    assert verdict.pick.name == "a"
    assert verdict.pick.ratio == 10.0


@pytest.mark.parametrize(
    ("pick_ms", "held", "words"),
    [
        (20.0, True, "and it is fastest here with 20.0 ms a token: the rule held."),
        (20.5, True, "its choice takes 2% longer, which is no difference: the rule held."),
        (25.0, False, "the rule did not hold, its choice takes 25% longer."),
    ],
)
def test_the_rule_holds_unless_another_is_faster_by_more_than_noise(pick_ms: float, held: bool, words: str) -> None:
    other_ms = 20.0 if pick_ms > 20.0 else 22.0
    verdict = judge([contender("tenth", 10.0, 9.0, pick_ms), contender("third", 3.0, 3.0, other_ms)], STREAMING_MS)
    assert verdict.held is held
    assert verdict.slower_by == pytest.approx(pick_ms / 20.0 - 1)
    assert verdict.sentence.startswith("The 1:10 rule would pick tenth (1:10.0)")
    assert verdict.sentence.endswith(words)


def test_a_pick_far_from_a_tenth_is_called_the_nearest_there_is() -> None:
    contenders = [contender("third", 3.0, 3.0, 20.0), contender("half", 2.0, 2.0, 22.0)]
    verdict = judge(contenders, STREAMING_MS)
    assert not verdict.is_near
    assert "pick third (1:3.0, the nearest there is); it is fastest here with 20.0 ms a token." in verdict.sentence
    assert verdict.held is None, "what is no tenth says nothing of a tenth"
    assert "does not put the rule to the test" in verdict.sentence
    other = judge([contender("third", 3.0, 3.0, 25.0), contender("half", 2.0, 2.0, 20.0)], STREAMING_MS)
    assert other.held is None
    assert other.slower_by == pytest.approx(0.25)
    assert "half is fastest here with 20.0 ms a token, its choice takes 25% longer." in other.sentence
    assert judge([contender("fifth", 5.0, 5.0, 20.0)], STREAMING_MS).is_near


def test_nothing_is_concluded_from_one_candidate_or_from_unknown_sizes() -> None:
    alone = judge([contender("a", 10.0, 10.0, 20.0)], STREAMING_MS)
    assert alone.held is None
    assert "the only one that can draft, so the rule is not put to the test" in alone.sentence
    unknown = judge([contender("a", None, None, 20.0), contender("b", None, None, 30.0)], STREAMING_MS)
    assert (unknown.pick, unknown.held, unknown.slower_by, unknown.is_near) == (None, None, None, False)
    assert "picks none" in unknown.sentence
    assert "a is fastest here with 20.0 ms" in unknown.sentence


@pytest.mark.parametrize(("ms", "worth"), [(38.0, True), (39.5, False), (44.0, False)])
def test_it_is_said_where_no_candidate_is_worth_drafting_with(ms: float, worth: bool) -> None:
    verdict = judge([contender("a", 10.0, 10.0, ms)], STREAMING_MS)
    assert ("plain streaming takes 40.0 ms" in verdict.sentence) is not worth
