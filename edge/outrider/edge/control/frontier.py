"""Looks a tree of guesses over for a policy: where it could grow, and what it could send."""

from __future__ import annotations

import math
from dataclasses import dataclass

from outrider.edge.control.base import DraftBounds
from outrider.shared.token_tree import DraftTree, Node


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Path probabilities, 0..1, below which a node is neither expanded nor sent."""

    expand: float
    send: float


@dataclass(frozen=True, slots=True)
class Frontier:
    """`open` nodes could be expanded, the likeliest first; `unsent` ones are worth sending, parents first. Each comes
    with the probability that the whole path down to it is right.
    """

    open: list[tuple[float, Node]]
    unsent: list[tuple[float, Node]]


def survey(tree: DraftTree, bounds: DraftBounds, thresholds: Thresholds) -> Frontier:
    """The frontier of `tree`. Its root's likeliest child is always worth sending, and no more is than window and side
    branches allow.
    """
    base = tree.root.log_probability
    least_log_expand = math.log(thresholds.expand)
    open_nodes: list[tuple[float, Node]] = []
    unsent: list[tuple[float, Node]] = []
    room = bounds.window - tree.live_count
    branches_left = bounds.max_branches - _sent_branches(tree)
    stack = [tree.root]
    while stack:
        node = stack.pop()
        if not node.expanded and bounds.may_expand(node, tree):
            open_nodes.append((math.exp(node.log_probability - base), node))
        is_first = not any(child.node_id for child in node.children.values())
        below: list[Node] = []
        for child in sorted(node.children.values(), key=lambda child: -child.log_probability):
            log_path = child.log_probability - base
            probability = math.exp(log_path)
            if not child.node_id and room > 0 and (is_first or branches_left > 0):
                is_best_of_root = node is tree.root and is_first
                if probability >= thresholds.send or is_best_of_root:
                    unsent.append((probability, child))
                    room -= 1
                    branches_left -= not is_first
                    is_first = False
            if log_path >= least_log_expand or child.node_id:
                below.append(child)
        stack.extend(reversed(below))
    open_nodes.sort(key=lambda entry: -entry[0])
    return Frontier(open_nodes, _sendable(unsent, tree))


def _sendable(unsent: list[tuple[float, Node]], tree: DraftTree) -> list[tuple[float, Node]]:
    """Those whose parents are sent, or are among them."""
    chosen: list[tuple[float, Node]] = []
    nodes: set[Node] = set()
    for probability, node in unsent:
        parent = node.parent
        if parent is tree.root or (parent is not None and (parent.node_id or parent in nodes)):
            chosen.append((probability, node))
            nodes.add(node)
    return chosen


def _sent_branches(tree: DraftTree) -> int:
    """Side branches of what has been sent: leaves beside the first one."""
    count = 0
    stack = [tree.root]
    while stack:
        sent = [child for child in stack.pop().children.values() if child.node_id]
        count += max(0, len(sent) - 1)
        stack.extend(sent)
    return count
