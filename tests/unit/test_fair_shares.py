"""Rows of passes by weight over accounts, and turns inside each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hypothesis import example, given, settings
from hypothesis import strategies as st

from outrider.cloud.accounts import Account
from outrider.cloud.fairness import MOST_PASSED_OVER, FairShares
from outrider.cloud.line import Line
from outrider.cloud.quotas import Quota
from outrider.cloud.session import Session, SessionLimits
from outrider.shared.messages import Open
from outrider.shared.sampling.options import Sampling
from outrider.shared.tiny import tiny_vocabulary


@dataclass
class Floor:
    """Passes of `max_rows` rows over sessions that all want to be in each, packed as the scheduler packs them."""

    max_rows: int
    line: Line = field(default_factory=Line)
    shares: FairShares = field(default_factory=FairShares)
    rows: dict[Session, int] = field(default_factory=dict)
    had: dict[Session, int] = field(default_factory=dict)

    def add(self, account: Account, rows: Sequence[int]) -> list[Session]:
        """Sessions that want so many rows each."""
        sessions = []
        for count in rows:
            request = Open((257, 258), Sampling(), 1, 40)
            one = Session(f"{account.name}{len(self.rows)}", 0, request, tiny_vocabulary(), 40, SessionLimits())
            self.line.join(one)
            self.line.want(one)
            self.shares.join(one, account)
            self.rows[one], self.had[one] = count, 0
            sessions.append(one)
        return sessions

    def run(self, passes: int, wants: Callable[[int, Session], bool] = lambda number, session: True) -> None:
        """So many passes; in each those take part that want to."""
        for number in range(passes):
            in_turn = [session for session in self.line.in_turn() if wants(number, session)]
            packed: dict[Session, int] = {}

            def pack(session: Session, packed: dict[Session, int] = packed) -> int:
                if packed and sum(packed.values()) + self.rows[session] > self.max_rows:
                    return 0
                packed[session] = self.rows[session]
                return packed[session]

            self.shares.begin(in_turn)
            self.shares.serve(in_turn, pack)
            left_out = [session for session in in_turn if session not in packed]
            self.shares.end(left_out)
            self.line.take_turns([session for session in in_turn if session in packed], left_out)
            for session, rows in packed.items():
                self.had[session] += rows

    def total(self, sessions: Sequence[Session]) -> int:
        """Rows that these had."""
        return sum(self.had[session] for session in sessions)


def account(name: str, weight: float = 1.0) -> Account:
    return Account(name, Quota(weight=weight))


def test_one_with_fifty_sessions_does_not_starve_one_with_one() -> None:
    floor = Floor(max_rows=20)
    greedy, modest = floor.add(account("greedy"), [5] * 50), floor.add(account("modest"), [5])
    floor.run(100)
    assert floor.had[modest[0]] == 500, "it is in every pass"
    assert floor.total(greedy) == 1500


def test_it_is_not_starved_by_prompts_either() -> None:
    """Pieces of prompts fill whole passes: then every second one is its own."""
    floor = Floor(max_rows=64)
    floor.add(account("greedy"), [64] * 50)
    modest = floor.add(account("modest"), [5])
    floor.run(100)
    assert floor.had[modest[0]] >= 49 * 5


def test_rows_go_by_weight_and_in_turns_inside_an_account() -> None:
    floor = Floor(max_rows=8)
    heavy, light = floor.add(account("heavy", 3), [1] * 20), floor.add(account("light"), [1] * 20)
    floor.run(400)
    assert floor.total(heavy) == 2400
    assert floor.total(light) == 800
    for sessions in (heavy, light):
        counts = [floor.had[session] for session in sessions]
        assert max(counts) - min(counts) <= 1


def test_a_big_piece_is_not_passed_over_for_ever_by_small_ones() -> None:
    floor = Floor(max_rows=64)
    floor.add(account("a"), [1])
    big, *_ = floor.add(account("b"), [64, 1, 1])
    floor.run(50)
    assert floor.had[big] >= 64 * 10


def test_nor_is_one_whose_account_fills_every_gap_with_small_ones() -> None:
    """So that account had more than others in every pass, and never came first."""
    floor = Floor(max_rows=46)
    for number, weight in enumerate((1.18, 1.75, 1.18)):
        floor.add(account(f"big {number}", weight), [31, 31])
    starved, *_ = floor.add(account("mixed", 1.18), [38, 1, 9, 4])
    floor.run(500)
    assert floor.had[starved] >= 38 * 20


def test_nothing_is_saved_up_while_nothing_is_wanted() -> None:
    """Who comes back after a thousand passes gets its share, not all there is until it has caught up."""
    floor = Floor(max_rows=8)
    always, late = floor.add(account("always"), [1] * 20), floor.add(account("late"), [1] * 20)
    floor.run(1000, lambda number, session: session in always)
    before = floor.total(always)
    floor.run(10)
    assert floor.total(late) <= 48
    assert floor.total(always) - before >= 32


def test_with_room_for_all_nobody_owes_anything_afterwards() -> None:
    floor = Floor(max_rows=100)
    busy, quiet = floor.add(account("busy"), [30]), floor.add(account("quiet"), [1])
    floor.run(100)
    assert (floor.total(busy), floor.total(quiet)) == (3000, 100)
    floor.max_rows, floor.rows[quiet[0]] = 30, 30
    floor.run(100)
    assert abs(floor.total(busy) - 3000 - (floor.total(quiet) - 100)) <= 30


def test_who_was_left_out_while_another_one_had_a_lot_is_known_until_it_is_served() -> None:
    """Only what others had since counts, by weight; where all had about as much nobody is behind."""
    floor = Floor(max_rows=100)
    busy, light = floor.add(account("busy"), [60]), floor.add(account("light", 2), [1, 1])
    even = floor.add(account("even"), [5])

    def one_pass(left_out: Sequence[Session]) -> None:
        everybody = [*busy, *light, *even]
        floor.shares.begin(everybody)
        floor.shares.serve([each for each in everybody if each not in left_out], floor.rows.__getitem__)
        floor.shares.end(left_out)

    one_pass(light)
    assert floor.shares.is_far_behind(light[0], 120)
    assert not floor.shares.is_far_behind(light[0], 121)
    assert not floor.shares.is_far_behind(even[0], 1)
    one_pass(light)
    assert floor.shares.is_far_behind(light[0], 240)
    one_pass([])
    assert not floor.shares.is_far_behind(light[0], 1)


def test_one_account_alone_is_served_in_turn() -> None:
    floor = Floor(max_rows=8)
    sessions = floor.add(account("only"), [3, 8, 1, 2, 5, 8, 4])
    seen: list[Session] = []

    def pack(session: Session) -> int:
        seen.append(session)
        return floor.rows[session]

    floor.shares.begin(sessions)
    floor.shares.serve(sessions, pack)
    assert seen == sessions


@st.composite
def crowds(draw: st.DrawFn) -> tuple[int, list[tuple[float, list[int]]]]:
    max_rows = draw(st.integers(1, 80))
    sizes = st.lists(st.integers(1, max_rows), min_size=1, max_size=12)
    return max_rows, draw(st.lists(st.tuples(st.floats(0.2, 5.0), sizes), min_size=2, max_size=5))


@settings(deadline=None)
@example((7, [(4.0, [1, 7]), (0.25, [1, 1, 5])]), 7, 0)
@given(crowds(), st.integers(1, 60), st.integers(0, 30))
def test_those_who_always_want_more_stay_within_passes_of_each_other_by_weight(
    crowd: tuple[int, list[tuple[float, list[int]]]], passes: int, before: int
) -> None:
    """For any two accounts that somebody was left out of in every pass, from any moment on."""
    max_rows, described = crowd
    floor = Floor(max_rows)
    groups = [
        (weight, floor.add(account(f"{number}", weight), sizes)) for number, (weight, sizes) in enumerate(described)
    ]
    floor.run(before)
    at_first = [floor.total(sessions) for _, sessions in groups]
    always_short = set(range(len(groups)))
    for _ in range(passes):
        had = dict(floor.had)
        floor.run(1)
        always_short &= {
            index for index, (_, group) in enumerate(groups) if any(floor.had[one] == had[one] for one in group)
        }
    shares = [(floor.total(groups[index][1]) - at_first[index]) / groups[index][0] for index in sorted(always_short)]
    if shares:
        lightest = min(groups[index][0] for index in always_short)
        # A pass each, and what small sessions took into the gaps where another's turn did not fit.
        assert max(shares) - min(shares) <= (2 + MOST_PASSED_OVER) * max_rows / lightest + 1e-6
    assert all(floor.total(sessions) > 0 for _, sessions in groups) or before + passes < 2 * len(floor.rows)


@settings(deadline=None)
@given(crowds())
def test_everybody_gets_in_in_the_end(crowd: tuple[int, list[tuple[float, list[int]]]]) -> None:
    max_rows, described = crowd
    floor = Floor(max_rows)
    for number, (weight, sizes) in enumerate(described):
        floor.add(account(f"{number}", weight), sizes)
    floor.run(2500)
    assert min(floor.had.values()) > 0
