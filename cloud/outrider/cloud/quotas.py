"""What the operator allows each caller: a TOML file with a section for all and one for each name that differs.
Read once, at the start; what does not hold together is refused by file, key and value.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from outrider.cloud.principal import Principal
from outrider.shared.errors import OutriderError, Reason
from outrider.shared.messages import INITIAL_WINDOW

MAX_FILE_BYTES = 1 << 20


class Quota(BaseModel):
    """What one principal may have; None is no limit.

    `weight` is its share where passes have no room for everybody, `sessions` those open at once, `live_nodes` guesses
    under way over all of them, `tokens_per_s` committed tokens a second, of which `burst_tokens` may have been saved up
    (None: one second's), `opening` streams that have not said what they want.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)

    weight: float = Field(1.0, ge=0.001, le=1000)
    sessions: int | None = Field(None, ge=1)
    # An edge sends so many before it hears what its window is.
    live_nodes: int | None = Field(None, ge=INITIAL_WINDOW)
    tokens_per_s: float | None = Field(None, ge=0.001)
    burst_tokens: float | None = Field(None, ge=1)
    opening: int = Field(256, ge=1)

    @model_validator(mode="after")
    def _fits_together(self) -> Quota:
        if self.burst_tokens is not None and self.tokens_per_s is None:
            raise ValueError(f"burst_tokens = {self.burst_tokens:g} needs tokens_per_s beside it")
        least = INITIAL_WINDOW * (self.sessions or 1)
        if self.live_nodes is not None and self.live_nodes < least:
            raise ValueError(f"live_nodes = {self.live_nodes}: {self.sessions} sessions need {least} at least")
        return self


@dataclass(frozen=True, slots=True)
class Quotas:
    """A quota for everybody who has none of their own, and those who have."""

    default: Quota = field(default_factory=Quota)
    principals: dict[str, Quota] = field(default_factory=dict)

    def of(self, principal: Principal) -> Quota:
        """What the principal may have."""
        return self.principals.get(principal.name, self.default)


def read_quotas(path: Path) -> Quotas:
    """Read a file of quotas; what a principal's section leaves out is as in `[default]`. Raises FILE_UNREADABLE."""
    try:
        with path.open("rb") as handle:
            content = handle.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise OutriderError(Reason.FILE_UNREADABLE, f"{path}: {error.strerror}.") from None
    if len(content) > MAX_FILE_BYTES:
        raise OutriderError(Reason.FILE_UNREADABLE, f"{path}: more than {MAX_FILE_BYTES >> 20} MiB.")
    try:
        tables = tomllib.loads(content.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise OutriderError(Reason.FILE_UNREADABLE, f"{path}: {error}.") from None
    for key in tables:
        if key not in {"default", "principals"}:
            raise OutriderError(Reason.FILE_UNREADABLE, f"{path}: {key!r}: expected [default] or [principals.NAME].")
    common = _table(path, "default", tables.get("default", {}))
    sections = _table(path, "principals", tables.get("principals", {}))
    default = _quota(path, "default", common)
    named = {
        name: _quota(path, f"principals.{name}", common | _table(path, f"principals.{name}", section))
        for name, section in sections.items()
    }
    return Quotas(default, named)


def _table(path: Path, name: str, value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise OutriderError(Reason.FILE_UNREADABLE, f"{path}: {name} = {value!r}: expected a section.")
    return value


def _quota(path: Path, section: str, values: dict[str, Any]) -> Quota:
    try:
        return Quota.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join([section, *map(str, first["loc"])])
        value = f" = {first['input']!r}" if first["loc"] else ""
        raise OutriderError(Reason.FILE_UNREADABLE, f"{path}: {key}{value}: {first['msg']}.") from None
