"""Log lines that say which stream they are about. Of a session only the beginning of its id is told: the whole of it
lets its stream be taken over.
"""

from __future__ import annotations

import contextlib
import json
import logging
import secrets
import time
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum

SHOWN_ID_LENGTH = 8


class LogFormat(StrEnum):
    """How a log line looks."""

    TEXT = "text"
    JSON = "json"


@dataclass(slots=True)
class StreamNames:
    """What a stream is called: `request` at random, and `session` once it has one."""

    request: str
    session: str | None = None

    def opened(self, session_id: str) -> None:
        """The stream has this session."""
        self.session = session_id[:SHOWN_ID_LENGTH]


# What the stream's tasks share, so one that began before the session has a name knows it too.
_stream: ContextVar[StreamNames | None] = ContextVar("stream", default=None)


@contextlib.contextmanager
def stream_names() -> Iterator[StreamNames]:
    """Inside, log lines of this task and of those it starts carry the names of one stream."""
    names = StreamNames(secrets.token_hex(8))
    token = _stream.set(names)
    try:
        yield names
    finally:
        _stream.reset(token)


def set_log_format(log_format: LogFormat) -> None:
    """Give the handlers of the root logger this format."""
    formatter = JsonFormatter() if log_format is LogFormat.JSON else TextFormatter()
    for handler in logging.getLogger().handlers:
        handler.setFormatter(formatter)


class TextFormatter(logging.Formatter):
    """Time (UTC), level, logger, names of the stream, message."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s:%(stream)s %(message)s", "%Y-%m-%dT%H:%M:%S")
        self.converter = time.gmtime

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter`."""
        record.stream = "".join(f" {key}={value}" for key, value in _names().items())
        return super().format(record)


class JsonFormatter(logging.Formatter):
    """One JSON object a line: `time` (UTC, RFC 3339), `level`, `logger`, `message`, the stream's names, `exception`."""

    def __init__(self) -> None:
        super().__init__(datefmt="%Y-%m-%dT%H:%M:%S")
        self.converter = time.gmtime

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter`."""
        said = {
            "time": f"{self.formatTime(record, self.datefmt)}.{record.msecs:03.0f}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **_names(),
        }
        if record.exc_info:
            said["exception"] = self.formatException(record.exc_info)
        return json.dumps(said, ensure_ascii=False)


def _names() -> dict[str, str]:
    names = _stream.get()
    if names is None:
        return {}
    return {"request": names.request} | ({} if names.session is None else {"session": names.session})
