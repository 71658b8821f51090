"""The walk over a tree of guesses: whatever was guessed, the tokens are those of the target alone, one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from outrider.cloud.targets.base import ROOT_PARENT
from outrider.cloud.walk import WalkResult, WalkRules, walk
from outrider.shared.messages import FinishReason
from outrider.shared.sampling.choose import Chooser
from outrider.shared.sampling.options import Sampling
from outrider.shared.tiny import END, TINY_SIZE, tiny_logits

PROMPT = (257, *b"hello", 256, 258)
SAMPLINGS: list[dict[str, Any]] = [
    {},
    {"temperature": 1.0},
    {"temperature": 0.8, "top_k": 20, "top_p": 0.9},
    {"temperature": 1.0, "repetition_penalty": 1.3, "frequency_penalty": 0.5},
]


def make_rules(end: int = 1000, stop_ids: Sequence[int] = (END,), **options: Any) -> WalkRules:
    return WalkRules(Chooser(Sampling(**options), 7, PROMPT, TINY_SIZE), frozenset(stop_ids), end)


def target_alone(rules: WalkRules, count: int, answer: Sequence[int] = ()) -> list[int]:
    """Token by token, without a tree: up to `count` tokens after `answer`, ending as the rules say."""
    text = list(answer)
    while len(text) < len(answer) + count:
        text.append(rules.chooser.choose(tiny_logits([*PROMPT, *text]), text).token)
        if text[-1] in rules.stop_ids or len(text) >= rules.end:
            break
    return text[len(answer) :]


@dataclass
class Tree:
    """Guesses below an answer, with the logits of the pseudo model and a record of what was looked at."""

    answer: list[int]
    tokens: list[int]
    parents: list[int]

    def path(self, node: int) -> list[int]:
        path: list[int] = []
        while node != ROOT_PARENT:
            path.insert(0, self.tokens[node])
            node = self.parents[node]
        return path

    def walk(self, rules: WalkRules) -> WalkResult:
        self.asked: list[int] = []
        return walk(self.tokens, self.parents, self._logits, self.answer, rules)

    def _logits(self, node: int) -> NDArray[np.float32]:
        self.asked.append(node)
        return tiny_logits([*PROMPT, *self.answer, *self.path(node)])

    def new_tokens(self, result: WalkResult) -> list[int]:
        found = [self.tokens[node] for node in result.path]
        return found if result.correction is None else [*found, result.correction]


def chain(tokens: Sequence[int], answer: Sequence[int] = ()) -> Tree:
    return Tree(list(answer), list(tokens), list(range(-1, len(tokens) - 1)))


@st.composite
def trees(draw: st.DrawFn, rules: WalkRules) -> Tree:
    """Trees that are right here and there: children are the target's token or another, in any order."""
    answer = target_alone(rules, draw(st.integers(0, 3)))
    tree = Tree(answer, [], [])
    for _ in range(draw(st.integers(0, 9))):
        parent = draw(st.integers(ROOT_PARENT, len(tree.tokens) - 1))
        path = [*answer, *tree.path(parent)]
        right = rules.chooser.choose(tiny_logits([*PROMPT, *path]), path).token
        token = right if draw(st.integers(0, 3)) else draw(st.integers(0, TINY_SIZE - 1))
        if (parent, token) not in set(zip(tree.parents, tree.tokens, strict=True)):
            tree.tokens.append(token)
            tree.parents.append(parent)
    return tree


def check(tree: Tree, rules: WalkRules) -> WalkResult:
    result = tree.walk(rules)
    tokens = tree.new_tokens(result)
    assert tokens == target_alone(rules, len(tokens), tree.answer)
    assert len(tokens) >= 1
    # The path is one, from the root, and only it was looked at.
    assert [tree.parents[node] for node in result.path] == [ROOT_PARENT, *result.path][: len(result.path)]
    inside = [ROOT_PARENT, *result.path] if result.correction is not None else [ROOT_PARENT, *result.path[:-1]]
    assert tree.asked == inside
    assert len(result.gaps) == len(tokens)
    assert all(gap >= 0 for gap in result.gaps)
    assert result.checked_count == sum(node in tree.parents for node in inside)
    last, length = tokens[-1], len(tree.answer) + len(tokens)
    if last in rules.stop_ids:
        assert result.finish is FinishReason.STOP
    else:
        assert result.finish is (FinishReason.LENGTH if length == rules.end else None)
    # It ends with an accepted node only where the answer ends: else there is always the target's own token.
    assert result.correction is not None or result.finish is not None
    if result.correction is not None:
        place = result.path[-1] if result.path else ROOT_PARENT
        assert (place, result.correction) not in set(zip(tree.parents, tree.tokens, strict=True))
    return result


@pytest.mark.parametrize("options", SAMPLINGS)
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_tokens_are_the_targets_own_for_any_tree(options: dict[str, Any], data: st.DataObject) -> None:
    rules = make_rules(**options)
    tree = data.draw(trees(rules))
    if data.draw(st.booleans()):
        rules = replace(rules, end=len(tree.answer) + data.draw(st.integers(1, 4)))
    check(tree, rules)


def test_an_empty_tree_gives_one_token() -> None:
    rules = make_rules()
    result = check(chain([]), rules)
    assert result == WalkResult((), target_alone(rules, 1)[0], 0, result.gaps, None)


def test_a_right_chain_is_taken_whole_and_one_token_more() -> None:
    rules = make_rules()
    tokens = target_alone(rules, 6)
    result = check(chain(tokens[:5]), rules)
    assert result.path == (0, 1, 2, 3, 4)
    assert result.correction == tokens[5]
    assert result.checked_count == 5


@pytest.mark.parametrize("right", range(6))
def test_a_chain_is_taken_as_far_as_it_is_right(right: int) -> None:
    rules = make_rules()
    tokens = target_alone(rules, 6)
    guesses = [*tokens[:right], *((token + 1) % 200 for token in tokens[right:5])]
    result = check(chain(guesses), rules)
    assert result.path == tuple(range(right))
    assert result.correction == tokens[right]
    assert result.checked_count == min(right + 1, 5)


def test_the_right_sibling_is_found_wherever_it_stands() -> None:
    rules = make_rules()
    first, second = target_alone(rules, 2)
    tree = Tree([], [1, first, 2, second], [ROOT_PARENT, ROOT_PARENT, 1, 1])
    assert check(tree, rules).path == (1, 3)


@pytest.mark.parametrize("accepted", [True, False])
def test_an_answer_ends_at_a_stop_id_whether_guessed_or_not(accepted: bool) -> None:
    tokens = target_alone(make_rules(), 4)
    rules = make_rules(stop_ids=[tokens[3]])
    assert tokens[3] not in tokens[:3]
    # What hangs below the stop is never looked at.
    tree = chain([*tokens, 5, 6] if accepted else tokens[:3])
    result = check(tree, rules)
    assert result.finish is FinishReason.STOP
    assert (result.correction is None) == accepted
    assert tree.new_tokens(result) == tokens


@pytest.mark.parametrize("accepted", [True, False])
def test_an_answer_ends_at_its_length_whether_guessed_or_not(accepted: bool) -> None:
    tokens = target_alone(make_rules(), 4)
    rules = make_rules(end=4)
    result = check(chain(tokens if accepted else tokens[:3]), rules)
    assert result.finish is FinishReason.LENGTH
    assert (result.correction is None) == accepted


def test_a_stop_id_at_the_very_end_counts_as_a_stop() -> None:
    tokens = target_alone(make_rules(), 3)
    assert check(chain(tokens), make_rules(end=3, stop_ids=[tokens[2]])).finish is FinishReason.STOP


def test_every_token_in_turn_as_stop_id_ends_the_answer_where_it_first_stands() -> None:
    """Whichever place in a block of γ = 5 the stop id has, the answer is the target's alone, nothing after it."""
    greedy = target_alone(make_rules(stop_ids=[]), 24)
    for stop_id in sorted(set(greedy)):
        rules = make_rules(stop_ids=[stop_id])
        expected = target_alone(rules, len(greedy))
        assert expected == greedy[: greedy.index(stop_id) + 1]
        for offset in range(5):
            answer = greedy[: min(offset, len(expected) - 1)]
            finish = None
            while finish is None:
                # A drafter that knows the target but nothing of stop ids.
                ahead = target_alone(make_rules(stop_ids=[]), 5, answer)
                tree = chain(ahead, answer)
                result = check(tree, rules)
                answer = [*answer, *tree.new_tokens(result)]
                finish = result.finish
            assert answer == expected
            assert finish is FinishReason.STOP
