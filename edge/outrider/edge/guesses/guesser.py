"""Turns what one answer's drafters propose at a place in the text into guesses with chances, and learns from what the
target chose there. It knows neither tree nor link.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from outrider.edge.drafters.base import Proposal
from outrider.edge.guesses.calibration import History
from outrider.edge.guesses.draft_temperature import AUTO, FixedTemperature, reheated
from outrider.edge.guesses.ensemble import Opinion
from outrider.edge.guesses.experience import Experience
from outrider.edge.guesses.ngram_cache import NgramCache

LOOKUP_NAME = "lookup"
# Proposals to ask each drafter for: as many as another temperature or the cache may bring to the front.
ASKED = 8


@dataclass(frozen=True, slots=True)
class GuessOptions:
    """How proposals become guesses: the draft temperature (see `parse_draft_temperature`) and whether n-grams of the
    answer are mixed in.
    """

    draft_temperature: float | str = AUTO
    ngram_cache: bool = False


@dataclass(slots=True)
class Said:
    """What was said at one place: by each member its proposals as they came, as they were shaped, and the history they
    were judged with; and by a lookup its token and chance. A member that said nothing has no entry.
    """

    raw: dict[str, list[Proposal]] = field(default_factory=dict)
    shaped: dict[str, list[Proposal]] = field(default_factory=dict)
    opinions: list[Opinion] = field(default_factory=list)
    histories: dict[str, History] = field(default_factory=dict)


class Guesser:
    """One answer's; `members` are the names of its drafters, `sampling` tells apart options that need another draft
    temperature ("" where no temperature changes a guess).
    """

    def __init__(self, experience: Experience, members: Sequence[str], options: GuessOptions, sampling: str) -> None:
        self.roster = experience.roster
        self._experience = experience
        self._histories = {name: History() for name in members}
        self._cache = NgramCache() if options.ngram_cache else None
        self._temperatures = {
            name: experience.temperature(name, sampling, options.draft_temperature) if sampling else FixedTemperature(1)
            for name in members
        }

    def read(self, token: int) -> None:
        """The committed answer goes on with `token`."""
        if self._cache is not None:
            self._cache.read(token)

    def hear(self, said: Said, text: Sequence[int], member: str, proposals: list[Proposal], heat: float | None) -> None:
        """A member proposes this after the answer `text`; `heat` is a draft temperature to use in place of its own."""
        if not proposals:
            return
        shaped = reheated(proposals, self._temperatures[member].value if heat is None else heat)
        if self._cache is not None:
            shaped = self._cache.blended(shaped, text)
        history = self._histories[member]
        chances = self._experience.calibration(member).calibrated(shaped, history)
        said.raw[member], said.shaped[member] = proposals, shaped
        said.histories[member] = replace(history)
        said.opinions.append(Opinion(member, {p.token: c for p, c in zip(shaped, chances, strict=True)}))

    def hear_lookup(self, said: Said, token: int, chance: float) -> None:
        """A lookup says that `token` comes next."""
        said.opinions.append(Opinion(LOOKUP_NAME, {token: chance}, partial=True))

    def chances(self, said: Said) -> dict[int, float]:
        """All tokens that were named, with their chances, best first."""
        mixed = self._experience.ensemble.mixed(said.opinions)
        return dict(sorted(mixed.items(), key=lambda entry: -entry[1]))

    def drafted(self, said: Said) -> set[int]:
        """The tokens that a drafter named and that the answer's options allow."""
        return {proposal.token for proposals in said.raw.values() for proposal in proposals if proposal.q > 0}

    def learn(self, said: Said, text: Sequence[int], chosen: int) -> None:
        """The target chose `chosen` there, after the answer `text`."""
        self._experience.ensemble.observe(said.opinions, chosen)
        for member, shaped in said.shaped.items():
            self._temperatures[member].observe(said.raw[member], chosen)
            if self._cache is not None:
                self._cache.observe(said.raw[member], text, chosen)
            expected = self._experience.calibration(member).observe(shaped, said.histories[member], chosen)
            self._histories[member].observe(shaped[0].token == chosen, expected)
