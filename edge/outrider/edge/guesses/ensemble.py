"""Several drafters' say on one token: a mixture whose shares follow how likely each of them held what the target chose.
Every answered position scores all that spoke there, and the mixture, whoever's guess was sent. What comes first is what
the one with the best record puts first, so that a good drafter is not outvoted by worse ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

# Share of a new position, once enough have been seen: the last fifty or so count.
NEWEST = 0.02
# No drafter's share falls below this: it may be the better one for the next text.
LEAST_SHARE = 0.01
# Share of the records that a position leaves, and by how many right guesses to be ahead of the one named first.
KEPT, LEAD = 0.999, 2.0
MIXTURE = "mixture"
# What a drafter is taken to have held of a token that it did not name.
UNNAMED = 1e-3


@dataclass(frozen=True, slots=True)
class Opinion:
    """What one drafter thinks of the next token: chances by token. One that is `partial` (a lookup) thinks of its own
    tokens only, and leaves the rest of the chance to what others say.
    """

    name: str
    chances: Mapping[int, float]
    partial: bool = False


class Ensemble:
    """The shares, by name of drafter; they outlive answers. `answered` counts positions of late that several drafters
    spoke of.
    """

    def __init__(self, shares: Mapping[str, float] | None = None) -> None:
        self._shares = dict(shares or {})
        self._seen: dict[str, int] = {}
        self._records: dict[str, float] = {}
        self.answered = 0.0

    def mixed(self, opinions: Sequence[Opinion]) -> dict[int, float]:
        """The chance of every token that somebody named."""
        if not opinions:
            return {}
        if len(opinions) == 1:
            return dict(opinions[0].chances)
        chances = self._mixture(opinions)
        experts = self._experts(opinions, chances)
        # The one named first leads until another is clearly ahead of it.
        named_first = next(iter(experts))
        leader = experts[max(experts, key=lambda name: self._records.get(name, 0.0) + LEAD * (name == named_first))]
        first = max(chances, key=lambda token: chances[token])
        chances[leader], chances[first] = chances[first], chances[leader]
        return chances

    def _mixture(self, opinions: Sequence[Opinion]) -> dict[int, float]:
        columns = self._columns(opinions, _tokens(opinions))
        weights = self._weights(opinions)
        return {
            token: sum(weight * column[token] for weight, column in zip(weights, columns, strict=True))
            for token in columns[0]
        }

    def observe(self, opinions: Sequence[Opinion], chosen: int) -> None:
        """The target chose `chosen`: a step of expectation maximisation, recent positions counting more."""
        if len(opinions) < 2:
            return
        experts = self._experts(opinions, self._mixture(opinions))
        if len(experts) > 2:
            self.answered = KEPT * self.answered + 1
            for name, first in experts.items():
                self._records[name] = KEPT * self._records.get(name, 0.0) + (first == chosen)
        columns = self._columns(opinions, [*_tokens(opinions), chosen])
        weights = self._weights(opinions)
        owed = [weight * max(column[chosen], UNNAMED) for weight, column in zip(weights, columns, strict=True)]
        among_these = sum(self._share(opinion.name) for opinion in opinions)
        for opinion, part in zip(opinions, owed, strict=True):
            name = opinion.name
            self._seen[name] = self._seen.get(name, 0) + 1
            share = self._share(name)
            step = max(NEWEST, 1 / (self._seen[name] + 4))
            self._shares[name] = max(LEAST_SHARE, share + step * (among_these * part / sum(owed) - share))

    def best(self, names: Sequence[str]) -> str:
        """Who of these was right most often of late; of equals the one named first."""
        return max(names, key=lambda name: self._records.get(name, 0.0))

    def rate(self, name: str | None) -> float:
        """How often the first choice of that drafter, or (None) of the mixture, was right of late, 0..1."""
        return self._records.get(name or MIXTURE, 0.0) / max(1.0, self.answered)

    def shares(self) -> dict[str, float]:
        """Shares by name, to be kept and to be shown."""
        return dict(self._shares)

    def _experts(self, opinions: Sequence[Opinion], mixture: Mapping[int, float]) -> dict[str, int]:
        """What each member that speaks of everything puts first, and the mixture."""
        firsts = {
            opinion.name: max(opinion.chances, key=lambda token: opinion.chances[token])
            for opinion in opinions
            if not opinion.partial and opinion.chances
        }
        return {**firsts, MIXTURE: max(mixture, key=lambda token: mixture[token])}

    def _share(self, name: str) -> float:
        return self._shares.setdefault(name, 0.5)

    def _weights(self, opinions: Sequence[Opinion]) -> list[float]:
        shares = [self._share(opinion.name) for opinion in opinions]
        return [share / sum(shares) for share in shares]

    def _columns(self, opinions: Sequence[Opinion], tokens: Iterable[int]) -> list[dict[int, float]]:
        """Each opinion as a chance for each of `tokens`."""
        whole = [opinion for opinion in opinions if not opinion.partial]
        others = self._mixture(whole) if whole and len(whole) < len(opinions) else {}
        wanted = list(dict.fromkeys(tokens))
        return [_completed(opinion, others, wanted) for opinion in opinions]


def _tokens(opinions: Sequence[Opinion]) -> list[int]:
    return [token for opinion in opinions for token in opinion.chances]


def _completed(opinion: Opinion, others: Mapping[int, float], tokens: Sequence[int]) -> dict[int, float]:
    if not opinion.partial:
        return {token: opinion.chances.get(token, 0.0) for token in tokens}
    # What it did not name is as likely as the others say, within the chance that it leaves.
    left = max(0.0, 1.0 - sum(opinion.chances.values()))
    theirs = max(1e-9, 1.0 - sum(others.get(token, 0.0) for token in opinion.chances))
    scale = left / theirs
    return {
        token: opinion.chances[token] if token in opinion.chances else min(1.0, scale * others.get(token, 0.0))
        for token in tokens
    }
