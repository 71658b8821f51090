"""A lock between processes on one file. The operating system drops it when its holder dies."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

if sys.platform == "win32":
    import msvcrt

    def _try_lock(file: IO[bytes]) -> bool:
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def _try_lock(file: IO[bytes]) -> bool:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


POLL_S = 0.1


@contextmanager
def file_lock(path: Path, *, timeout_s: float, on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold the lock at `path` for the block; `on_wait` is called once if somebody else holds it.

    Raises TimeoutError after `timeout_s`. The file stays: deleting it would let two holders in.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + timeout_s
    with path.open("ab") as file:
        waited = False
        while not _try_lock(file):
            if not waited:
                waited = True
                on_wait()
            if time.monotonic() > deadline:
                raise TimeoutError(f"{path} was held for more than {timeout_s:.0f} s")
            time.sleep(POLL_S)
        yield
