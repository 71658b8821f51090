"""A drafter that knows the answer and is told how often to be right: it makes every outcome of verification happen on
demand, for tests and for measuring.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from outrider.edge.drafters.base import Proposal
from outrider.shared.errors import OutriderError, Reason
from outrider.shared.sampling.choose import Chooser
from outrider.shared.vocabulary import Vocabulary

ALWAYS = -1


@dataclass(frozen=True, slots=True)
class Script:
    """Right for `right_count` tokens in a row (`ALWAYS`: for ever), then wrong for one, and again."""

    right_count: int


def parse_script(text: str) -> Script:
    """`right`, `wrong` or `right-then-wrong:N`; raises USAGE."""
    kind, _, count = text.partition(":")
    if kind == "right" and not count:
        return Script(ALWAYS)
    if kind == "wrong" and not count:
        return Script(0)
    if kind == "right-then-wrong" and count.isdecimal():
        return Script(int(count))
    raise OutriderError(Reason.USAGE, f"scripted:{text}: expected right, wrong or right-then-wrong:N.")


class ScriptedDrafter:
    """Proposes along a reference answer. `references` maps a prompt to the target's answer ids, stop id included.

    Off the reference, where it was wrong before, it goes on with the reference's token at that position.
    """

    def __init__(self, script: Script, vocabulary_size: int) -> None:
        self.references: dict[tuple[int, ...], Sequence[int]] = {}
        self._script = script
        self._size = vocabulary_size

    @property
    def name(self) -> str:
        """See `Drafter.name`."""
        return f"scripted({self._script.right_count})"

    @property
    def vocabulary(self) -> Vocabulary | None:
        """See `Drafter.vocabulary`."""
        return None

    def open(self, prompt_ids: Sequence[int], chooser: Chooser) -> ScriptedSession:
        """See `Drafter.open`; raises DRAFTER_UNUSABLE for a prompt without a reference."""
        reference = self.references.get(tuple(prompt_ids))
        if reference is None:
            raise OutriderError(Reason.DRAFTER_UNUSABLE, "a scripted drafter needs the target's answer first.")
        return ScriptedSession(reference, self._script, self._size)

    async def close(self) -> None:
        """See `Drafter.close`."""


class ScriptedSession:
    """See `DraftSession`."""

    def __init__(self, reference: Sequence[int], script: Script, size: int) -> None:
        self._reference = reference
        self._script = script
        self._size = size

    async def propose(self, texts: Sequence[Sequence[int]], count: int) -> list[list[Proposal]]:
        """See `DraftSession.propose`; wrong guesses are the ids that follow the right one."""
        return [self._propose(len(text), count) for text in texts]

    async def close(self) -> None:
        """See `DraftSession.close`."""

    def _propose(self, position: int, count: int) -> list[Proposal]:
        if position >= len(self._reference):
            return []
        right = self._reference[position]
        period = self._script.right_count + 1
        is_right = self._script.right_count == ALWAYS or position % period < self._script.right_count
        first = 0 if is_right else 1
        chances = [0.5 / (1 + offset) for offset in range(first, first + count)]
        tokens = [(right + offset) % self._size for offset in range(first, first + count)]
        return [Proposal(token, chance, chance) for token, chance in zip(tokens, chances, strict=True)]
