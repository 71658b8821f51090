"""Processes that call a function on many items and never outlive their work: not an error, not Ctrl-C, not the end of
the process that started them. They leave Ctrl-C to it.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import wait
from typing import TypeVar

Key = TypeVar("Key")
Item = TypeVar("Item")
Result = TypeVar("Result")


@contextmanager
def running(
    function: Callable[[Item], Result], items: Mapping[Key, Item], jobs: int
) -> Iterator[dict[Future[Result], Key]]:
    """The calls on all items inside the context, at most `jobs` at a time, each with its key. What ends the context
    early kills the processes.
    """
    others = set(multiprocessing.active_children())
    count = max(1, min(jobs, len(items)))
    pool = ProcessPoolExecutor(count, multiprocessing.get_context("spawn"), initializer=_begin)
    try:
        with _interrupts_held():
            futures = {pool.submit(function, item): key for key, item in items.items()}
        yield futures
    except BaseException:
        for child in set(multiprocessing.active_children()) - others:
            child.kill()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Ctrl-C waits until the context ends: a process that is half started would complain. In processes that are started
    inside it waits for ever: a terminal interrupts them, too, before they can say that they do not care.
    """
    if sys.platform == "win32" or threading.current_thread() is not threading.main_thread():
        yield
        return
    held: list[int] = []
    # The mask is what the processes inherit. It is the main thread's alone, and another may take the signal.
    handler = signal.signal(signal.SIGINT, lambda number, _: held.append(number))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGINT, handler)
        if held:
            signal.raise_signal(signal.SIGINT)


def _begin() -> None:
    """In a new process: leave Ctrl-C to the parent, and end when it does, however that comes to pass."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None, "runs in a child"
    threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)
