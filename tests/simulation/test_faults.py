"""Seeded schedules of what can go wrong, on the virtual clock. See benchmarks/faults.py for many more."""

from __future__ import annotations

from dataclasses import replace

import pytest

from outrider.cloud.session import Session
from outrider.edge.answer import Answer
from outrider.edge.recovery import Patience
from outrider.harness.faults.check import check, find_fault
from outrider.harness.faults.schedule import Fault, Kind, Moment, Schedule, make_schedule
from outrider.harness.faults.world import play
from outrider.shared.messages import Resume

# 459 and 1381 once gave up on a verifier that could be reached.
FOUND = (34, 459, 1381)
PARTS, PART = 12, 50
MUTATED = range(400)


@pytest.mark.parametrize("part", range(PARTS))
def test_every_answer_is_the_targets_own_or_ends_with_an_error_that_explains_itself(part: int) -> None:
    faults = [find_fault(seed) for seed in range(part * PART, (part + 1) * PART)]
    assert not [fault for fault in faults if fault is not None]


@pytest.mark.parametrize("seed", FOUND)
def test_what_was_found_before_stays_mended(seed: int) -> None:
    """As these schedules were then."""
    schedule = make_schedule(seed)
    answers = tuple(replace(answer, falls_back=False) for answer in schedule.answers)
    faults = tuple(fault for fault in schedule.faults if fault.moment is None)
    schedule = replace(schedule, answers=answers, faults=faults)
    check(schedule, play(schedule))


@pytest.mark.parametrize("moment", Moment)
@pytest.mark.parametrize("seed", range(4))
def test_a_verifier_killed_around_a_commit_loses_no_token_and_gives_none_twice(moment: Moment, seed: int) -> None:
    """Of each pass in turn."""
    plan = replace(make_schedule(seed).answers[0], leave_after=None, patience=Patience(limit_s=15.0), falls_back=False)
    for at_s in (0.0, 0.3, 0.7):
        kill = Fault(at_s, Kind.KILL, lasts_s=0.3, moment=moment)
        schedule = Schedule(seed, 1, 2, 40.0, 20.0, 0, (plan,), (kill,))
        report = play(schedule)
        check(schedule, report)
        outcome = report.outcomes[0]
        assert outcome.reason is None
        assert outcome.streams > 1 or at_s > 0


@pytest.mark.slow
@pytest.mark.parametrize("part", range(20))
def test_ten_thousand_schedules(part: int) -> None:
    faults = [find_fault(seed) for seed in range(part * 500, (part + 1) * 500)]
    assert not [fault for fault in faults if fault is not None]


def test_a_seed_repeats_its_run() -> None:
    for seed in range(30):
        schedule = make_schedule(seed)
        assert play(schedule) == play(make_schedule(seed))


def test_another_text_would_be_found() -> None:
    schedule = make_schedule(1)
    report = play(schedule)
    outcome = report.outcomes[0]
    wrong = replace(outcome, tokens=(*outcome.tokens[:-1], outcome.tokens[-1] + 1))
    with pytest.raises(AssertionError):
        check(schedule, replace(report, outcomes=report.outcomes | {0: wrong}))


def _finds() -> bool:
    return any(find_fault(seed) is not None for seed in MUTATED)


def test_a_verifier_that_resumes_any_text_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def knows(self: Session, request: Resume) -> bool:
        return request.committed_length <= self._tree.committed_length

    monkeypatch.setattr(Session, "knows", knows)
    assert _finds()


def test_an_edge_that_keeps_the_ids_of_a_broken_stream_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    make = Answer.__init__

    def keeping(self: Answer, *arguments: object) -> None:
        make(self, *arguments)  # type: ignore[arg-type]
        monkeypatch.setattr(self.tree, "restart_ids", lambda: None)

    monkeypatch.setattr(Answer, "__init__", keeping)
    assert _finds()
