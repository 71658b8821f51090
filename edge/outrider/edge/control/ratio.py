"""Grows the likeliest paths first and never waits for a verdict to draft on: guesses below what has been sent, and
siblings for the case that it is wrong. A step takes in as many texts as pay for themselves.

With an eager verifier all that is likely enough is sent at once. With a patient one a pass is asked for when drafting
on would gain tokens more slowly than the answer as a whole does, and the next one when its verdict is known. Where rows
cost the verifier time, only guesses that are worth their row are sent; see `row_price`.
"""

from __future__ import annotations

import asyncio

from outrider.edge.control.base import Control, DraftBounds, Expand, Send, Step, Wait
from outrider.edge.control.draft_cost import DraftCost
from outrider.edge.control.frontier import Caps, Frontier, Thresholds, survey
from outrider.edge.control.row_price import RowPrice
from outrider.shared.errors import OutriderError, Reason
from outrider.shared.messages import Commit
from outrider.shared.token_tree import DraftTree, Node

CHILDREN = 3
MAX_TEXTS = 8
# Least probability of a path that is grown, and of one that is sent where rows are free.
LEAST_EXPANDED, LEAST_SENT = 0.003, 0.006
# How often one of a right node's children is right too: what a step is expected to gain.
CHILD_RIGHT = 0.9
# Share of the running rate's past that a commit leaves: the last ten or so count.
KEPT = 0.9


class RatioControl(Control):
    """A further text is taken into a step while the probability that its path is right, over that of the likeliest one,
    is no less than its share of the step's cost. A pass is asked for (`eager` is false) when the tokens expected of the
    next step, over its time, are fewer than the running rate of committed tokens.

    No path longer than `gamma` is sent; what is drafted beyond waits for the root to come nearer. A node that is
    expanded gets `branch` children, and no more are sent of it. None is no limit. `price` may outlive the answer.
    """

    def __init__(
        self,
        gamma: int | None = None,
        branch: int | None = None,
        *,
        eager: bool = True,
        price: RowPrice | None = None,
    ) -> None:
        self._caps = Caps(gamma, branch)
        self._children = branch or CHILDREN
        self._eager = eager
        self._cost = DraftCost()
        self._rate = _Rate()
        self._price = RowPrice() if price is None else price
        self._live = 0
        self._has_answered = False
        self._fresh: list[Commit] = []

    def next_step(self, tree: DraftTree, bounds: DraftBounds) -> Step:
        """See `Control.next_step`."""
        self._learn_price(tree)
        least = max(LEAST_SENT, self._price.least_probability)
        first = self._price.least_first_probability
        frontier = survey(tree, bounds, Thresholds(LEAST_EXPANDED, least, first), self._caps)
        room = self._price.most_nodes - tree.live_count
        unsent = frontier.unsent[: max(0, room)]
        texts = self._worth_drafting(frontier) if tree.live_count < bounds.window else []
        is_due = not self._eager and self._asks_for_pass(tree, texts, least)
        if unsent and (self._eager or is_due or len(frontier.unsent) >= room):
            self._live = tree.live_count + len(unsent)
            return Send(tuple(node for _, node in unsent))
        self._live = tree.live_count
        # A pass that is due, and for which no guess is worth its row, is asked for by waiting.
        if not texts or (is_due and first > LEAST_SENT and self._cost.step_s(1) is not None):
            return Wait()
        return Expand(tuple(node for _, node in texts), self._children)

    def check_fits(self, window: int) -> None:
        """See `Control.check_fits`: it keeps to any window, but a limit that it could never reach is a mistake."""
        if self._caps.path is not None and self._caps.path > window:
            raise OutriderError(
                Reason.USAGE, f"gamma {self._caps.path} is more than the verifier's window of {window}."
            )

    def go_eager(self) -> None:
        """See `Control.go_eager`."""
        self._eager = True

    def on_break(self) -> None:
        """See `Control.on_break`."""
        self._rate.skip()
        self._fresh, self._live = [], 0

    def on_drafted(self, text_count: int, took_s: float) -> None:
        """See `Control.on_drafted`."""
        self._cost.observe(text_count, took_s)

    def on_commit(self, commit: Commit) -> None:
        """See `Control.on_commit`."""
        now_s = asyncio.get_running_loop().time()
        self._rate.observe(commit.committed_length - commit.base, now_s, commit.queue_ns / 1e9)
        # The first one's time is also that of the passes that read the prompt.
        if self._has_answered:
            self._fresh.append(commit)
        self._has_answered = True

    def _learn_price(self, tree: DraftTree) -> None:
        """Nodes that have left the tree were in these passes, but for those that were still on their way."""
        if self._fresh:
            were_checked = any(commit.checked_count for commit in self._fresh)
            self._price.observe(self._fresh, self._live - tree.live_count if were_checked else 0)
            self._fresh = []

    def _worth_drafting(self, frontier: Frontier) -> list[tuple[float, Node]]:
        if not frontier.open:
            return []
        least = frontier.open[0][0] * self._cost.further_share
        return [entry for entry in frontier.open[:MAX_TEXTS] if entry[0] >= least]

    def _asks_for_pass(self, tree: DraftTree, texts: list[tuple[float, Node]], least: float) -> bool:
        if tree.live_count:
            return False
        rate, step_s = self._rate.tokens_per_s, self._cost.step_s(len(texts))
        if not texts or rate is None or step_s is None:
            return True
        deepest = self._caps.deepest(tree)
        chances = (CHILD_RIGHT * probability for probability, node in texts if node.position < deepest)
        return sum(chance for chance in chances if chance >= least) <= rate * step_s


class _Rate:
    """Committed tokens per second, lately."""

    def __init__(self) -> None:
        self._last_s: float | None = None
        self._tokens = self._seconds = 0.0

    def observe(self, tokens: int, now_s: float, waited_s: float) -> None:
        """`tokens` were committed now, after their pass had to wait for others. That time does not count: if each took
        longer because the others do, all would. Nor does what came before the first commit, when the prompt was read.
        """
        if self._last_s is not None:
            self._tokens = KEPT * self._tokens + tokens
            self._seconds = KEPT * self._seconds + max(0.0, now_s - self._last_s - waited_s)
        self._last_s = now_s

    def skip(self) -> None:
        """The time until the next commit does not count."""
        self._last_s = None

    @property
    def tokens_per_s(self) -> float | None:
        """None until it is known."""
        return self._tokens / self._seconds if self._seconds > 0 else None
