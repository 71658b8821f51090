"""Verification: one walk from the root of a tree of guesses, at each node to the child that the target chose. It is
exact for every drafter by construction, as the target's choice never looks at what was proposed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outrider.cloud.targets.base import ROOT_PARENT
from outrider.shared.messages import FinishReason
from outrider.shared.sampling.choose import Chooser


@dataclass(frozen=True, slots=True)
class WalkRules:
    """What a walk needs to know of its session: the choice rule and where the answer ends.

    `end` is the answer length at which it is complete, `stop_ids` the ids that complete it.
    """

    chooser: Chooser
    stop_ids: frozenset[int]
    end: int


@dataclass(frozen=True, slots=True)
class WalkResult:
    """`path` are the accepted nodes from the root down; `correction` is the target's own next token, None where the
    answer ended with an accepted node. `checked_count` counts positions that had children to compare with; `gaps`
    holds, for each new token, the distance of its score to the runner-up's.
    """

    path: tuple[int, ...]
    correction: int | None
    checked_count: int
    gaps: tuple[float, ...]
    finish: FinishReason | None


def walk(
    node_tokens: Sequence[int],
    node_parents: Sequence[int],
    logits_of: Callable[[int], NDArray[np.float32]],
    answer_ids: Sequence[int],
    rules: WalkRules,
) -> WalkResult:
    """Walk the tree given by `node_tokens` and `node_parents` (`ROOT_PARENT`: the root) below `answer_ids`.

    `logits_of(node)` is asked only for nodes on the path, and for the root.
    """
    child_of = {(parent, token): i for i, (parent, token) in enumerate(zip(node_parents, node_tokens, strict=True))}
    inner = set(node_parents)
    answer = list(answer_ids)
    path: list[int] = []
    gaps: list[float] = []
    checked_count = 0
    node: int = ROOT_PARENT
    while True:
        choice = rules.chooser.choose(logits_of(node), answer)
        answer.append(choice.token)
        gaps.append(choice.gap)
        checked_count += node in inner
        finish = _finish(choice.token, len(answer), rules)
        child = child_of.get((node, choice.token))
        if child is None:
            return WalkResult(tuple(path), choice.token, checked_count, tuple(gaps), finish)
        path.append(child)
        if finish is not None:
            return WalkResult(tuple(path), None, checked_count, tuple(gaps), finish)
        node = child


def _finish(token: int, length: int, rules: WalkRules) -> FinishReason | None:
    if token in rules.stop_ids:
        return FinishReason.STOP
    return FinishReason.LENGTH if length >= rules.end else None
