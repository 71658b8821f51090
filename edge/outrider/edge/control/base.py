"""Decides what the edge does next: draft further, send, or wait. A policy over the tree, without I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from outrider.shared.token_tree import DraftTree, Node


@dataclass(frozen=True, slots=True)
class Expand:
    """Ask the drafter for `count` children of `node`."""

    node: Node
    count: int


@dataclass(frozen=True, slots=True)
class Send:
    """Send these unsent nodes, parents first."""

    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do until a commit arrives."""


Step = Expand | Send | Wait


@dataclass(frozen=True, slots=True)
class DraftBounds:
    """What any policy has to respect: live nodes in flight, side branches that a pass can hold, ids below which
    nothing may hang, and the answer length at which guessing is over.
    """

    window: int
    max_branches: int
    stop_ids: frozenset[int]
    end: int


class Control(Protocol):
    """A drafting policy for one answer."""

    def next_step(self, tree: DraftTree, bounds: DraftBounds) -> Step:
        """What to do now. Called again after each step and after each commit."""
        ...
