"""What answers of the tiny model are made of on a virtual clock: the text that the model alone would write, and a
drafter that takes its time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from outrider.edge.drafters.base import DraftSession, Proposal
from outrider.shared.messages import Open
from outrider.shared.sampling.choose import Chooser
from outrider.shared.tiny import HASH_START, TINY_SIZE, hash_push, state_logits, tiny_vocabulary


def chooser_of(request: Open) -> Chooser:
    """The rule by which the target chooses."""
    return Chooser(request.sampling, request.seed, request.prompt_ids, TINY_SIZE)


def target_alone(request: Open) -> list[int]:
    """The answer without any of the product around the model: one choice after the other."""
    chooser, stop_ids = chooser_of(request), tiny_vocabulary().stop_ids
    state, answer = HASH_START, list[int]()
    for token in request.prompt_ids:
        state = hash_push(state, token)
    while len(answer) < request.max_tokens and not (answer and answer[-1] in stop_ids):
        answer.append(chooser.choose(state_logits(state), answer).token)
        state = hash_push(state, answer[-1])
    return answer


class PacedDraft:
    """A drafting session whose steps take `step_ms` of the loop's clock."""

    def __init__(self, inner: DraftSession, step_ms: float) -> None:
        self._inner = inner
        self._step_ms = step_ms

    async def propose(self, texts: Sequence[Sequence[int]], count: int) -> list[list[Proposal]]:
        """See `DraftSession.propose`."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        proposals = await self._inner.propose(texts, count)
        await asyncio.sleep(began_s + self._step_ms / 1000 - loop.time())
        return proposals

    async def close(self) -> None:
        """See `DraftSession.close`."""
        await self._inner.close()
