"""Grows the tree of one answer: asks the drafter for children of the nodes that the policy chose, and lets lookups in
what has been read and written add continuations for nothing. It decides nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from outrider.edge.control.base import DraftBounds
from outrider.edge.drafters.base import DraftSession, Proposal
from outrider.shared.lookup import LookupIndex, Match
from outrider.shared.token_tree import DraftTree, Node

LEAST_PROBABILITY = 1e-9
# A lookup goes on as long as its whole path is at least that likely, and is not begun below less likely nodes.
LEAST_LOOKUP = 0.1
LONGEST_LOOKUP = 24


class Speculator:
    """Guesses from a model (`draft`), from lookups, or from both on one tree. `close` it."""

    def __init__(self, tree: DraftTree, prompt_ids: Sequence[int], draft: DraftSession | None, *, lookup: bool) -> None:
        self._tree = tree
        self._draft = draft
        self._index = LookupIndex(prompt_ids) if lookup else None
        self._prompt_length = len(prompt_ids)

    @property
    def has_model(self) -> bool:
        """Whether a step takes the drafter's time."""
        return self._draft is not None

    async def expand(self, nodes: Sequence[Node], count: int) -> None:
        """Add the drafter's `count` best children to each node; raises what the drafter raises."""
        found: list[list[Proposal]] = [[] for _ in nodes]
        if self._draft is not None:
            texts = [[*self._tree.committed, *self._tree.path(node)] for node in nodes]
            found = await self._draft.propose(texts, count)
        for node, proposals in zip(nodes, found, strict=True):
            node.expanded = True
            # The root may have moved on meanwhile; guesses below a dead node are of no use.
            if self._tree.is_live(node):
                self._add(node, proposals)

    def look_up(self, bounds: DraftBounds) -> None:
        """Let lookups continue every likely node that they have not continued yet."""
        if self._index is None:
            return
        read = len(self._index) - self._prompt_length
        for token in self._tree.committed[read:]:
            self._index.read(token, learn=True)
        least = self._tree.root.log_probability + math.log(LEAST_LOOKUP)
        stack = [(self._tree.root, self._index.ending())]
        while stack:
            node, match = stack.pop()
            if not node.looked_up and bounds.may_expand(node, self._tree):
                node.looked_up = True
                self._continue(node, match, least, bounds)
            stack.extend(
                (child, self._index.follow(match, child.token))
                for child in node.children.values()
                if child.log_probability >= least
            )

    async def close(self) -> None:
        """Close the drafting session."""
        if self._draft is not None:
            await self._draft.close()

    def _add(self, node: Node, proposals: Sequence[Proposal]) -> None:
        """Children as the drafter sees them. For one that a lookup had found before, the middle of both is taken."""
        looked_up = dict(node.children)
        for proposal in proposals:
            rival = looked_up.pop(proposal.token, None)
            probability = max(proposal.probability, LEAST_PROBABILITY)
            if rival is None:
                self._tree.add(node, proposal.token, math.log(probability))
            else:
                self._tree.revise(rival, math.log((probability + _step_probability(rival)) / 2))
        if proposals:
            for rival in looked_up.values():
                self._tree.revise(rival, math.log(_step_probability(rival) / 2))

    def _continue(self, node: Node, match: Match, least: float, bounds: DraftBounds) -> None:
        assert self._index is not None
        room = min(LONGEST_LOOKUP, bounds.end - 2 - node.position)
        found = self._index.continuation(match, room)
        for token, probability in zip(found.tokens, found.probabilities, strict=True):
            if node.log_probability + math.log(probability) < least or not bounds.may_expand(node, self._tree):
                return
            node = self._tree.add(node, token, math.log(probability))
            node.looked_up = True


def _step_probability(node: Node) -> float:
    assert node.parent is not None, "a child"
    return math.exp(node.log_probability - node.parent.log_probability)
