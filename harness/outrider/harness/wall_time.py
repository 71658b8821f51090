"""An event loop for measuring on the wall clock: asyncio's usual one wakes up to a millisecond late, as epoll counts in
milliseconds, and every simulated draft step and every delayed message would pay that. It knows how late its timers
were.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import selectors
import statistics
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextvars import Context
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, TypeVarTuple

# The kernel wakes a sleeper this much late even when idle; the rest of the way is polled.
EARLY_S = 0.00015

T = TypeVar("T")
Args = TypeVarTuple("Args")


@dataclass(frozen=True, slots=True)
class Lateness:
    """How much later than asked for `steps` steps ended, in milliseconds: all together, and their percentiles."""

    steps: int = 0
    total_ms: float = 0.0
    p50_ms: float = 0.0
    p99_ms: float = 0.0

    @classmethod
    def of(cls, late_s: Sequence[float]) -> Lateness:
        """Of single steps, in seconds; one that ended early was not late."""
        late_ms = [1000 * max(0.0, value) for value in late_s]
        if len(late_ms) < 2:
            return cls(len(late_ms), *(sum(late_ms),) * 3)
        percentiles = statistics.quantiles(late_ms, n=100, method="inclusive")
        return cls(len(late_ms), sum(late_ms), percentiles[49], percentiles[98])


class _EarlySelector(selectors.SelectSelector):
    """Comes back a little before the time, and then at once."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """As in `selectors`."""
        return super().select(timeout if timeout is None else max(0.0, timeout - EARLY_S))


class PreciseLoop(asyncio.SelectorEventLoop):
    """A loop over `select`, which counts in microseconds; it takes file descriptors below 1,024 only.

    `late_s` holds for each timer that has fired how many seconds after its time that was; clear it as you like.
    """

    def __init__(self) -> None:
        self.late_s: list[float] = []
        super().__init__(_EarlySelector())

    def call_at(
        self, when: float, callback: Callable[[*Args], object], *args: *Args, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """As in asyncio."""
        return super().call_at(when, self._fire, when, callback, args, context=context)

    def _fire(self, when: float, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        self.late_s.append(self.time() - when)
        callback(*args)


def precise_loop() -> PreciseLoop:
    """A new loop."""
    return PreciseLoop()


def run(main: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` on a `precise_loop`."""
    with asyncio.Runner(loop_factory=precise_loop) as runner:
        return runner.run(main)


def waited_ms(pids: Iterable[int]) -> float | None:
    """Milliseconds that the threads of these processes, added up, could have run and had no processor, since they
    began; None where the system does not say (it is Linux that does).
    """
    total_ns = 0
    for pid in pids:
        try:
            for thread in Path(f"/proc/{pid}/task").iterdir():
                # Time on a processor, time waiting for one, and how often.
                total_ns += int((thread / "schedstat").read_text().split()[1])
        except (OSError, IndexError):
            return None
    return total_ns / 1e6


@contextlib.contextmanager
def real_time() -> Iterator[bool]:
    """Inside the context this thread, and the processes and threads it starts, come before all ordinary programs where
    the system allows that (Linux, root); yields whether it does. They sleep most of the time, but when it is a step's
    turn another program's slice would be milliseconds too long. Threads that outlive the context stay so.
    """
    if not hasattr(os, "sched_setscheduler"):
        yield False
        return
    policy, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(os.sched_get_priority_min(os.SCHED_RR)))
    except PermissionError:
        yield False
        return
    try:
        yield True
    finally:
        os.sched_setscheduler(0, policy, parameters)
