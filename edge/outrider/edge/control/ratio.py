"""Grows the likeliest paths first and never waits for a verdict to draft on: guesses below what has been sent, and
siblings for the case that it is wrong. A step takes in as many texts as pay for themselves.
"""

from __future__ import annotations

from outrider.edge.control.base import Control, DraftBounds, Expand, Send, Step, Wait
from outrider.edge.control.draft_cost import DraftCost
from outrider.edge.control.frontier import Thresholds, survey
from outrider.shared.token_tree import DraftTree

CHILDREN = 3
MAX_TEXTS = 8
THRESHOLDS = Thresholds(expand=0.01, send=0.02)


class RatioControl(Control):
    """Draft one more text in a step while the probability that its path is right, over that of the likeliest one, is no
    less than its share of the step's cost.
    """

    def __init__(self) -> None:
        self._cost = DraftCost()

    def next_step(self, tree: DraftTree, bounds: DraftBounds) -> Step:
        """See `Control.next_step`."""
        frontier = survey(tree, bounds, THRESHOLDS)
        if frontier.unsent:
            return Send(tuple(node for _, node in frontier.unsent))
        if not frontier.open or tree.live_count >= bounds.window:
            return Wait()
        best, _ = frontier.open[0]
        least = best * self._cost.further_share
        texts = [node for probability, node in frontier.open[:MAX_TEXTS] if probability >= least]
        return Expand(tuple(texts), CHILDREN)

    def check_fits(self, window: int) -> None:
        """See `Control.check_fits`: it keeps to any window."""

    def on_drafted(self, text_count: int, took_s: float) -> None:
        """See `Control.on_drafted`."""
        self._cost.observe(text_count, took_s)
