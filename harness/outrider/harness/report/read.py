"""Sweep and timeline files into typed rows. Whatever does not hold what it should is refused with file, line, key and
reason.
"""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from outrider.harness.report.format import AxisValue, Result, SweepHeader, SweepLine, Timeline
from outrider.shared.errors import OutriderError, Reason

logger = logging.getLogger(__name__)

Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Row:
    """One cell of a sweep and the line it stands on."""

    line: int
    cell: dict[str, AxisValue]
    result: Result


@dataclass(frozen=True, slots=True)
class Sweep:
    """A whole sweep file; `name` is the file's name without folders."""

    name: str
    sha256: str
    header: SweepHeader
    rows: tuple[Row, ...]


def read_sweep(path: Path) -> Sweep:
    """The sweep in a file of JSON lines; blank lines are skipped, and, with a warning, a last line that was cut short.
    Raises FILE_UNREADABLE, also for a repeated cell.
    """
    content, text = _read(path)
    # Not `splitlines`: characters that it breaks at may stand inside JSON texts.
    numbered = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not numbered:
        raise OutriderError(Reason.FILE_UNREADABLE, f"{path}: is empty; its first line should name the format.")
    header = _parse(SweepHeader, numbered[0][1], f"{path}, line {numbered[0][0]}")
    if len(numbered) > 1 and not text.endswith("\n") and not _is_json(numbered[-1][1]):
        number, _ = numbered.pop()
        logger.warning("%s, line %d: was cut short and is left out.", path, number)
    rows: list[Row] = []
    seen: dict[frozenset[tuple[str, AxisValue]], int] = {}
    for number, line in numbered[1:]:
        entry = _parse(SweepLine, line, f"{path}, line {number}")
        first = seen.setdefault(frozenset(entry.cell.items()), number)
        if first != number:
            raise OutriderError(Reason.FILE_UNREADABLE, f"{path}, line {number}: cell: the same as on line {first}.")
        rows.append(Row(number, entry.cell, entry.result))
    return Sweep(path.name, hashlib.sha256(content).hexdigest(), header, tuple(rows))


def read_timeline(path: Path) -> Timeline:
    """The timeline in a JSON file; raises FILE_UNREADABLE."""
    return _parse(Timeline, _read(path)[1], str(path))


def _read(path: Path) -> tuple[bytes, str]:
    try:
        content = path.read_bytes()
        return content, content.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise OutriderError(Reason.FILE_UNREADABLE, f"{path}: {error}.") from None


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _parse(model: type[Model], text: str, where: str) -> Model:
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False)
        key = ".".join(str(part) for part in problems[0]["loc"])
        more = f" ({len(problems) - 1} more problems)" if len(problems) > 1 else ""
        detail = f"{where}: {f'{key}: ' if key else ''}{problems[0]['msg']}.{more}"
        raise OutriderError(Reason.FILE_UNREADABLE, detail) from None
