"""What has to hold after every run: each answer's text is the target's own, or a beginning of it and an error that
what went wrong explains.
"""

from __future__ import annotations

from outrider.harness.faults.schedule import Kind, Schedule, make_schedule
from outrider.harness.faults.world import Report, play
from outrider.harness.tiny_answers import target_alone
from outrider.shared.errors import Reason
from outrider.shared.tiny import tiny_vocabulary


def find_fault(seed: int) -> str | None:
    """Run the schedule of `seed`; what is wrong with it, None if nothing is."""
    schedule = make_schedule(seed)
    try:
        check(schedule, play(schedule))
    except Exception as error:
        return f"seed {seed}: {type(error).__name__}: {error}"
    return None


def check(schedule: Schedule, report: Report) -> None:
    """Raises AssertionError for an answer that did not end as it should."""
    expected = [tuple(target_alone(plan.request())) for plan in schedule.answers]
    for index, tokens in report.rivals:
        assert tokens == expected[index][: len(tokens)], f"a second stream of answer {index} was told another text"
    for index, plan in enumerate(schedule.answers):
        outcome, whole = report.outcomes[index], expected[index]
        length = len(outcome.tokens)
        assert outcome.tokens == whole[:length], f"answer {index}: {outcome.tokens}, the target's own: {whole}"
        stop_ids = tiny_vocabulary().stop_ids
        final = tuple(token for token in outcome.tokens if token not in stop_ids)
        verified = outcome.shown[: len(outcome.shown) - outcome.unverified]
        # What ends in the middle of a character is given out when it ends well.
        is_whole = verified == final or (outcome.reason is not None and verified == final[: len(verified)])
        assert is_whole, f"answer {index}: shown as verified {verified}, final {final}"
        if outcome.reason is not None:
            assert not outcome.unverified, f"answer {index} broke off and does not take back what nobody has verified"
            allowed = _allowed(schedule, report, index)
            assert outcome.reason in allowed, f"answer {index}: {outcome.reason.value} after {length} of {len(whole)}"
        elif outcome.is_unverified:
            assert plan.falls_back and schedule.has(Kind.CUT, Kind.KILL, Kind.DRAIN), f"answer {index} is unverified"
        elif plan.leave_after is None or length < plan.leave_after:
            assert length == len(whole), f"answer {index} ended well after {length} of {len(whole)} tokens"


def _allowed(schedule: Schedule, report: Report, index: int) -> set[Reason]:
    allowed = set[Reason]()
    if schedule.has(Kind.CUT, Kind.KILL, Kind.DRAIN):
        allowed.add(Reason.VERIFIER_UNREACHABLE)
    if schedule.has(Kind.DRAIN):
        allowed.add(Reason.DRAINING)
    # A session that has lost its stream may keep its slot, too.
    if len(schedule.answers) + len(schedule.faults) > schedule.slots:
        allowed.add(Reason.CAPACITY_EXHAUSTED)
    if index in report.rival_wins:
        allowed.add(Reason.SUPERSEDED)
    return allowed
