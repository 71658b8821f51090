"""What a row costs is found from passes of a verifier whose true costs are known here."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.edge.control.row_price import RowPrice
from outrider.harness.profiles import TargetProfile
from outrider.shared.messages import Commit

# Rows beyond 90 cost 0.19 ms each, or are dear from the second one on.
LARGE = TargetProfile(base_ms=25, row_ms=0.19, free_rows=90, session_ms=0)
DEAR = TargetProfile(base_ms=40, row_ms=10, free_rows=1, session_ms=0)


def a_pass(target: TargetProfile, rows: int, tokens: int, *, says_load: bool = True) -> Commit:
    load_percent = min(100, int(50 * rows / target.free_rows)) if says_load else 0
    pass_ns = round(target.pass_ms(rows) * 1e6)
    return Commit(0, 0, (1,) * tokens, tokens, 0, pass_ns=pass_ns, load_percent=load_percent)


def after(target: TargetProfile, passes: list[tuple[int, int, int]], *, says_load: bool = True) -> RowPrice:
    """Passes, each given by all rows in it, and this session's own nodes and tokens."""
    price = RowPrice()
    for rows, nodes, tokens in passes:
        price.observe([a_pass(target, rows, tokens, says_load=says_load)], nodes)
    return price


def test_nothing_is_known_and_nothing_costs_anything_before_a_pass_was_seen() -> None:
    price = RowPrice()
    assert price.least_probability == price.least_first_probability == 0.0


def test_within_the_free_rows_nothing_is_too_unlikely() -> None:
    price = after(LARGE, [(rows, rows - 1, 3) for rows in (2, 30, 80, 64, 12, 5) * 5])
    assert price.least_probability == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("rows", [100, 120, 150, 170, 260])
def test_beyond_them_a_row_has_to_pay_what_it_costs(rows: int) -> None:
    """Ten sessions alike: as many tokens as three a session have to pay for the pass, and a row for what it adds."""
    nodes, sessions = rows // 10 - 1, 10
    light = [(60, 5, 3)] * 20
    price = after(LARGE, [*light, (130, 12, 3), *light, *[(rows, nodes, 3)] * 100])
    tokens = 3 * sessions
    expected = LARGE.row_ms * tokens / LARGE.pass_ms(rows)
    assert price.least_probability == pytest.approx(expected, rel=0.15)


def test_a_verifier_that_was_never_seen_with_rows_free_is_guessed_at() -> None:
    price = after(LARGE, [(200, 19, 3)] * 50)
    expected = LARGE.row_ms * 30 / LARGE.pass_ms(200)
    assert 0.5 * expected < price.least_probability < 1.5 * expected


def test_passes_that_may_be_fuller_than_can_be_said_make_no_row_dearer_than_it_is() -> None:
    """One row too many is said to be twice the free rows, as any more would be."""
    price = after(DEAR, [*[(1, 0, 1)] * 5, *[(9, 8, 2)] * 5, *[(2, 1, 2)] * 80])
    assert price.least_probability == pytest.approx(10 * 2 / DEAR.pass_ms(2), rel=0.15)


def test_with_rows_free_in_part_of_the_passes_the_price_lies_between() -> None:
    full = after(LARGE, [(60, 9, 3), *[(150, 9, 3)] * 100]).least_probability
    half = after(LARGE, [(60, 9, 3), (150, 9, 3)] * 50).least_probability
    assert 0.3 * full < half < 0.7 * full


def test_rows_of_ones_own_that_make_passes_longer_are_found_whatever_is_said_of_load() -> None:
    dice = random.Random(1)
    own = [dice.randint(0, 6) for _ in range(60)]
    price = after(DEAR, [(1 + nodes, nodes, 2) for nodes in own], says_load=False)
    mean_ms = sum(DEAR.pass_ms(1 + nodes) for nodes in own) / len(own)
    assert price.least_first_probability == pytest.approx(10 * 2 / mean_ms, rel=0.15)
    assert price.least_probability == price.least_first_probability


def test_where_others_make_passes_longer_a_first_guess_is_still_worth_its_row() -> None:
    """Their rows go up and down without regard to one's own."""
    dice = random.Random(2)
    passes = [(dice.randint(100, 160), dice.randint(1, 6), 3) for _ in range(200)]
    price = after(LARGE, passes)
    assert price.least_probability > 0.2
    assert price.least_first_probability < 0.1


def test_when_nothing_has_been_sent_for_a_while_it_is_tried_again() -> None:
    dear = [(1 + nodes, nodes, 1) for nodes in (0, 3, 1, 2, 0, 4) * 5]
    assert after(DEAR, dear, says_load=False).least_first_probability > 0.15
    price = after(DEAR, [*dear, *[(1, 0, 1)] * 200], says_load=False)
    assert price.least_first_probability < 0.02


def test_a_pass_may_hold_few_guesses_at_first_and_more_while_passes_stay_short() -> None:
    seen = [after(LARGE, [(20, 5, 3)] * passes).most_nodes for passes in range(8)]
    assert seen == [8, 12, 18, 27, 40, 60, 64, 64]


def test_where_passes_with_rows_said_to_be_free_get_long_a_pass_may_hold_fewer() -> None:
    """A target on a CPU whose operator thinks it is an accelerator."""
    price = after(DEAR, [(1 + nodes, nodes, 2) for nodes in (0, 8, 8, 8, 8)], says_load=False)
    assert price.most_nodes < 4


def test_passes_of_no_time_say_nothing() -> None:
    price = RowPrice()
    price.observe([Commit(0, 0, (1,), 1, 0, load_percent=100)], 3)
    assert price.least_probability == 0.0


commits = st.lists(
    st.builds(
        lambda tokens, pass_ns, load_percent: Commit(0, 0, (1,) * tokens, tokens, 0, 0, 0, pass_ns, load_percent),
        st.integers(1, 60),
        st.one_of(st.just(0), st.integers(1, 10**13)),
        st.integers(0, 100),
    ),
    min_size=1,
    max_size=5,
)


@given(st.lists(st.tuples(commits, st.integers(0, 300)), max_size=40))
def test_whatever_is_seen_a_price_is_a_number_from_nothing(seen: list[tuple[list[Commit], int]]) -> None:
    price = RowPrice()
    for passes, nodes in seen:
        price.observe(passes, nodes)
        assert 0.0 <= price.least_first_probability <= price.least_probability < float("inf")
