"""Looks a tree of guesses over for a policy: where it could grow, and what it could send."""

from __future__ import annotations

import math
from dataclasses import dataclass

from outrider.edge.control.base import DraftBounds
from outrider.shared.token_tree import DraftTree, Node


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Path probabilities, 0..1, below which a node is neither expanded nor sent; what has been sent is expanded."""

    expand: float
    send: float


@dataclass(frozen=True, slots=True)
class Frontier:
    """`open` nodes could be expanded, `unsent` ones are worth sending, parents first; the likeliest come first, each
    with the probability that the whole path down to it is right.
    """

    open: list[tuple[float, Node]]
    unsent: list[tuple[float, Node]]


def survey(tree: DraftTree, bounds: DraftBounds, thresholds: Thresholds) -> Frontier:
    """The frontier of `tree`. Its root's likeliest child is always worth sending, and no more is than window and side
    branches allow.
    """
    base = tree.root.log_probability
    open_nodes: list[tuple[float, Node]] = []
    unsent: list[tuple[float, Node]] = []
    stack = [tree.root]
    while stack:
        node = stack.pop()
        if not bounds.may_expand(node, tree):
            continue
        if not node.expanded:
            open_nodes.append((math.exp(node.log_probability - base), node))
        below: list[Node] = []
        for child in sorted(node.children.values(), key=lambda child: -child.log_probability):
            probability = math.exp(child.log_probability - base)
            if not child.node_id and (probability >= thresholds.send or node is tree.root):
                unsent.append((probability, child))
            if child.node_id or probability >= thresholds.expand:
                below.append(child)
        stack.extend(reversed(below))
    open_nodes.sort(key=lambda entry: -entry[0])
    return Frontier(open_nodes, _sendable(unsent, tree, bounds, thresholds.send))


def _sendable(
    unsent: list[tuple[float, Node]], tree: DraftTree, bounds: DraftBounds, least: float
) -> list[tuple[float, Node]]:
    """Those of `unsent` that fit, below what is sent or among them; the likeliest first."""
    sendable: list[tuple[float, Node]] = []
    chosen: set[Node] = set()
    room = bounds.window - tree.live_count
    branches_left = bounds.max_branches - _sent_branches(tree)
    # Parents still come before their children: they are at least as likely, and the order of equals is kept.
    for probability, node in sorted(unsent, key=lambda entry: -entry[0]):
        parent = node.parent
        assert parent is not None, "the root is never sent"
        is_first = not any(child.node_id or child in chosen for child in parent.children.values())
        is_below_sent = parent is tree.root or parent.node_id or parent in chosen
        is_worth_it = probability >= least or (parent is tree.root and is_first)
        if room > 0 and (is_first or branches_left > 0) and is_below_sent and is_worth_it:
            sendable.append((probability, node))
            chosen.add(node)
            room -= 1
            branches_left -= not is_first
    return sendable


def _sent_branches(tree: DraftTree) -> int:
    """Side branches of what has been sent: leaves beside the first one."""
    count = 0
    stack = [tree.root]
    while stack:
        sent = [child for child in stack.pop().children.values() if child.node_id]
        count += max(0, len(sent) - 1)
        stack.extend(sent)
    return count
