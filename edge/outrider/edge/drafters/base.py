"""What proposes tokens: drafters answer one question, which tokens may follow this text. They know nothing of trees,
links or when they are asked.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from outrider.shared.sampling.choose import Candidate, Chooser
from outrider.shared.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class Proposal:
    """A guess: `probability` in 0..1 is the drafter's own estimate that the target chooses `token`, shared noise and
    all; `q` is the token's probability without it, 0 where the answer's options rule it out.
    """

    token: int
    probability: float
    q: float = 1.0


# Candidates over which likelihoods are normalised: as many as recordings hold off the path.
NORMALISED = 4


def as_proposals(ranked: Sequence[Candidate], count: int) -> list[Proposal]:
    """The first `count` of the candidates that the shared rule ranks best, each with the chance that the target chooses
    it. Rank at least `NORMALISED`.

    Both models add the same noise, so what counts is how far a candidate's score, noise included, lies behind the best
    one's: the chances are taken to fall with exp(-distance). On the shipped recordings that is right to within four
    percentage points on average; at temperature 1 the best guess's own q is ten too low.
    """
    # What truncation has ruled out here it may not have there, so such candidates count by their distance as well.
    weights = [math.exp(-abs(candidate.margin)) if rank else 1.0 for rank, candidate in enumerate(ranked)]
    total = sum(weights[:NORMALISED])
    shares = (weight / total for weight in weights)
    return [Proposal(c.token, share, c.probability) for c, share in zip(ranked[:count], shares, strict=False)]


class DraftSession(Protocol):
    """One answer's drafting. Calls may go back to any shorter text; the session rolls itself back."""

    async def propose(self, texts: Sequence[Sequence[int]], count: int) -> list[list[Proposal]]:
        """For each of `texts` (answer ids after the prompt, all different) up to `count` different guesses at the token
        that follows, best first. One step of the drafter, which may take little longer for several texts than for one.

        Empty where the drafter has nothing to say (its context is full, its reference has ended).
        """
        ...

    async def close(self) -> None:
        """Give back what the session holds; may be called twice."""
        ...


async def propose_one(session: DraftSession, answer_ids: Sequence[int], count: int) -> list[Proposal]:
    """The guesses after a single text; see `DraftSession.propose`."""
    (proposals,) = await session.propose([answer_ids], count)
    return proposals


class Drafter(Protocol):
    """Opens drafting sessions."""

    @property
    def name(self) -> str:
        """For people, and for `draft_model` in results."""
        ...

    @property
    def vocabulary(self) -> Vocabulary | None:
        """The vocabulary it proposes from; None for one that proposes any id it has seen."""
        ...

    def open(self, prompt_ids: Sequence[int], chooser: Chooser) -> DraftSession:
        """Begin an answer to `prompt_ids`; `chooser` is the rule by which the target will choose."""
        ...

    async def close(self) -> None:
        """Free the drafter."""
        ...
