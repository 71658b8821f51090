"""Decides what the edge does next: draft further, send, or wait. A policy over the tree, without I/O."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from outrider.shared.messages import Commit
from outrider.shared.token_tree import DraftTree, Node


@dataclass(frozen=True, slots=True)
class Expand:
    """Ask the drafter for `count` children of each of `nodes`, in one step."""

    nodes: tuple[Node, ...]
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

    def may_expand(self, node: Node, tree: DraftTree) -> bool:
        """Whether guesses below `node` can be of use. The token at the answer's end comes from the pass that checks the
        one before it.
        """
        is_leaf = node is not tree.root and node.token in self.stop_ids
        return not is_leaf and node.position < self.end - 2


class Control(ABC):
    """A drafting policy for one answer. What it is told by `on_...` it may use or not."""

    @abstractmethod
    def next_step(self, tree: DraftTree, bounds: DraftBounds) -> Step:
        """What to do now. Called again after each step and after each commit."""

    @abstractmethod
    def check_fits(self, window: int) -> None:
        """Raise USAGE if the policy needs more live nodes than the verifier takes."""

    @property
    def draft_temperature(self) -> float | None:
        """The temperature at which the drafter's confidences are to be read; None leaves that to the edge."""
        return None

    def go_eager(self) -> None:  # noqa: B027 - to be heeded or not
        """From now on the verifier goes on by itself."""

    def on_break(self) -> None:  # noqa: B027 - to be heeded or not
        """The stream broke: nodes that were sent are unsent again, and what passes until the next commit is no
        measure.
        """

    def on_drafted(self, text_count: int, took_s: float) -> None:  # noqa: B027 - to be heeded or not
        """The drafter took `took_s` seconds for a step over `text_count` texts."""

    def on_commit(self, commit: Commit) -> None:  # noqa: B027
        """A commit has moved the root."""
