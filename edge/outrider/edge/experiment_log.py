"""The log of an experiment: one JSON line an answer, with counts and times and never a prompt, a text or a token id."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from outrider.shared.errors import OutriderError, Reason

logger = logging.getLogger(__name__)

LOG_VERSION: Final = 1
Count = Annotated[int, Field(ge=0)]
Amount = Annotated[float, Field(ge=0)]


class LogLine(BaseModel):
    """What one answer cost. `ttft_ms` is None without a first token, `finish_reason` where the answer failed, `error`
    (a `Reason`) where it did not; `time` is its end in UTC, sizes leave out opening.
    """

    # Keys of a later writer are passed over: a change of meaning changes the version.
    model_config = ConfigDict(frozen=True, strict=True, allow_inf_nan=False, extra="ignore")

    version: Literal[1]
    experiment: str
    arm: Literal["a", "b"]
    time: str
    model: str
    draft_model: str
    settings: dict[str, str | int | float | None]
    tokens: Count
    seconds: Amount
    ttft_ms: Amount | None
    passes: Count
    drafted: Count
    accepted: Count
    uplink_bytes: Count
    downlink_bytes: Count
    finish_reason: str | None
    error: str | None


class ExperimentLog:
    """Appends lines to a file, which several processes may share. A file that cannot be written to costs the log
    only: it is said once, as a warning.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._warned = False

    def append(self, line: LogLine) -> None:
        """Write one line in one call, past any buffer."""
        text = json.dumps(line.model_dump(), ensure_ascii=False) + "\n"
        data = text.encode("utf-8", "replace")
        try:
            with self._path.open("ab", buffering=0) as file:
                written = file.write(data)
            if written != len(data):
                raise OSError(f"only {written} of {len(data)} bytes could be written")
        except (OSError, ValueError) as error:
            if not self._warned:
                logger.warning("answers go on without the experiment's log %s: %s", self._path, error)
            self._warned = True


def read_logs(paths: Iterable[Path]) -> list[LogLine]:
    """The lines of all files; raises FILE_UNREADABLE with file and line for what is not such a line, USAGE for a file
    that is given twice.
    """
    lines: list[LogLine] = []
    seen: set[Path] = set()
    for path in paths:
        if path.resolve() in seen:
            raise OutriderError(Reason.USAGE, f"{path} is given twice: its answers would count twice.")
        seen.add(path.resolve())
        lines.extend(_read_log(path))
    return lines


def _read_log(path: Path) -> list[LogLine]:
    try:
        # Split at newlines only: a name may hold other characters that end a line elsewhere.
        rows = path.read_bytes().split(b"\n")
    except OSError as error:
        raise OutriderError(Reason.FILE_UNREADABLE, f"{path}: {error}.") from None
    lines: list[LogLine] = []
    for number, row in enumerate(rows, 1):
        if not row.strip():
            continue
        try:
            lines.append(LogLine.model_validate_json(row))
        except ValidationError as error:
            raise OutriderError(Reason.FILE_UNREADABLE, f"{path}, line {number}: {_complaint(error)}.") from None
    return lines


def _complaint(error: ValidationError) -> str:
    """Of several complaints the version's comes first, as that is the first field."""
    first = error.errors()[0]
    words = [first["msg"]]
    if first["loc"]:
        key = ".".join(map(str, first["loc"]))
        words.insert(0, key if first["type"] == "missing" else f"{key} = {str(first['input'])[:40]!r}")
    return ": ".join(words)
