"""How the edge drafts one answer: the drafting options, checked, and the policy they describe."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.edge.control.base import Control
from outrider.edge.control.fixed import FixedControl
from outrider.edge.control.proportional import ProportionalControl
from outrider.edge.control.ratio import RatioControl
from outrider.edge.drafters.spec import DEFAULT_DRAFTER
from outrider.shared.errors import OutriderError, Reason

CONTROLS = ("fixed", "proportional", "ratio")
PACES = ("patient", "eager")
NO_DRAFTER = "none"
LOOKUP = "lookup"


@dataclass(frozen=True, slots=True)
class Drafting:
    """How the edge drafts: the drafting flags of the command line. Without a `pace`, a drafter is given time
    (patient) and the verifier goes on alone where there is none (eager).
    """

    drafter: str = DEFAULT_DRAFTER
    control: str = "fixed"
    gamma: int = 5
    branch: int = 1
    pace: str | None = None

    @property
    def model(self) -> str:
        """What `drafter` says without lookups; "none" if that is all there is."""
        return "+".join(part for part in self.drafter.split("+") if part != LOOKUP) or NO_DRAFTER

    @property
    def has_lookup(self) -> bool:
        """Whether lookups in what has been read and written guess too."""
        return LOOKUP in self.drafter.split("+")

    @property
    def is_eager(self) -> bool:
        """Whether the verifier goes on by itself."""
        return self.pace == "eager" if self.pace else self.drafter == NO_DRAFTER

    def make_control(self) -> Control:
        """The policy of one answer; raises USAGE for a value that is not possible."""
        for name in ("gamma", "branch"):
            if type(getattr(self, name)) is not int:
                raise OutriderError(Reason.USAGE, f"{name} = {getattr(self, name)!r}: expected a whole number.")
        for name, known in (("control", CONTROLS), ("pace", (None, *PACES))):
            if getattr(self, name) not in known:
                expected = ", ".join(value for value in known if value)
                raise OutriderError(Reason.USAGE, f"--{name} {getattr(self, name)!r}: expected one of {expected}.")
        match self.control:
            case "fixed":
                return FixedControl(self.gamma, self.branch)
            case "proportional":
                return ProportionalControl(self.gamma, self.branch)
            case _:
                return RatioControl(eager=self.is_eager)

    def settings(self) -> dict[str, str | int]:
        """What is really in effect, as results and logs say it."""
        return {
            "drafter": self.drafter,
            "control": self.control,
            "gamma": self.gamma,
            "branch": self.branch,
            "pace": "eager" if self.is_eager else "patient",
        }
