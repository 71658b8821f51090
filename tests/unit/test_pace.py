"""An answer whose pace is left open ends up streaming where guessing does not pay, and is left alone where it does."""

from __future__ import annotations

import pytest

from outrider.edge.pace import MOST_COMMITS, TOKENS, Pace
from outrider.shared.messages import Commit


def commit(base: int, tokens: int, pass_ms: float) -> Commit:
    return Commit(base, 0, tuple(range(tokens)), base + tokens, 0, pass_ns=round(pass_ms * 1e6))


def decode(pace: Pace, commits: int, tokens: int, every_ms: float, guessed: int, pass_ms: float = 40.0) -> None:
    for number in range(commits):
        pace.on_commit(commit(number * tokens, tokens, pass_ms), guessed, number * every_ms / 1000)


@pytest.mark.parametrize(
    ("tokens", "every_ms", "is_eager"),
    [
        (5, 100.0, False),  # 20 ms a token
        (2, 90.0, False),  # 45: a little slower, and cheaper for the verifier
        (2, 110.0, True),  # 55 against 40
        (1, 48.5, True),
    ],
)
def test_it_stays_patient_as_long_as_that_is_about_as_fast_as_streaming(
    tokens: int, every_ms: float, is_eager: bool
) -> None:
    pace = Pace(eager=False, may_change=True)
    decode(pace, MOST_COMMITS + 2, tokens, every_ms, guessed=0)
    assert pace.is_eager is is_eager
    assert bool(pace.notes) is is_eager


def test_the_first_commit_is_not_judged_and_neither_is_a_single_slow_one() -> None:
    pace = Pace(eager=False, may_change=True)
    pace.on_commit(commit(0, 1, 900.0), 0, 5.0)
    for number in range(MOST_COMMITS):
        pace.on_commit(commit(1 + 5 * number, 5, 40.0), 4, 5.1 + number * 0.1 + (0.1 if number == 5 else 0.0))
    assert not pace.is_eager


def test_guessing_ends_where_no_guess_becomes_text() -> None:
    pace = Pace(eager=True, may_change=True)
    decode(pace, 3 * TOKENS, 1, 40.0, guessed=0)
    assert not pace.guesses
    assert [note.endswith("guessing no further") for note in pace.notes] == [True]


def test_far_slower_is_noticed_at_once() -> None:
    pace = Pace(eager=False, may_change=True)
    decode(pace, 4, 2, 300.0, guessed=1)
    assert pace.is_eager


def test_guessing_ends_where_it_slows_the_verifier_itself() -> None:
    pace = Pace(eager=True, may_change=True)
    for number in range(12):
        pace.on_commit(commit(number, 1, 40.0 if number == 1 else 70.0), 0, number * 0.075)
    assert not pace.guesses
    assert "with guessing the verifier took" in pace.notes[0]


def test_a_queue_is_no_fault_of_guessing() -> None:
    pace = Pace(eager=True, may_change=True)
    for number in range(40):
        queued = Commit(number, 0, (1,), number + 1, 0, queue_ns=35_000_000, pass_ns=40_000_000)
        pace.on_commit(queued, 1, number * 0.075)
    assert pace.guesses


def test_guessing_goes_on_where_some_do() -> None:
    pace = Pace(eager=True, may_change=True)
    decode(pace, 40, 10, 400.0, guessed=1)
    assert pace.guesses


def test_a_pace_that_was_chosen_stands() -> None:
    for eager in (False, True):
        pace = Pace(eager=eager, may_change=False)
        decode(pace, 200, 1, 500.0, guessed=0)
        assert (pace.is_eager, pace.guesses, pace.notes) == (eager, True, [])
