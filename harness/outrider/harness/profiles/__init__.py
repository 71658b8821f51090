"""Hardware and link profiles: TOML tables in which each value stands beside its source, checked as they are read. They
say how long things take and run nothing.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from outrider.harness.links import (
    LinkProfile,
    Milliseconds,
    PositiveMilliseconds,
    Seconds,
    describe_problems,
    load_trace,
    shown,
)
from outrider.shared.errors import OutriderError, Reason

ASSUMPTION = "assumption:"
_SOURCED_KEYS = {"value", "source"}


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class TargetProfile(_Frozen):
    """How long passes of a target take."""

    base_ms: PositiveMilliseconds
    row_ms: Milliseconds
    free_rows: Annotated[float, Field(ge=0, le=1e9, strict=True)]
    session_ms: Milliseconds

    def pass_ms(self, rows: int, sessions: int = 1) -> float:
        """Milliseconds of a pass over `rows` rows of `sessions` sessions, prefill rows included."""
        return self.base_ms + self.row_ms * max(0.0, rows - self.free_rows) + self.session_ms * max(0, sessions - 1)


class DrafterProfile(_Frozen):
    """How long draft steps of a device take. Without throttling the last three values are left out."""

    token_ms: Milliseconds
    prompt_token_ms: Milliseconds
    throttle_loss: float = Field(default=0.0, ge=0, lt=1, strict=True)
    throttle_begin_s: Seconds = 0.0
    throttle_full_s: Seconds = 0.0

    @model_validator(mode="after")
    def _throttling_is_whole(self) -> DrafterProfile:
        if self.throttle_loss and self.throttle_full_s <= self.throttle_begin_s:
            raise ValueError("throttle_loss needs throttle_full_s above throttle_begin_s")
        return self

    def draft_ms(self, tokens: int = 1, busy_s: float = 0.0) -> float:
        """Milliseconds of one guess that feeds `tokens` tokens (a prompt at first, then mostly one) after `busy_s`
        seconds of drafting; siblings come with their step.
        """
        return (self.token_ms + self.prompt_token_ms * max(0, tokens - 1)) / self._speed(busy_s)

    def _speed(self, busy_s: float) -> float:
        """Share of the full speed that is left: falls linearly while the device heats up."""
        if not self.throttle_loss:
            return 1.0
        heated = (busy_s - self.throttle_begin_s) / (self.throttle_full_s - self.throttle_begin_s)
        return 1.0 - self.throttle_loss * min(1.0, max(0.0, heated))


P = TypeVar("P", bound=BaseModel)


class Profile(_Frozen, Generic[P]):
    """A profile by name; `sources` says for each of its keys where the value comes from."""

    name: str
    description: str
    values: P
    sources: dict[str, str]

    @property
    def assumptions(self) -> list[str]:
        """Keys whose values nobody measured."""
        return [key for key, source in self.sources.items() if source.startswith(ASSUMPTION)]


def load_targets(path: Path | None = None) -> dict[str, Profile[TargetProfile]]:
    """Target profiles of a file (default: the shipped ones) by name; raises USAGE with file, key and reason."""
    return _load("targets.toml", path, TargetProfile)


def load_drafters(path: Path | None = None) -> dict[str, Profile[DrafterProfile]]:
    """Drafter profiles; see `load_targets`."""
    return _load("drafters.toml", path, DrafterProfile)


def load_links(path: Path | None = None) -> dict[str, Profile[LinkProfile]]:
    """Link profiles; see `load_targets`. A `trace` names a CSV file beside the TOML file."""
    return _load("links.toml", path, LinkProfile)


def pick(profiles: Mapping[str, Profile[P]], name: str) -> Profile[P]:
    """The profile of that name; raises USAGE that lists the names there are."""
    if name not in profiles:
        raise OutriderError(Reason.USAGE, f"no profile {name!r}; there are {', '.join(profiles)}.")
    return profiles[name]


def parse_toml(content: bytes) -> dict[str, Any]:
    """TOML as UTF-8, with or without a byte order mark; raises ValueError, also for what is nested too deeply."""
    try:
        return tomllib.loads(content.decode("utf-8-sig"))
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _load(shipped: str, path: Path | None, kind: type[P]) -> dict[str, Profile[P]]:
    origin = str(path or shipped)
    try:
        tables = parse_toml((path or resources.files(__package__).joinpath(shipped)).read_bytes())
    except (OSError, ValueError) as error:
        raise OutriderError(Reason.USAGE, f"{origin}: {error}.") from None
    folder = path.parent if path else None
    return {name: _profile(f"{origin}: {name}", name, table, kind, folder) for name, table in tables.items()}


def _profile(origin: str, name: str, table: Any, kind: type[P], folder: Path | None) -> Profile[P]:
    if not isinstance(table, dict):
        raise OutriderError(Reason.USAGE, f"{origin} = {shown(table)}: expected a table.")
    description = table.pop("description", None)
    if not isinstance(description, str):
        raise OutriderError(Reason.USAGE, f"{origin}: description is missing or no text.")
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for key, entry in table.items():
        if not isinstance(entry, dict) or set(entry) != _SOURCED_KEYS:
            raise OutriderError(Reason.USAGE, f"{origin}.{key} = {shown(entry)}: expected {{ value = …, source = … }}.")
        if not isinstance(entry["source"], str) or not entry["source"].strip():
            raise OutriderError(Reason.USAGE, f"{origin}.{key}: a source is missing.")
        values[key], sources[key] = entry["value"], entry["source"]
    if kind is LinkProfile and "trace" in values:
        if folder is None or not isinstance(values["trace"], str):
            raise OutriderError(Reason.USAGE, f"{origin}.trace = {shown(values['trace'])}: expected a file name.")
        values["trace"] = load_trace(folder / values["trace"])
    try:
        made = kind.model_validate(values)
    except ValidationError as error:
        raise OutriderError(Reason.USAGE, f"{origin}: {describe_problems(error)}") from None
    return Profile[P](name=name, description=description, values=made, sources=sources)
