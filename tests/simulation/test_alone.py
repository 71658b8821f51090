"""Answers that the drafter goes on with while no verifier can be reached: marked, checked afterwards, taken back where
the target differs.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from outrider.edge.alone import ALONE_AFTER_S
from outrider.edge.recovery import Patience
from outrider.harness.faults.check import check
from outrider.harness.faults.schedule import AnswerPlan, Fault, Kind, Schedule, make_schedule
from outrider.harness.faults.world import Report, play
from outrider.harness.links import LinkProfile
from outrider.harness.tiny_answers import target_alone
from outrider.shared.errors import Reason
from outrider.shared.messages import FinishReason
from outrider.shared.sampling.options import Sampling
from outrider.shared.tiny import END

LENGTH = 60
KILLED_S = 0.5
PLAN = AnswerPlan(
    begin_s=0.0,
    seed=3,
    sampling=Sampling(max_tokens=LENGTH, logit_bias={END: -100.0}),
    control="ratio",
    gamma=None,
    branch=None,
    pace="patient",
    deviations=(0.5,),
    has_lookup=False,
    draft_ms=50.0,
    link=LinkProfile.of_rtt(40),
    patience=Patience(limit_s=4.0),
    leave_after=None,
    falls_back=True,
)


def schedule_of(plan: AnswerPlan, lasts_s: float | None) -> Schedule:
    """One verifier, killed in mid-answer, that comes back after `lasts_s`."""
    kill = Fault(KILLED_S, Kind.KILL, lasts_s=lasts_s)
    return Schedule(1, 1, 2, 40.0, 2.0, 0, (plan,), (kill,))


def checked(schedule: Schedule) -> Report:
    report = play(schedule)
    check(schedule, report)
    return report


def lengths(report: Report) -> list[tuple[float, int, int]]:
    """When how many tokens were committed, and how many shown."""
    entries: list[Any] = [entry for entry in report.log if "commit" in entry]
    return [(at_s, committed, shown) for at_s, _, _, committed, shown in entries]


CONTROLS = [("fixed", 4), ("proportional", 4), ("ratio", None)]


@pytest.mark.parametrize(("control", "gamma"), CONTROLS)
@pytest.mark.parametrize("pace", ["patient", "eager"])
@pytest.mark.parametrize("deviation", [0.0, 0.5, 5.0])
def test_what_was_said_alone_is_checked_and_the_text_is_the_targets_own(
    control: str, gamma: int | None, pace: str, deviation: float
) -> None:
    plan = replace(PLAN, control=control, gamma=gamma, pace=pace, deviations=(deviation,))
    outcome = (report := checked(schedule_of(plan, lasts_s=2.5))).outcomes[0]
    assert outcome.reason is None
    assert outcome.tokens == tuple(target_alone(plan.request())) == outcome.shown
    assert outcome.unverified == 0
    alone = [(at_s, shown - committed) for at_s, committed, shown in lengths(report) if shown > committed]
    assert alone
    assert alone[0][0] >= KILLED_S + ALONE_AFTER_S
    most = max(count for _, count in alone)
    assert most >= 15, "a token each 50 ms, for 1.5 s or more"
    shrinks = [before - after for (_, _, before), (_, _, after) in pairwise(lengths(report))]
    assert (max(shrinks) > 0) == (deviation > 0), "what is right stays, what is wrong is taken back"


def test_a_drafter_whose_guesses_had_ceased_to_pay_goes_on_alone_all_the_same() -> None:
    sampling = Sampling(max_tokens=200, logit_bias={END: -100.0})
    plan = replace(PLAN, pace=None, sampling=sampling, deviations=(5.0,), draft_ms=30.0)
    kill = Fault(7.0, Kind.KILL, lasts_s=2.5)
    schedule = Schedule(1, 1, 2, 40.0, 2.0, 0, (plan,), (kill,))
    report = checked(schedule)
    assert report.outcomes[0].tokens == tuple(target_alone(plan.request()))
    before = max(committed for at_s, committed, _ in lengths(report) if at_s < 7)
    assert 100 < before < 195, "so late that guessing has ended, so early that much is to come"
    assert any(shown > committed for _, committed, shown in lengths(report))


def test_a_verifier_that_is_back_soon_is_waited_for() -> None:
    report = checked(schedule_of(PLAN, lasts_s=0.2))
    assert report.outcomes[0].tokens == tuple(target_alone(PLAN.request()))
    assert all(shown <= committed for _, committed, shown in lengths(report))


@pytest.mark.parametrize("draft_ms", [50.0, 200.0])
def test_without_any_verifier_the_drafter_ends_the_answer_however_long_that_takes(draft_ms: float) -> None:
    """A slow one takes longer than an answer waits for a verifier."""
    plan = replace(PLAN, draft_ms=draft_ms)
    report = checked(schedule_of(plan, lasts_s=None))
    outcome = report.outcomes[0]
    assert (outcome.reason, outcome.finish) == (None, FinishReason.LENGTH)
    assert len(outcome.shown) == LENGTH
    assert outcome.unverified == LENGTH - len(outcome.tokens)
    assert outcome.tokens == tuple(target_alone(plan.request()))[: len(outcome.tokens)]
    entries: list[Any] = report.log
    end_s = max(entry[0] for entry in entries if "end" in entry)
    alone_s = ALONE_AFTER_S + outcome.unverified * draft_ms / 1000
    assert end_s <= KILLED_S + max(alone_s, plan.patience.limit_s) + plan.patience.most_wait_s + 1


def test_a_stop_id_ends_it_too() -> None:
    plan = replace(PLAN, seed=8, sampling=Sampling(max_tokens=LENGTH), deviations=(0.0,))
    whole = tuple(target_alone(plan.request()))
    assert 30 < len(whole) < LENGTH
    outcome = checked(schedule_of(plan, lasts_s=None)).outcomes[0]
    assert (outcome.finish, outcome.shown) == (FinishReason.STOP, whole[:-1])
    assert outcome.unverified > 0


def test_an_end_that_is_all_the_drafter_said_is_no_verified_one() -> None:
    """It says a stop id and nothing before: no token shows that nobody has verified the answer."""
    schedule = make_schedule(22103)
    checked(schedule)
    outcome = play(schedule).outcomes[0]
    assert (outcome.shown, outcome.unverified, outcome.is_unverified) == ((), 0, True)


@pytest.mark.parametrize("change", [{"falls_back": False}, {"deviations": (), "has_lookup": True}])
def test_an_answer_that_may_not_or_cannot_go_on_alone_is_broken_off(change: dict[str, Any]) -> None:
    outcome = checked(schedule_of(replace(PLAN, **change), lasts_s=None)).outcomes[0]
    assert outcome.reason is Reason.VERIFIER_UNREACHABLE
    assert len(outcome.shown) <= len(outcome.tokens) < LENGTH
