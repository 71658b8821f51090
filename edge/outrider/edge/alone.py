"""What an answer says while no verifier can be reached: the likeliest path below the last committed token, drafted on
as the text so far. It stays a path of guesses in the tree, so a verifier that comes back checks it like any other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from outrider.shared.token_tree import DraftTree, Node

# A verifier that is only being left for the next one is back by then.
ALONE_AFTER_S = 1.0


class Alone:
    """Of one answer. `is_due` says when its text goes on here, and `wake` is called then: not as long as a verifier may
    be back at once. `end` it.
    """

    def __init__(self, tree: DraftTree, stop_ids: frozenset[int], wake: Callable[[], None]) -> None:
        self._tree = tree
        self._stop_ids = stop_ids
        self._wake = wake
        self._timer: asyncio.TimerHandle | None = None
        self.is_due = False
        self._tip = tree.root
        # A stop text ends what has been said; the drafter has nothing more to say.
        self._is_stopped = self._is_stuck = False

    def begin(self) -> None:
        """No verifier is at hand; told again, it counts from the first time."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(ALONE_AFTER_S, self._come_due)

    def end(self) -> None:
        """A verifier is at hand again, or nothing more is wanted."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        self.is_due = False

    def _come_due(self) -> None:
        self.is_due = True
        self._wake()

    @property
    def tip(self) -> Node:
        """The last node that has been said, the root if the text has passed it or gone another way."""
        if not self._tree.is_live(self._tip):
            self._tip = self._tree.root
            self._is_stopped = self._is_stuck = False
        return self._tip

    @property
    def has_said(self) -> bool:
        """Whether something has been said that no verifier has answered yet."""
        return self.tip is not self._tree.root

    def say_next(self, child: Node | None) -> None:
        """Move on to that child of the tip; without one there is nothing more to say."""
        self._is_stuck = child is None
        self._tip = child or self.tip

    def stop(self) -> None:
        """A stop text ends what has been said."""
        self._is_stopped = self.has_said

    def is_complete(self, end: int) -> bool:
        """Whether what has been said ends the answer, which has room for `end` tokens."""
        return self.has_said and (self.is_at_stop or self.tip.position + 1 >= end)

    @property
    def is_at_stop(self) -> bool:
        """Whether a stop text or a stop id ends what has been said."""
        return self.has_said and (self._is_stopped or self.tip.token in self._stop_ids)

    def can_go_on(self, end: int) -> bool:
        """Whether there is more to be said."""
        return not self._is_stuck and not self.is_complete(end)
