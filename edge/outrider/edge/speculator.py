"""Grows the tree of one answer: asks the drafters for children of the nodes that the policy chose, and lets lookups in
what has been read and written add continuations for nothing. It decides nothing. What the target chooses it hands
to the guesser to learn from.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence

from outrider.edge.control.base import DraftBounds
from outrider.edge.guesses.guesser import ASKED, Said
from outrider.edge.guesses.sources import Sources
from outrider.shared.lookup import Match
from outrider.shared.token_tree import CommittedToken, DraftTree, Node

LEAST_PROBABILITY = 1e-9
# A lookup goes on as long as its whole path is at least that likely, and is not begun below less likely nodes.
LEAST_LOOKUP = 0.1
LONGEST_LOOKUP = 24


class Speculator:
    """Guesses from models, from lookups, or from both on one tree. `close` it."""

    def __init__(self, tree: DraftTree, sources: Sources) -> None:
        self._tree = tree
        self._sources = sources
        self._drafts = sources.sessions
        self._guesser = sources.guesser
        self._index = sources.index
        self._read(tree.committed)

    @property
    def has_model(self) -> bool:
        """Whether a step takes a drafter's time."""
        return bool(self._drafts)

    async def expand(self, nodes: Sequence[Node], count: int, heat: float | None = None) -> None:
        """Add the `count` best children to each node, drafted at temperature `heat` if one is given; raises what a
        drafter raises.
        """
        texts = [[*self._tree.committed, *self._tree.path(node)] for node in nodes]
        names, roster = list(self._drafts), self._guesser.roster
        asked, began_s = roster.asked(names), asyncio.get_running_loop().time()
        answers = await asyncio.gather(*(self._drafts[name].propose(texts, max(count, ASKED)) for name in asked))
        roster.observe(asked, names, (asyncio.get_running_loop().time() - began_s) / len(nodes))
        for node in nodes:
            node.expanded = True
        for name, answer in zip(asked, answers, strict=True):
            for node, text, proposals in zip(nodes, texts, answer, strict=True):
                self._guesser.hear(_said(node), text, name, proposals, heat)
        for node in nodes:
            # The root may have moved on meanwhile; guesses below a dead node are of no use.
            if self._tree.is_live(node):
                self._settle(node, count)

    def drafted_child(self, node: Node) -> Node | None:
        """The child that the drafters hold likeliest, made if there is none; None if they had nothing to say. What the
        answer's options rule out is no child of theirs, nor what only a lookup named, which knows nothing of options.
        """
        if node.said is None:
            return None
        named = self._guesser.drafted(node.said)
        for token, chance in self._guesser.chances(node.said).items():
            if token in named:
                log_probability = math.log(max(chance, LEAST_PROBABILITY))
                return node.children.get(token) or self._tree.add(node, token, log_probability)
        return None

    def look_up(self, bounds: DraftBounds) -> None:
        """Let lookups continue every likely node that they have not continued yet."""
        if self._index is None:
            return
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

    def on_committed(self, root: Node, tokens: Sequence[CommittedToken]) -> None:
        """The tree's `root` has moved on along `tokens`: learn from what was said on the way."""
        text = self._tree.committed[: len(self._tree.committed) - len(tokens)]
        node: Node | None = root
        for committed in tokens:
            token = committed.token
            if node is not None:
                if node.said is not None:
                    self._guesser.learn(node.said, text, token)
                node = node.children.get(token)
            text.append(token)
            self._read([token], learn=True)

    async def close(self) -> None:
        """Close the drafting sessions."""
        await self._sources.close()

    def _read(self, tokens: Sequence[int], *, learn: bool = False) -> None:
        for token in tokens:
            self._guesser.read(token)
            if self._index is not None:
                self._index.read(token, learn=learn)

    def _settle(self, node: Node, count: int) -> None:
        """Give `node` the `count` likeliest children, and those that it has already what all say of them together."""
        if node.said is None:
            return
        for token, chance in self._guesser.chances(node.said).items():
            log_probability = math.log(max(chance, LEAST_PROBABILITY))
            child = node.children.get(token)
            if child is not None:
                self._tree.revise(child, log_probability)
            elif count > 0:
                self._tree.add(node, token, log_probability)
            count -= 1

    def _continue(self, node: Node, match: Match, least: float, bounds: DraftBounds) -> None:
        assert self._index is not None
        room = min(LONGEST_LOOKUP, bounds.end - 2 - node.position)
        found = self._index.continuation(match, room)
        for token, probability in zip(found.tokens, found.probabilities, strict=True):
            if node.log_probability + math.log(probability) < least or not bounds.may_expand(node, self._tree):
                return
            self._guesser.hear_lookup(_said(node), token, probability)
            child = self._tree.add(node, token, math.log(probability))
            self._settle(node, 0)
            node = child
            node.looked_up = True


def _said(node: Node) -> Said:
    if node.said is None:
        node.said = Said()
    said: Said = node.said
    return said
