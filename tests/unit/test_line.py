"""Whose turn it is, and who wants a pass."""

from __future__ import annotations

from outrider.cloud.line import Line
from outrider.cloud.session import Session, SessionLimits
from outrider.shared.messages import FinishReason, Grow, Open
from outrider.shared.sampling.options import Sampling
from outrider.shared.tiny import tiny_vocabulary


def session(name: str) -> Session:
    return Session(name, 0, Open((257, 258), Sampling(), 1, 40), tiny_vocabulary(), 40, SessionLimits())


def standing(*names: str) -> tuple[Line, list[Session]]:
    """A line in which these stand."""
    line, sessions = Line(), [session(name) for name in names]
    for number, each in enumerate(sessions):
        line.join(each)
        each.ready_since = float(number)
        line.want(each)
    return line, sessions


def test_those_left_out_come_first_and_those_served_last() -> None:
    line, (a, b, c, d, e) = standing("a", "b", "c", "d", "e")
    line.take_turns(served=[a, b], left_out=[c, e])
    assert line.in_turn() == [c, e, d, a, b]
    line.take_turns(served=[c], left_out=[d])
    assert line.in_turn() == [d, e, a, b, c]


def test_who_rests_or_leaves_is_not_served_and_keeps_its_turn_or_not() -> None:
    line, (a, b, c) = standing("a", "b", "c")
    line.rest(a)
    line.leave(b)
    assert line.in_turn() == [c]
    assert a in line
    assert b not in line
    line.want(a)
    assert line.in_turn() == [a, c]


def test_a_pass_is_wanted_since_the_first_who_still_does() -> None:
    line, (a, b, c) = standing("a", "b", "c")
    assert line.since_s == 0.0
    a.finish(FinishReason.CANCELLED)
    assert line.since_s == 1.0
    line.rest(b)
    assert line.since_s == 2.0
    line.rest(c)
    assert line.since_s is None


def test_one_that_is_eager_is_known_as_long_as_it_wants_a_pass() -> None:
    line, (a, b) = standing("a", "b")
    assert not line.has_eager
    a.grow(Grow(1, 0, run_to=1))
    line.want(a)
    assert not line.has_eager, "one token is what anybody may ask for"
    for each, end in ((a, line.rest), (b, lambda s: s.finish(FinishReason.CANCELLED))):
        each.grow(Grow(1, 0, run_to=2))
        line.want(each)
        assert line.has_eager
        end(each)
        assert not line.has_eager


def test_a_first_word_is_waited_for_once() -> None:
    line, (a, b) = standing("a", "b")
    for each, until_s in ((a, 5.0), (b, 6.0)):
        line.rest(each)
        line.want_with_first_word(each, until_s)
    assert line.next_fresh == (a, 5.0)
    assert line.since_s is None
    assert line.in_turn() == [a, b], "a pass that is made anyway takes them along"
    line.want(a)
    assert line.next_fresh == (b, 6.0)
    b.finish(FinishReason.CANCELLED)
    assert line.next_fresh is None
