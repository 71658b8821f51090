"""A/B on live traffic: sends a share of the requests another way and logs what each answer cost. The text never
depends on the arm, as the target chooses every token.
"""

from __future__ import annotations

import dataclasses
import random
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from outrider.edge.answer import Answer
from outrider.edge.chunks import Result
from outrider.edge.drafting import NO_DRAFTER, WHOLE_NUMBERS, Drafting
from outrider.edge.experiment_log import LOG_VERSION, ExperimentLog, LogLine
from outrider.shared.errors import OutriderError, Reason
from outrider.shared.messages import FinishReason

PLAIN = "plain"
# Not the seeded generator of the module: a program that seeds that one would send the same requests the same way.
_random = random.SystemRandom()


@dataclass(frozen=True, slots=True)
class Experiment:
    """A share (0..1) of the requests is drafted as `arm_b` says instead of as the agent's own drafting, arm a.

    `log` is the file to which each answer adds a line. Raises USAGE for a value that is not possible.
    """

    name: str
    share: float
    arm_b: Drafting
    log: Path | str | None = None

    def __post_init__(self) -> None:
        self._check("name", isinstance(self.name, str) and self.name.strip() and self.name.isprintable(), "a name")
        is_number = isinstance(self.share, int | float) and not isinstance(self.share, bool)
        self._check("share", is_number and 0 <= self.share <= 1, "a number from 0 to 1")
        self._check("arm_b", isinstance(self.arm_b, Drafting), "a Drafting")
        self._check("log", self.log is None or isinstance(self.log, Path | str), "a path or None")
        try:
            self.arm_b.make_control()
        except OutriderError as error:
            raise OutriderError(Reason.USAGE, f"arm b of the experiment: {error.detail}") from None

    def _check(self, key: str, is_right: object, expected: str) -> None:
        if not is_right:
            raise OutriderError(Reason.USAGE, f"experiment: {key} = {getattr(self, key)!r}: expected {expected}.")


@dataclass(frozen=True, slots=True)
class Arm:
    """The way one answer goes; outside an experiment there is only arm a, without a name to report."""

    drafting: Drafting
    label: Literal["a", "b"] = "a"
    experiment: str | None = None

    @property
    def stats(self) -> dict[str, object]:
        """What a result says about it: nothing outside an experiment."""
        return {"experiment": self.experiment, "arm": self.label} if self.experiment is not None else {}


class Arms:
    """The arms of one agent: picks one for each request and records what became of it."""

    def __init__(self, arm_a: Drafting, experiment: Experiment | None) -> None:
        """Raises USAGE for an arm b that would need a drafter of its own."""
        self._arm_a = arm_a
        self._experiment = experiment
        self._log = None
        if experiment is None:
            return
        if experiment.arm_b.models not in (arm_a.models, ()):
            raise OutriderError(
                Reason.USAGE,
                f"arm b of the experiment: drafter = {experiment.arm_b.drafter!r}: both arms share one loaded drafter;"
                f" expected {arm_a.drafter!r} or {NO_DRAFTER!r}.",
            )
        if experiment.arm_b.corpus not in (arm_a.corpus, None):
            raise OutriderError(
                Reason.USAGE,
                f"arm b of the experiment: drafter = {experiment.arm_b.drafter!r}: both arms share one text to look up"
                f" in; expected that of {arm_a.drafter!r} or none.",
            )
        if experiment.log is not None:
            self._log = ExperimentLog(Path(experiment.log))

    def check_fits(self, window: int) -> None:
        """Raise USAGE if one round of an arm is more than the verifier takes."""
        self._arm_a.make_control().check_fits(window)
        if self._experiment is not None:
            self._experiment.arm_b.make_control().check_fits(window)

    def pick(self) -> Arm:
        """The arm of the next request, at random with the experiment's share."""
        if self._experiment is None:
            return Arm(self._arm_a)
        if _random.random() < self._experiment.share:
            return Arm(self._experiment.arm_b, "b", self._experiment.name)
        return Arm(self._arm_a, "a", self._experiment.name)

    def record(self, arm: Arm, model: str, draft_model: str) -> AnswerRecord:
        """Enter it around an answer that goes `arm`'s way."""
        return AnswerRecord(self._log, arm, model, draft_model)


class AnswerRecord:
    """Follows one answer and, when left, logs what it cost, however it ended: an arm that fails more must not look
    better. Set `answer` when decoding begins and `result` when it is complete.
    """

    def __init__(self, log: ExperimentLog | None, arm: Arm, model: str, draft_model: str) -> None:
        self.answer: Answer | None = None
        self.result: Result | None = None
        self._log = log
        self._arm = arm
        self._model = model
        self._draft_model = draft_model

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._log is not None:
            self._log.append(self._line(error))

    def _line(self, error: BaseException | None) -> LogLine:
        stats = self._stats()
        finish_reason, failure = self._ending(error)
        return LogLine(
            version=LOG_VERSION,
            experiment=self._arm.experiment or "",
            arm=self._arm.label,
            time=datetime.now(UTC).isoformat(timespec="milliseconds"),
            model=self._model,
            draft_model=self._draft_model,
            settings=dict(self._arm.drafting.settings()),
            ttft_ms=stats["ttft_ms"] or None,
            finish_reason=finish_reason,
            error=failure,
            **{key: stats[key] for key in _LOGGED_STATS},
        )

    def _stats(self) -> dict[str, Any]:
        """Of the whole answer, or of what there is of it: all that was committed, as no stop id ended it."""
        if self.result is not None:
            return self.result.stats
        if self.answer is None:
            return dict.fromkeys(("ttft_ms", *_LOGGED_STATS), 0)
        return self.answer.stats.report(len(self.answer.tree.committed), self.answer.stats.walked)

    def _ending(self, error: BaseException | None) -> tuple[str | None, str | None]:
        """Finish reason and reason of failure, one of them None. Whoever leaves after the result leaves it whole."""
        if self.result is not None:
            return self.result.finish_reason, None
        if isinstance(error, Exception):
            return None, (error.reason if isinstance(error, OutriderError) else Reason.INTERNAL).value
        return FinishReason.CANCELLED.value, None


_LOGGED_STATS = ("tokens", "seconds", "passes", "drafted", "accepted", "uplink_bytes", "downlink_bytes")


def parse_arm(text: str, arm_a: Drafting) -> Drafting:
    """Arm b as the command line says it: "plain" (no guesses, the verifier never waits) or KEY=VALUE,... with the
    fields of `Drafting`; what is not said is as in arm a. Raises USAGE naming key and value.
    """
    if text.strip() == PLAIN:
        return dataclasses.replace(arm_a, drafter=NO_DRAFTER, pace="eager")
    fields = [field.name for field in dataclasses.fields(Drafting)]
    changes: dict[str, Any] = {}
    for part in text.split(","):
        key, equals, value = (word.strip() for word in part.partition("="))
        if key not in fields or not equals:
            expected = f"{PLAIN} or KEY=VALUE,... with the keys {', '.join(fields)}"
            raise OutriderError(Reason.USAGE, f"--experiment-arm {text!r}: {part!r}: expected {expected}.")
        if key in changes:
            raise OutriderError(Reason.USAGE, f"--experiment-arm {text!r}: {key} is given twice.")
        changes[key] = _whole_number(key, value) if key in WHOLE_NUMBERS else value
    return dataclasses.replace(arm_a, **changes)


def _whole_number(key: str, value: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise OutriderError(Reason.USAGE, f"--experiment-arm: {key} = {value!r}: expected a whole number.") from None
