"""What the report reads: the lines of a sweep file and the timeline of one answer, as frozen models that refuse what is
missing or of the wrong type. Keys they do not know are allowed, since the simulation may say more than is shown.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_validator, model_validator

AxisValue: TypeAlias = Annotated[float, Field(allow_inf_nan=False)] | str
"""Value of one axis of a sweep's grid: a number or a name."""

BaselineName: TypeAlias = Literal[
    "streaming", "colocated", "batched", "stop_and_wait", "draft_only", "rtt_zero", "oracle"
]

# Whole numbers above this have no exact float, and nothing that is counted here comes near.
MAX_COUNT = 2**53

Count: TypeAlias = Annotated[int, Field(ge=0, le=MAX_COUNT)]
Measure: TypeAlias = Annotated[float, Field(ge=0, le=1e15, allow_inf_nan=False)] | None
Milliseconds: TypeAlias = Annotated[float, Field(ge=0, le=1e15, allow_inf_nan=False)]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")


class Gaps(_Model):
    """Percentiles of the gaps between visible updates, in milliseconds."""

    p50: Measure
    p95: Measure
    p99: Measure


class Figures(_Model):
    """The measures of one way to run a cell. Milliseconds and bytes; None where a measure has no meaning."""

    ms_per_token: Measure
    ttft_ms: Measure
    gap_ms: Gaps
    passes_per_token: Measure
    tokens_per_pass: Measure
    target_ms_per_token: Measure
    accelerator_ms_per_token: Measure
    draft_ms_wasted_per_token: Measure
    bytes_up_per_token: Measure
    bytes_down_per_token: Measure
    alpha: Annotated[float, Field(ge=0, le=1)] | None
    accepted_histogram: tuple[Count, ...]
    sessions: Annotated[int, Field(ge=1, le=MAX_COUNT)]
    answers: Count
    tokens: Count
    settings: dict[str, JsonValue]


class Result(Figures):
    """What `outrider simulate --json` prints: the product's figures and those of the baselines that were run."""

    baselines: dict[BaselineName, Figures]


class SweepLine(_Model):
    """One cell of the grid: the axes that were varied, and the result there."""

    cell: dict[str, AxisValue]
    result: Result

    @field_validator("cell")
    @classmethod
    def _plot_axes_are_numbers(cls, cell: dict[str, AxisValue]) -> dict[str, AxisValue]:
        for axis, least in (("rtt_ms", 0), ("sessions", 1)):
            value = cell.get(axis, least)
            if isinstance(value, str) or value < least:
                raise ValueError(f"{axis}: expected a number of at least {least}, got {value!r}")
        return cell


class SweepHeader(BaseModel):
    """First line of a sweep file. What else stands there is kept: the page shows it."""

    model_config = ConfigDict(frozen=True, strict=True, extra="allow")

    format: Literal["outrider-sweep"]
    version: Literal[1]
    scenario: dict[str, JsonValue]

    @property
    def extra(self) -> dict[str, Any]:
        """What the line says beyond its fixed keys."""
        return self.model_extra or {}


class Span(_Model):
    """Something that lasts, in milliseconds since the answer began."""

    start_ms: Milliseconds
    end_ms: Milliseconds

    @model_validator(mode="after")
    def _ends_after_start(self) -> Span:
        if self.end_ms < self.start_ms:
            raise ValueError(f"end_ms {self.end_ms} comes before start_ms {self.start_ms}")
        return self


class Pass(Span):
    """A pass of the target: rows it computed for this session, and guesses it accepted."""

    rows: Count
    accepted: Count


class Flight(_Model):
    """A message on its way."""

    direction: Literal["up", "down"]
    bytes: Count
    sent_ms: Milliseconds
    arrives_ms: Milliseconds

    @model_validator(mode="after")
    def _arrives_after_sent(self) -> Flight:
        if self.arrives_ms < self.sent_ms:
            raise ValueError(f"arrives_ms {self.arrives_ms} comes before sent_ms {self.sent_ms}")
        return self


class CommitMark(_Model):
    """Tokens that became final on the device, as pieces of text."""

    at_ms: Milliseconds
    tokens: tuple[str, ...]


class Timeline(_Model):
    """One answer, event by event."""

    format: Literal["outrider-timeline"]
    version: Literal[1]
    prompt_id: str
    settings: dict[str, JsonValue]
    drafts: tuple[Span, ...]
    flights: tuple[Flight, ...]
    passes: tuple[Pass, ...]
    commits: tuple[CommitMark, ...]
