"""The simplest policy: draft γ tokens below the root, send them in one message, wait for the verdict."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.edge.control.base import Control, DraftBounds, Expand, Send, Step, Wait
from outrider.shared.errors import OutriderError, Reason
from outrider.shared.token_tree import DraftTree, Node

GAMMA, BRANCH = 5, 1


@dataclass(frozen=True, slots=True)
class FixedControl(Control):
    """A chain of `gamma` tokens, each with `branch - 1` siblings that are not expanded further."""

    gamma: int = GAMMA
    branch: int = BRANCH

    def __post_init__(self) -> None:
        if self.gamma < 1 or self.branch < 1:
            raise OutriderError(Reason.USAGE, f"gamma = {self.gamma}, branch = {self.branch}: both must be at least 1.")

    def check_fits(self, window: int) -> None:
        """Raise USAGE if one round is more than the verifier takes."""
        if self.gamma * self.branch > window:
            raise OutriderError(
                Reason.USAGE,
                f"gamma {self.gamma} x branch {self.branch} is more than the verifier's window of {window}.",
            )

    def next_step(self, tree: DraftTree, bounds: DraftBounds) -> Step:
        """See `Control.next_step`."""
        node = tree.root
        fresh: list[Node] = []
        branches_left = bounds.max_branches
        for _ in range(self.gamma):
            if not bounds.may_expand(node, tree):
                break
            if not node.expanded:
                return Expand((node,), min(self.branch, 1 + branches_left))
            if not node.children:
                break
            branches_left = max(0, branches_left - (len(node.children) - 1))
            fresh.extend(child for child in node.children.values() if not child.node_id)
            # Of equals the one that was added first.
            node = max(node.children.values(), key=lambda child: child.log_probability)
        room = bounds.window - tree.live_count
        return Send(tuple(fresh[:room])) if fresh and room > 0 else Wait()
