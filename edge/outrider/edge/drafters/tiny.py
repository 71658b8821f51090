"""The pseudo language model as drafter, for tests and for measuring what everything but models costs."""

from __future__ import annotations

from collections.abc import Sequence

from outrider.edge.drafters.base import NORMALISED, Proposal, as_proposals
from outrider.shared.ids import common_length
from outrider.shared.sampling.choose import Chooser
from outrider.shared.tiny import HASH_START, hash_push, state_logits, tiny_vocabulary
from outrider.shared.vocabulary import Vocabulary


class TinyDrafter:
    """See `Drafter`. `deviation` 0 agrees with the tiny target always, larger ones less often."""

    def __init__(self, deviation: float) -> None:
        self._deviation = deviation
        self._vocabulary = tiny_vocabulary()

    @property
    def name(self) -> str:
        """See `Drafter.name`."""
        return f"tiny-{self._deviation:g}"

    @property
    def vocabulary(self) -> Vocabulary | None:
        """See `Drafter.vocabulary`."""
        return self._vocabulary

    def open(self, prompt_ids: Sequence[int], chooser: Chooser) -> TinyDraftSession:
        """See `Drafter.open`."""
        return TinyDraftSession(list(prompt_ids), chooser, self._deviation)

    async def close(self) -> None:
        """See `Drafter.close`."""


class TinyDraftSession:
    """See `DraftSession`. Hash states are kept along the text, as a real drafter keeps keys and values."""

    def __init__(self, prompt_ids: list[int], chooser: Chooser, deviation: float) -> None:
        self._chooser = chooser
        self._deviation = deviation
        self._text: list[int] = []
        state = HASH_START
        for token in prompt_ids:
            state = hash_push(state, token)
        self._states = [state]

    async def propose(self, texts: Sequence[Sequence[int]], count: int) -> list[list[Proposal]]:
        """See `DraftSession.propose`."""
        return [self._propose(text, count) for text in texts]

    async def close(self) -> None:
        """See `DraftSession.close`."""

    def _propose(self, answer_ids: Sequence[int], count: int) -> list[Proposal]:
        kept = common_length(self._text, answer_ids)
        del self._text[kept:], self._states[kept + 1 :]
        for token in answer_ids[kept:]:
            self._text.append(token)
            self._states.append(hash_push(self._states[-1], token))
        logits = state_logits(self._states[-1], self._deviation)
        return as_proposals(self._chooser.rank(logits, answer_ids, max(count, NORMALISED)), count)
