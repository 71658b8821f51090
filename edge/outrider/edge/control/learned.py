"""The ratio rule within limits that a bandit has learned: longest path, children of a node, draft temperature. Limits
that the user gave stand.
"""

from __future__ import annotations

import asyncio

from outrider.edge.control.bandit import Bandit
from outrider.edge.control.frontier import Caps
from outrider.edge.control.ratio import CHILDREN, RatioControl
from outrider.shared.messages import Commit

# Committed tokens of a stretch: long against a round trip's worth of tokens, as guesses of one stretch are still in
# flight when the next one begins.
STRETCH_TOKENS = 48


class LearnedControl(RatioControl):
    """Changes its limits from stretch to stretch of an answer. The first commit, which waits for the prompt, and what
    is left at the end are credited to nothing.
    """

    def __init__(
        self, bandit: Bandit, gamma: int | None = None, branch: int | None = None, *, eager: bool = True
    ) -> None:
        super().__init__(gamma, branch, eager=eager, price=bandit.price)
        self._bandit = bandit
        self._given = Caps(gamma, branch)
        self._began_s: float | None = None
        self._stretch_tokens = 0
        self._pull()

    @property
    def draft_temperature(self) -> float | None:
        """See `Control.draft_temperature`."""
        return self._arm.temperature

    def on_commit(self, commit: Commit) -> None:
        """See `Control.on_commit`."""
        super().on_commit(commit)
        now_s = asyncio.get_running_loop().time()
        if self._began_s is None:
            self._began_s = now_s
            return
        self._stretch_tokens += commit.committed_length - commit.base
        if self._stretch_tokens >= STRETCH_TOKENS:
            self._bandit.credit(self._credited, self._stretch_tokens, 1000 * (now_s - self._began_s))
            self._began_s, self._stretch_tokens = now_s, 0
            self._pull()

    def on_break(self) -> None:
        """See `Control.on_break`: a stretch that a break is part of is credited to nothing."""
        super().on_break()
        self._began_s, self._stretch_tokens = None, 0

    def _pull(self) -> None:
        self._arm, self._credited = self._bandit.pull()
        path = self._given.path or self._arm.path
        self._children = self._given.children or self._arm.children or CHILDREN
        self._caps = Caps(path, self._given.children or self._arm.children)
