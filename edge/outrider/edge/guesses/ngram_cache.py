"""A cache of the n-grams of an answer so far, mixed into what the drafter says: what came after the same few tokens
before may come again. How much it counts is learned for each length, from what the target chose.

Source: Kuhn and De Mori, "A cache-based natural language model for speech recognition" (1990).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence

from outrider.edge.drafters.base import NORMALISED, Proposal

LONGEST = 4
# Tokens of the answer that count.
WINDOW = 512
# The cache's share before anything has been seen, and how many positions that counts as.
FIRST_SHARE, PRIOR_WEIGHT = 0.05, 4.0


class NgramCache:
    """What followed each one to `LONGEST` tokens, in one answer."""

    def __init__(self) -> None:
        self._text: list[int] = []
        self._after: dict[tuple[int, ...], Counter[int]] = {}
        self._seen: deque[tuple[tuple[int, ...], int]] = deque()
        self._shares = [FIRST_SHARE] * (LONGEST + 1)
        self._weights = [PRIOR_WEIGHT] * (LONGEST + 1)

    def read(self, token: int) -> None:
        """The answer goes on with `token`."""
        for length in range(1, min(LONGEST, len(self._text)) + 1):
            context = tuple(self._text[-length:])
            self._after.setdefault(context, Counter())[token] += 1
            self._seen.append((context, token))
        self._text.append(token)
        while len(self._seen) > WINDOW * LONGEST:
            self._forget(*self._seen.popleft())

    def blended(self, proposals: Sequence[Proposal], text: Sequence[int]) -> list[Proposal]:
        """The proposals after the answer `text` with the cache's share in them, best first."""
        found = self._find(text)
        if found is None or not proposals:
            return list(proposals)
        length, counts = found
        share, total = self._shares[length], counts.total()
        mixed: list[tuple[float, float, Proposal]] = []
        for proposal in proposals:
            q = (1 - share) * proposal.q + share * counts[proposal.token] / total
            # Scores are ln q + noise, so a change of ln q is one of the score. What q rules out, the target does too.
            change = q / proposal.q if proposal.q > 0 else 1 - share
            mixed.append((proposal.probability * change, q if proposal.q > 0 else 0.0, proposal))
        mixed.sort(key=lambda entry: -entry[0])
        normaliser = sum(weight for weight, _, _ in mixed[:NORMALISED])
        return [Proposal(proposal.token, weight / normaliser, q) for weight, q, proposal in mixed]

    def observe(self, proposals: Sequence[Proposal], text: Sequence[int], chosen: int) -> None:
        """The target chose `chosen` after `text`, where the drafter alone proposed these: a step of expectation
        maximisation of the share.
        """
        found = self._find(text)
        if found is None:
            return
        length, counts = found
        share = self._shares[length]
        cached = share * counts[chosen] / counts.total()
        drafted = (1 - share) * next((p.q for p in proposals if p.token == chosen), 1e-4)
        owed = cached / (cached + drafted) if cached + drafted > 0 else share
        self._weights[length] += 1
        self._shares[length] += (owed - share) / self._weights[length]

    def _find(self, text: Sequence[int]) -> tuple[int, Counter[int]] | None:
        """What followed the longest ending of `text` that is known, and the ending's length."""
        for length in range(min(LONGEST, len(text)), 0, -1):
            counts = self._after.get(tuple(text[-length:]))
            if counts:
                return length, counts
        return None

    def _forget(self, context: tuple[int, ...], token: int) -> None:
        counts = self._after[context]
        counts[token] -= 1
        if not counts[token]:
            del counts[token]
        if not counts:
            del self._after[context]
