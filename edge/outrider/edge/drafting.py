"""How the edge drafts one answer: the drafting options, checked, and the policy they describe."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from outrider.edge.control.bandit import Bandit
from outrider.edge.control.base import Control
from outrider.edge.control.fixed import BRANCH, GAMMA, FixedControl
from outrider.edge.control.learned import LearnedControl
from outrider.edge.control.proportional import ProportionalControl
from outrider.edge.control.ratio import CHILDREN, RatioControl
from outrider.edge.drafters.spec import DEFAULT_DRAFTER
from outrider.edge.guesses.draft_temperature import AUTO, parse_draft_temperature
from outrider.edge.guesses.guesser import GuessOptions
from outrider.shared.errors import OutriderError, Reason
from outrider.shared.messages import Limits

CONTROLS = ("fixed", "proportional", "ratio", "learned")
DEFAULT_CONTROL, FIXED = "ratio", "fixed"
PATIENT = "patient"
PACES = (PATIENT, "eager")
NO_DRAFTER = "none"
LOOKUP = "lookup"
# Followed by the path of a text to look up in too.
_CORPUS = f"{LOOKUP}:"
# Mixes the answer's own n-grams into what models say; guesses nothing by itself.
NGRAMS = "ngrams"
WHOLE_NUMBERS = ("gamma", "branch")
# Policies that send a round of guesses and wait.
_ROUNDS = (FIXED, "proportional")


@dataclass(frozen=True, slots=True)
class Drafting:
    """How the edge drafts: the drafting flags of the command line. Without a `control` it is `ratio`, and `fixed` where
    a `gamma` is given. Without a `pace`, a drafter is given time (patient) for as long as that pays, see `pace`, and
    the verifier goes on alone where there is none (eager). No path longer than `gamma` is sent, and no
    node gets more than `branch` children; without them `fixed` and `proportional` send chains of 5, and `ratio` trees
    without a limit to their paths. `draft_temperature` is over that of the answer: a number, "auto" or "kl".
    """

    drafter: str = DEFAULT_DRAFTER
    control: str | None = None
    gamma: int | None = None
    branch: int | None = None
    pace: str | None = None
    draft_temperature: float | str = AUTO

    @property
    def models(self) -> tuple[str, ...]:
        """What guesses beside lookups: the parts of `drafter` that name a drafter."""
        return tuple(part for part in self._parts if part not in (NGRAMS, NO_DRAFTER) and not _is_lookup(part))

    @property
    def has_lookup(self) -> bool:
        """Whether lookups in what has been read and written guess too."""
        return any(map(_is_lookup, self._parts))

    @property
    def corpus(self) -> Path | None:
        """The text that lookups search as well; raises USAGE for several."""
        paths = list(dict.fromkeys(part.removeprefix(_CORPUS) for part in self._parts if part.startswith(_CORPUS)))
        if len(paths) > 1 or paths == [""]:
            raise OutriderError(Reason.USAGE, f"--drafter {self.drafter!r}: {_CORPUS} takes the path of one text file.")
        return Path(paths[0]) if paths else None

    @property
    def _parts(self) -> list[str]:
        return self.drafter.split("+")

    @property
    def policy(self) -> str:
        """The policy in effect."""
        return self.control or (DEFAULT_CONTROL if self.gamma is None else FIXED)

    @property
    def may_change_pace(self) -> bool:
        """Whether an answer that waits for guesses may go on eagerly where that does not pay."""
        return self.pace is None and self.policy not in _ROUNDS and not self.is_eager

    @property
    def is_eager(self) -> bool:
        """Whether the verifier goes on by itself."""
        return self.pace == "eager" if self.pace else self.drafter == NO_DRAFTER

    def under(self, limits: Limits) -> Drafting:
        """The same as far as a verifier allows it."""
        return self if limits.allows_eager else replace(self, pace=PATIENT)

    def make_control(self, bandit: Bandit | None = None) -> Control:
        """The policy of one answer; a learning one goes on from `bandit`. Raises USAGE for an impossible value."""
        for name in WHOLE_NUMBERS:
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < 1):
                raise OutriderError(Reason.USAGE, f"{name} = {value!r}: expected a whole number, at least 1.")
        for name, known in (("control", (None, *CONTROLS)), ("pace", (None, *PACES))):
            if getattr(self, name) not in known:
                expected = ", ".join(value for value in known if value)
                raise OutriderError(Reason.USAGE, f"--{name} {getattr(self, name)!r}: expected one of {expected}.")
        self.guess_options()
        _ = self.corpus
        match self.policy:
            case "fixed":
                return FixedControl(self.gamma or GAMMA, self.branch or BRANCH)
            case "proportional":
                return ProportionalControl(self.gamma or GAMMA, self.branch or BRANCH)
            case "learned":
                return LearnedControl(bandit or Bandit(), self.gamma, self.branch, eager=self.is_eager)
            case _:
                return RatioControl(
                    self.gamma, self.branch, eager=self.is_eager, price=bandit.price if bandit else None
                )

    def guess_options(self) -> GuessOptions:
        """How what drafters say becomes guesses; raises USAGE."""
        return GuessOptions(parse_draft_temperature(str(self.draft_temperature)), ngram_cache=NGRAMS in self._parts)

    def settings(self) -> dict[str, str | int | float | None]:
        """What is really in effect, as results and logs say it; None is no limit."""
        in_rounds = self.policy in _ROUNDS
        return {
            "drafter": self.drafter,
            "control": self.policy,
            "gamma": self.gamma or (GAMMA if in_rounds else None),
            "branch": self.branch or (BRANCH if in_rounds else CHILDREN),
            "pace": "eager" if self.is_eager else "patient",
            "draft_temperature": self.guess_options().draft_temperature,
        }


def _is_lookup(part: str) -> bool:
    return part == LOOKUP or part.startswith(_CORPUS)
