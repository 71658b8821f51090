"""The bandit finds the better limits, leaves the policy's own alone where they are best, and follows change."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from pydantic import ValidationError

from outrider.edge.control.bandit import Arm, Bandit, KeptBandit

# Tokens a millisecond of an arm, on average.
Speed = Callable[[Arm], float]


def play(bandit: Bandit, speed: Speed, stretches: int, seed: int = 1) -> float:
    """Let it draft so many stretches, half a prompt's luck apart; tokens a millisecond over all of them."""
    dice = random.Random(seed)
    tokens, milliseconds = 0, 0.0
    for _ in range(stretches):
        arm, pull = bandit.pull()
        took = 48 / (speed(arm) * dice.uniform(0.7, 1.3))
        bandit.credit(pull, 48, took)
        tokens, milliseconds = tokens + 48, milliseconds + took
    return tokens / milliseconds


def shorter_is_faster(arm: Arm) -> float:
    return 0.13 if arm.path == 6 else 0.1


def own_is_best(arm: Arm) -> float:
    return 0.1 if arm == Arm() else 0.07


def test_a_better_limit_is_found() -> None:
    bandit = Bandit()
    play(bandit, shorter_is_faster, 150)
    assert bandit.best.path == 6
    assert play(bandit, shorter_is_faster, 100, seed=2) > 0.115


@pytest.mark.parametrize("seed", range(5))
def test_what_the_policy_does_by_itself_stands_where_it_is_best(seed: int) -> None:
    bandit = Bandit()
    play(bandit, own_is_best, 600, seed)
    assert bandit.best == Arm()
    # Arms that are clearly worse get one stretch in a hundred, which takes 1.4 times as long.
    assert play(bandit, own_is_best, 100, seed + 50) > 0.98 * play(bandit, lambda arm: 0.1, 100, seed + 50)


def test_what_has_changed_is_forgotten() -> None:
    bandit = Bandit()
    play(bandit, shorter_is_faster, 150)
    play(bandit, own_is_best, 150)
    assert bandit.best == Arm()


def test_it_goes_on_from_what_was_kept() -> None:
    bandit = Bandit()
    play(bandit, shorter_is_faster, 150)
    again = Bandit.of(KeptBandit.model_validate_json(bandit.kept().model_dump_json()))
    assert again.best == bandit.best == Arm(path=6)
    assert [again.pull() for _ in range(50)] == [bandit.pull() for _ in range(50)]


@pytest.mark.parametrize(
    "content",
    [
        '{"pulls": -1, "limits": [[[], [], []], [[], [], []], [[], [], []]]}',
        '{"pulls": 1, "limits": []}',
        '{"pulls": 1, "limits": [[[[1, 0]], [], []], [[], [], []], [[], [], []]]}',
        '{"pulls": 1, "limits": [[[[1, 1e300]], [], []], [[], [], []], [[], [], []]]}',
    ],
)
def test_rubbish_is_refused(content: str) -> None:
    with pytest.raises(ValidationError):
        KeptBandit.model_validate_json(content)
