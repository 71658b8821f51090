"""Bearer tokens: a file of names and SHA-256 digests of their tokens, read again while it is in use. The tokens
themselves are kept nowhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import logging
import re
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from outrider.cloud.principal import ANONYMOUS
from outrider.shared.errors import OutriderError, Reason
from outrider.shared.files import Stamp, stamp_of

logger = logging.getLogger(__name__)

CHECK_EVERY_S = 1.0
# Each call is compared with all of them.
MAX_TOKENS = 4096
MAX_FILE_BYTES = 1 << 20
TOKEN_BYTES = 32
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class _Entry:
    """One line of the file."""

    name: str
    digest: bytes


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token for a device, and the line that lets its bearer in."""

    token: str
    line: str


def new_token(name: str) -> NewToken:
    """A random token of 256 bits for `name`; raises USAGE for a name that no line may have."""
    if not _is_name(name):
        raise OutriderError(
            Reason.USAGE,
            f"--new-token {name!r}: expected up to 64 letters, digits and ._@- and not {ANONYMOUS.name!r}.",
        )
    token = secrets.token_urlsafe(TOKEN_BYTES)
    # So long a random text needs neither salt nor a slow hash.
    return NewToken(token, f"{name} {hashlib.sha256(token.encode()).hexdigest()}")


class TokenFile:
    """The tokens of a file: `NAME SHA256` a line; a name may have several, empty lines and # comments none."""

    def __init__(self, path: Path) -> None:
        """Read `path`; raises FILE_UNREADABLE, which names lines and never what they hold."""
        self._path = path
        self._stamp: Stamp | None = stamp_of(path)
        self._entries = _parse(path)

    def __len__(self) -> int:
        return len(self._entries)

    def name_of(self, token: str) -> str | None:
        """Whose token it is, found in a time that depends on the number of lines only; None for nobody's."""
        digest = hashlib.sha256(token.encode()).digest()
        found = None
        for entry in self._entries:
            if hmac.compare_digest(entry.digest, digest):
                found = entry.name
        return found

    @contextlib.asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Look once a second, off the loop, whether the file has changed. One that cannot be read changes nothing."""
        task = asyncio.create_task(self._watch(), name="tokens")
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(CHECK_EVERY_S)
            await asyncio.to_thread(self.refresh)

    def refresh(self) -> None:
        """Read the file again if it has changed."""
        stamp = stamp_of(self._path)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._entries = _parse(self._path)
        except OutriderError as error:
            logger.warning("the tokens stay as they were: %s", error.message)
        else:
            logger.info("%s was read again: %d tokens", self._path, len(self._entries))


def _parse(path: Path) -> tuple[_Entry, ...]:
    try:
        with path.open("rb") as handle:
            data = handle.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise OutriderError(Reason.FILE_UNREADABLE, f"{path}: {error.strerror}.") from None
    lines = data.decode("utf-8", "replace").splitlines()
    entries: list[_Entry] = []
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) != 2 or not _is_name(words[0]) or not _DIGEST.fullmatch(words[1].lower()):
            # Not what it holds: that may be a token written where its digest belongs.
            raise OutriderError(
                Reason.FILE_UNREADABLE,
                f"{path}, line {number}: expected a name and the SHA-256 of its token; see outrider verifier "
                "--new-token.",
            )
        entries.append(_Entry(words[0], bytes.fromhex(words[1])))
    if len(entries) > MAX_TOKENS or len(data) > MAX_FILE_BYTES:
        raise OutriderError(
            Reason.FILE_UNREADABLE, f"{path}: more than {MAX_TOKENS} tokens or {MAX_FILE_BYTES >> 20} MiB."
        )
    return tuple(entries)


def _is_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None and name != ANONYMOUS.name
