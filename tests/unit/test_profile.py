"""The split of an answer's time, by hand: each case says when things happened and what each second was spent on."""

from __future__ import annotations

from dataclasses import astuple

import pytest

from outrider.edge.profile import Profile, Split


def parts(split: Split) -> tuple[float, ...]:
    """Drafting only, drafting and waiting, pass, queue, link, idle; link in all."""
    return astuple(split)


def opened(at_s: float = 0.0, trip_s: float = 2.0) -> Profile:
    """An answer that began at `at_s`, on a link whose round trip takes `trip_s`."""
    profile = Profile()
    profile.begin(at_s)
    profile.on_opened(at_s + trip_s)
    return profile


def streamed() -> Profile:
    """One that has its first token at 10: asked for at once, with 2 of trip and 8 of pass."""
    profile = opened()
    profile.on_sent(0.0)
    profile.on_commit(10.0, pass_s=8.0, queue_s=0.0, in_flight=False)
    return profile


def test_an_answer_without_drafter_waits_for_link_queue_and_pass() -> None:
    profile = opened(100.0)
    profile.on_sent(100.0)
    profile.on_commit(110.0, pass_s=6.0, queue_s=2.0, in_flight=False)
    profile.on_sent(110.0)
    profile.on_commit(117.0, pass_s=4.0, queue_s=1.0, in_flight=False)
    profile.end(117.0)
    assert parts(profile.split()) == (0, 0, 10, 3, 4, 0, 4)
    assert profile.wall_s == 17


def test_what_nothing_accounts_for_is_idle() -> None:
    profile = streamed()
    profile.on_sent(13.0)
    profile.on_commit(20.0, pass_s=5.0, queue_s=0.0, in_flight=False)
    profile.end(21.0)
    assert parts(profile.split()) == (0, 0, 13, 0, 4, 4, 4)


def test_drafting_before_a_verdict_is_asked_for_stands_alone_and_while_it_flies_it_does_not() -> None:
    profile = streamed()
    profile.on_drafted(10.0, 13.0)
    profile.on_sent(13.0)
    profile.on_drafted(13.0, 17.0)  # up 1, pass 3
    profile.on_commit(20.0, pass_s=5.0, queue_s=0.0, in_flight=False)
    profile.end(20.0)
    assert parts(profile.split_after_first()) == (3, 4, 2, 0, 1, 0, 2)


@pytest.mark.parametrize(
    ("began_s", "ended_s", "expected"),
    [
        (10.0, 11.0, (0, 1, 5, 2, 1, 0, 2)),  # on the way up
        (12.5, 13.0, (0, 0.5, 5, 1.5, 2, 0, 2)),  # queue
        (13.0, 18.0, (0, 5, 0, 2, 2, 0, 2)),  # pass
        (17.5, 18.5, (0, 1, 4.5, 2, 1.5, 0, 2)),  # pass and the way down
        (10.0, 19.0, (0, 9, 0, 0, 0, 0, 2)),  # all of it
    ],
)
def test_a_wait_is_up_queue_pass_and_down(began_s: float, ended_s: float, expected: tuple[float, ...]) -> None:
    profile = streamed()
    profile.on_sent(10.0)
    profile.on_drafted(began_s, ended_s)
    profile.on_commit(19.0, pass_s=5.0, queue_s=2.0, in_flight=False)
    profile.end(19.0)
    assert parts(profile.split_after_first()) == expected


def test_steps_at_one_time_are_one_time_of_drafting() -> None:
    profile = streamed()
    profile.on_drafted(10.0, 13.0)
    profile.on_drafted(11.0, 14.0)
    profile.end(15.0)
    assert parts(profile.split_after_first()) == (4, 0, 0, 0, 0, 1, 0)


@pytest.mark.parametrize(
    ("sent_s", "commit_s", "expected"),
    [
        # Prompt 4, pass 4, one way 1. The guesses arrive while the prompt is read: both passes in a row.
        (2.0, 10.0, (0, 2, 7, 0, 1, 0, 2)),
        # They arrive when it has been read: the verifier waited, the edge did not.
        (9.0, 15.0, (4, 5, 4, 0, 2, 0, 3)),
    ],
)
def test_the_first_commit_carries_the_prompt_wherever_it_was_read(
    sent_s: float, commit_s: float, expected: tuple[float, ...]
) -> None:
    profile = opened()
    profile.on_drafted(0.0, sent_s)
    profile.on_sent(sent_s)
    profile.on_commit(commit_s, pass_s=8.0, queue_s=0.0, in_flight=False)
    profile.end(commit_s)
    assert parts(profile.split()) == expected


def test_a_verifier_that_goes_on_alone_is_waited_for_from_commit_to_commit() -> None:
    profile = opened()
    profile.on_sent(0.0)
    for number in range(5):
        profile.on_commit(10.0 + 4 * number, pass_s=8.0 if number == 0 else 4.0, queue_s=0.0, in_flight=number < 4)
    profile.on_sent(11.0)
    profile.end(26.0)
    assert parts(profile.split()) == (0, 0, 24, 0, 2, 0, 2)


def test_a_late_commit_of_a_verifier_that_goes_on_costs_no_time_of_the_link() -> None:
    """It computes on meanwhile: the next commit comes the sooner."""
    profile = opened()
    profile.on_sent(0.0)
    for at_s in (10.0, 14.0, 20.0, 22.0):
        profile.on_commit(at_s, pass_s=8.0 if at_s == 10 else 4.0, queue_s=0.0, in_flight=at_s < 22)
    profile.end(22.0)
    assert parts(profile.split()) == (0, 0, 20, 0, 2, 0, 2)


def test_a_pass_longer_than_its_wait_does_not_reach_past_what_was_asked() -> None:
    profile = streamed()
    profile.on_sent(12.0)
    profile.on_commit(15.0, pass_s=9.0, queue_s=9.0, in_flight=False)
    profile.end(15.0)
    assert parts(profile.split_after_first()) == (0, 0, 3, 0, 0, 2, 0)


def test_an_answer_cut_short_waited_for_a_verdict_that_never_came() -> None:
    profile = streamed()
    profile.on_sent(12.0)
    profile.on_drafted(12.0, 13.0)
    profile.end(16.0)
    assert parts(profile.split_after_first()) == (0, 1, 0, 0, 3, 2, 4)


def test_an_answer_cut_before_its_first_token_was_all_link() -> None:
    profile = opened()
    profile.on_drafted(1.0, 2.0)
    profile.end(5.0)
    assert parts(profile.split()) == (0, 1, 0, 0, 4, 0, 5)
    assert parts(profile.split_after_first()) == (0, 0, 0, 0, 0, 0, 0)


def test_a_step_that_ran_past_the_end_counts_up_to_it() -> None:
    profile = streamed()
    profile.on_drafted(10.0, 15.0)
    profile.end(12.0)
    assert parts(profile.split_after_first()) == (2, 0, 0, 0, 0, 0, 0)


def test_a_commit_that_nobody_asked_for_is_waited_for_from_the_one_before() -> None:
    profile = streamed()
    profile.on_commit(13.0, pass_s=2.0, queue_s=0.0, in_flight=False)
    profile.end(13.0)
    assert parts(profile.split_after_first()) == (0, 0, 2, 0, 1, 0, 1)


def test_means_leave_out_what_reads_the_prompt() -> None:
    profile = opened()
    assert (profile.step_s, profile.pass_s, profile.prompt_s) == (None, None, 0)
    profile.on_sent(0.0)
    profile.on_drafted(0.0, 7.0)
    profile.on_commit(11.0, pass_s=8.0, queue_s=1.0, in_flight=True)
    assert (profile.step_s, profile.pass_s) == (7, 8), "all there is"
    for at_s, pass_s in ((20.0, 2.0), (30.0, 4.0)):
        profile.on_drafted(at_s - 5, at_s - 4)
        profile.on_commit(at_s, pass_s, queue_s=0.0, in_flight=True)
    assert (profile.step_s, profile.steps, profile.pass_s) == (1, 3, 3)
    assert profile.prompt_s == 2 + 8 + 1 - 3, "trip, passes and queue, but for one pass"
