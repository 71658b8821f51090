"""Writes files in one step: whoever reads sees the old one or the new one, whole. And tells when one has changed."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

Stamp = tuple[tuple[int, int, int, int] | None, ...]


def stamp_of(*paths: Path) -> Stamp:
    """What is different once one of the files has been written or replaced; a file that is not there has one too."""
    return tuple(map(_stamp_of_one, paths))


def _stamp_of_one(path: Path) -> tuple[int, int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    # A clock's tick may hold two writes; what replaces a file has another inode.
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def check_regular(path: Path) -> None:
    """Raise OSError for what is there and no regular file: reading a pipe or a device may never end."""
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "no regular file", str(path))


def write_whole(path: Path, data: bytes | str, mode: int = 0o644) -> None:
    """Write `data` (text as UTF-8) to `path`, which gets the `mode`, and make its folder if there is none; raises
    OSError that names `path`.

    Links stay, and what they name is written. What is there and no regular file (a device, a pipe) is written through.
    """
    content = data.encode() if isinstance(data, str) else data
    with naming(path):
        if path.exists() and not path.is_file():
            path.write_bytes(content)
        else:
            _replace(Path(os.path.realpath(path)), content, mode)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """The system's errors inside name `path`: a full disk does not say which file it was."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def _replace(path: Path, content: bytes, mode: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".", suffix=".partial", delete=False) as handle:
        temporary = Path(handle.name)
        try:
            handle.write(content)
            handle.flush()
            os.fsync(handle.fileno())
            temporary.chmod(mode)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
