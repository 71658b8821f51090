"""Grows the likeliest paths first and never waits for a verdict to draft on: guesses below what has been sent, and
siblings for the case that it is wrong. A step takes in as many texts as pay for themselves.

With an eager verifier all that is likely enough is sent at once. With a patient one a pass is asked for when drafting
on would gain tokens more slowly than the answer as a whole does, and the next one when its verdict is known.
"""

from __future__ import annotations

import asyncio

from outrider.edge.control.base import Control, DraftBounds, Expand, Send, Step, Wait
from outrider.edge.control.draft_cost import DraftCost
from outrider.edge.control.frontier import Caps, Frontier, Thresholds, survey
from outrider.shared.errors import OutriderError, Reason
from outrider.shared.messages import Commit
from outrider.shared.token_tree import DraftTree, Node

CHILDREN = 3
MAX_TEXTS = 8
THRESHOLDS = Thresholds(expand=0.003, send=0.006)
# Guesses for one pass, at first, at most and at least. A pass that is as full as that, see `load_percent`, asks for
# fewer, one in which rows are free allows more.
FIRST_NODES, MOST_NODES, LEAST_NODES = 8.0, 64.0, 2.0
FREE_PERCENT, FULL_PERCENT = 50, 90
SHRINK, GROW = 0.7, 1.5
# How often one of a right node's children is right too: what a step is expected to gain.
CHILD_RIGHT = 0.9
# Share of the running rate's past that a commit leaves: the last ten or so count.
KEPT = 0.9


class RatioControl(Control):
    """A further text is taken into a step while the probability that its path is right, over that of the likeliest one,
    is no less than its share of the step's cost. A pass is asked for (`eager` is false) when the tokens expected of the
    next step, over its time, are fewer than the running rate of committed tokens.

    No path longer than `gamma` is sent; what is drafted beyond waits for the root to come nearer. A node that is
    expanded gets `branch` children, and no more are sent of it. None is no limit.
    """

    def __init__(self, gamma: int | None = None, branch: int | None = None, *, eager: bool = True) -> None:
        self._caps = Caps(gamma, branch)
        self._children = branch or CHILDREN
        self._eager = eager
        self._cost = DraftCost()
        self._rate = _Rate()
        self._nodes = FIRST_NODES

    def next_step(self, tree: DraftTree, bounds: DraftBounds) -> Step:
        """See `Control.next_step`."""
        frontier = survey(tree, bounds, THRESHOLDS, self._caps)
        room = int(self._nodes) - tree.live_count
        unsent = frontier.unsent[: max(0, room)]
        texts = self._worth_drafting(frontier) if tree.live_count < bounds.window else []
        is_full = len(frontier.unsent) >= room
        if unsent and (self._eager or is_full or self._asks_for_pass(tree, texts)):
            return Send(tuple(node for _, node in unsent))
        return Expand(tuple(node for _, node in texts), self._children) if texts else Wait()

    def check_fits(self, window: int) -> None:
        """See `Control.check_fits`: it keeps to any window, but a limit that it could never reach is a mistake."""
        if self._caps.path is not None and self._caps.path > window:
            raise OutriderError(
                Reason.USAGE, f"gamma {self._caps.path} is more than the verifier's window of {window}."
            )

    def on_drafted(self, text_count: int, took_s: float) -> None:
        """See `Control.on_drafted`."""
        self._cost.observe(text_count, took_s)

    def on_commit(self, commit: Commit) -> None:
        """See `Control.on_commit`."""
        self._rate.observe(commit.committed_length - commit.base, asyncio.get_running_loop().time())
        if commit.load_percent > FULL_PERCENT:
            self._nodes = max(LEAST_NODES, self._nodes * SHRINK)
        elif commit.load_percent <= FREE_PERCENT:
            self._nodes = min(MOST_NODES, self._nodes * GROW)

    def _worth_drafting(self, frontier: Frontier) -> list[tuple[float, Node]]:
        if not frontier.open:
            return []
        least = frontier.open[0][0] * self._cost.further_share
        return [entry for entry in frontier.open[:MAX_TEXTS] if entry[0] >= least]

    def _asks_for_pass(self, tree: DraftTree, texts: list[tuple[float, Node]]) -> bool:
        if tree.live_count:
            return False
        rate, step_s = self._rate.tokens_per_s, self._cost.step_s(len(texts))
        if not texts or rate is None or step_s is None:
            return True
        deepest = self._caps.deepest(tree)
        gain = CHILD_RIGHT * sum(probability for probability, node in texts if node.position < deepest)
        return gain <= rate * step_s


class _Rate:
    """Committed tokens per second, lately."""

    def __init__(self) -> None:
        self._last_s: float | None = None
        self._tokens = self._seconds = 0.0

    def observe(self, tokens: int, now_s: float) -> None:
        """`tokens` were committed now. What came before the first commit is not counted: the prompt was read then."""
        if self._last_s is not None:
            self._tokens = KEPT * self._tokens + tokens
            self._seconds = KEPT * self._seconds + now_s - self._last_s
        self._last_s = now_s

    @property
    def tokens_per_s(self) -> float | None:
        """None until it is known."""
        return self._tokens / self._seconds if self._seconds > 0 else None
