"""The original article's policy, to compare with: as `fixed`, but γ follows the share of guesses that were accepted
lately, one up or down at a time, so that it stays near a target.
"""

from __future__ import annotations

from collections import deque

from outrider.edge.control.base import Control, DraftBounds, Send, Step
from outrider.edge.control.fixed import FixedControl
from outrider.shared.messages import Commit
from outrider.shared.token_tree import DraftTree

TARGET = 0.7
DEAD_BAND = 0.1
LEAST_GAMMA, MOST_GAMMA = 3, 8
# Rounds that count.
WINDOW = 20


class ProportionalControl(Control):
    """Starts at `gamma`, kept within `LEAST_GAMMA` and `MOST_GAMMA`, each token with `branch - 1` siblings."""

    def __init__(self, gamma: int, branch: int) -> None:
        self.gamma = min(MOST_GAMMA, max(LEAST_GAMMA, gamma))
        self._branch = branch
        self._sent = 0
        self._rounds: deque[tuple[int, int]] = deque(maxlen=WINDOW)

    def next_step(self, tree: DraftTree, bounds: DraftBounds) -> Step:
        """See `Control.next_step`."""
        step = FixedControl(self.gamma, self._branch).next_step(tree, bounds)
        if isinstance(step, Send):
            self._sent = len({node.position for node in step.nodes})
        return step

    def check_fits(self, window: int) -> None:
        """See `Control.check_fits`."""
        FixedControl(MOST_GAMMA, self._branch).check_fits(window)

    def on_break(self) -> None:
        """See `Control.on_break`."""
        self._sent = 0

    def on_commit(self, commit: Commit) -> None:
        """See `Control.on_commit`. A commit of the verifier's own tokens says nothing of guesses."""
        if not self._sent:
            return
        accepted = commit.committed_length - commit.base - len(commit.tokens)
        self._rounds.append((accepted, self._sent))
        self._sent = 0
        share = sum(accepted for accepted, _ in self._rounds) / sum(sent for _, sent in self._rounds)
        if share > TARGET + DEAD_BAND:
            self.gamma = min(MOST_GAMMA, self.gamma + 1)
        elif share < TARGET - DEAD_BAND:
            self.gamma = max(LEAST_GAMMA, self.gamma - 1)
