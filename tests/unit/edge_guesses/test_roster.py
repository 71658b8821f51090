"""Further drafters are asked while they are worth their time."""

from __future__ import annotations

import random

import pytest

from outrider.edge.guesses.ensemble import Ensemble, Opinion
from outrider.edge.guesses.roster import Roster

NAMES = ["one", "other"]


def play(roster: Roster, ensemble: Ensemble, steps: int, all_ms: float, *, complement: bool) -> int:
    """Steps that take 10 ms with one drafter; in how many of them both were asked. Where they `complement` each other
    one is sure and right where the other is not, otherwise both always say the same, rightly four times of five.
    """
    both, dice = 0, random.Random(steps)
    for _ in range(steps):
        asked = roster.asked(NAMES)
        both += len(asked) == 2
        roster.observe(asked, NAMES, all_ms if len(asked) == 2 else 10.0)
        right, sure = {1: 0.9, 2: 0.1}, dice.random() < (0.5 if complement else 0.8)
        said = {"one": right if sure else {2: 0.6, 1: 0.4}}
        said["other"] = right if (not sure if complement else sure) else {2: 0.6, 1: 0.4}
        ensemble.observe([Opinion(name, said[name]) for name in asked], 1)
    return both


@pytest.mark.parametrize(
    ("all_ms", "complement", "least", "most"),
    [
        (10.0, True, 380, 400),  # nothing is lost by asking
        (20.0, True, 380, 400),  # twice the time, and many times as long right in a row
        (20.0, False, 4, 30),  # twice the time for nothing
    ],
)
def test_they_are_asked_while_it_pays(all_ms: float, complement: bool, least: int, most: int) -> None:
    ensemble = Ensemble()
    roster = Roster(ensemble)
    play(roster, ensemble, 100, all_ms, complement=complement)
    assert least <= play(roster, ensemble, 400, all_ms, complement=complement) <= most


def test_who_was_dropped_is_asked_again_when_it_has_become_worth_it() -> None:
    ensemble = Ensemble()
    roster = Roster(ensemble)
    play(roster, ensemble, 200, 20.0, complement=False)
    play(roster, ensemble, 20_000, 20.0, complement=True)
    assert play(roster, ensemble, 100, 20.0, complement=True) > 90


def test_a_single_drafter_is_always_asked() -> None:
    assert Roster(Ensemble()).asked(["one"]) == ["one"]
    assert Roster(Ensemble()).asked([]) == []
