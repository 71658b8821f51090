"""Looks a tree of guesses over for a policy: where it could grow, and what it could send."""

from __future__ import annotations

import math
from dataclasses import dataclass

from outrider.edge.control.base import DraftBounds
from outrider.shared.token_tree import DraftTree, Node


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Path probabilities, 0..1, below which a node is neither expanded nor sent; what has been sent is expanded. For
    the root's likeliest child `first` is enough.
    """

    expand: float
    send: float
    first: float = 0.0


@dataclass(frozen=True, slots=True)
class Caps:
    """No path below the root that is sent is longer than `path` nodes, and no node has more than `children` that are
    sent; None is no cap.
    """

    path: int | None = None
    children: int | None = None

    def deepest(self, tree: DraftTree) -> float:
        """The last position in the answer at which a node may be sent now."""
        return math.inf if self.path is None else tree.root.position + self.path


NO_CAPS = Caps()


@dataclass(frozen=True, slots=True)
class Frontier:
    """`open` nodes could be expanded, `unsent` ones are worth sending, parents first; the likeliest come first, each
    with the probability that the whole path down to it is right.
    """

    open: list[tuple[float, Node]]
    unsent: list[tuple[float, Node]]


def survey(tree: DraftTree, bounds: DraftBounds, thresholds: Thresholds, caps: Caps = NO_CAPS) -> Frontier:
    """The frontier of `tree`. No more is worth sending than window, side branches and `caps` allow."""
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
            if not child.node_id and probability >= (thresholds.first if node is tree.root else thresholds.send):
                unsent.append((probability, child))
            if child.node_id or probability >= thresholds.expand:
                below.append(child)
        stack.extend(reversed(below))
    open_nodes.sort(key=lambda entry: -entry[0])
    return Frontier(open_nodes, _sendable(unsent, tree, bounds, thresholds, caps))


def _sendable(
    unsent: list[tuple[float, Node]], tree: DraftTree, bounds: DraftBounds, thresholds: Thresholds, caps: Caps
) -> list[tuple[float, Node]]:
    """Those of `unsent` that fit, below what is sent or among them; the likeliest first."""
    sendable: list[tuple[float, Node]] = []
    chosen: set[Node] = set()
    room = bounds.window - tree.live_count
    branches_left = bounds.max_branches - _sent_branches(tree)
    deepest = caps.deepest(tree)
    # Parents still come before their children: they are at least as likely, and the order of equals is kept.
    for probability, node in sorted(unsent, key=lambda entry: -entry[0]):
        parent = node.parent
        assert parent is not None, "the root is never sent"
        siblings = sum(1 for child in parent.children.values() if child.node_id or child in chosen)
        is_first = siblings == 0
        is_within_caps = node.position <= deepest and (caps.children is None or siblings < caps.children)
        is_below_sent = parent is tree.root or parent.node_id or parent in chosen
        is_worth_it = probability >= thresholds.send or (parent is tree.root and is_first)
        if room > 0 and (is_first or branches_left > 0) and is_below_sent and is_worth_it and is_within_caps:
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
