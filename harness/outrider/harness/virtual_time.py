"""An asyncio event loop whose clock jumps to the next timer instead of waiting, for running the product's own code much
faster than real time and alike in every run. It knows nothing of links or models.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import selectors
import threading
from collections.abc import Callable, Coroutine, Mapping
from contextvars import Context
from typing import Any, NoReturn, TypeVar, TypeVarTuple

T = TypeVar("T")
Args = TypeVarTuple("Args")

DEFAULT_LIMIT_S = 1_000_000.0
MAX_TURNS_AT_ONE_MOMENT = 1_000_000
MAX_CANCEL_ROUNDS = 10
CANCEL_LIMIT_S = 60.0
_NS_PER_S = 1_000_000_000


class VirtualTimeError(RuntimeError):
    """The program did what cannot be run on a virtual clock, or came to no end."""


class DeadlockError(VirtualTimeError):
    """Nothing is ready and no timer is set, but tasks wait."""


class LivelockError(VirtualTimeError):
    """The program keeps running without the clock moving."""


class ThreadUseError(VirtualTimeError):
    """Threads take real time, in which a virtual clock may jump past any time limit."""


class TaskLeakError(VirtualTimeError):
    """Tasks were left behind."""


class TimeLimitError(VirtualTimeError):
    """The program took more virtual time than it was given."""


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Starts at time 0.0 and counts whole nanoseconds. Runs in the thread that made it; files, sockets, executors and
    calls from other threads are refused.
    """

    def __init__(self) -> None:
        self._clock = _Clock(self._on_idle)
        self._foreign_failure: BaseException | None = None
        self._owner = threading.get_ident()
        self._task_count = 0
        self._limit_s = math.inf
        super().__init__(self._clock)
        # The real clock's resolution differs between machines.
        self._clock_resolution = 1e-9
        self._clock.sealed = True
        self.set_exception_handler(VirtualTimeLoop._on_exception)

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._clock.now_s

    def call_at(
        self, when: float, callback: Callable[[*Args], object], *args: *Args, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """As in asyncio, on the clock's grid: when the callback runs, `time()` is exactly `when` to the nanosecond."""
        return super().call_at(round(when * _NS_PER_S) / _NS_PER_S, callback, *args, context=context)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, T], *, name: object = None, context: Context | None = None, **options: Any
    ) -> asyncio.Task[T]:
        """As in asyncio; tasks hash by their number, so that a set of them has the same order in every run."""
        self._task_count += 1
        name = str(name) if name is not None else f"task-{self._task_count}"
        return _NumberedTask(self._task_count, coro, loop=self, name=name, context=context, **options)

    def call_soon_threadsafe(
        self, callback: Callable[[*Args], object], *args: *Args, context: Context | None = None
    ) -> asyncio.Handle:
        """As in asyncio for the loop's own thread; raises `ThreadUseError` in any other, and ends the loop with it."""
        if threading.get_ident() != self._owner:
            text = f"{callback!r} was called from the thread {threading.current_thread().name!r}"
            self._foreign_failure = ThreadUseError(f"{text}: a virtual clock does not wait for threads.")
            raise self._foreign_failure
        return self.call_soon(callback, *args, context=context)

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> NoReturn:  # type: ignore[override]
        """Raises `ThreadUseError`."""
        raise ThreadUseError(f"{func!r} in a thread: a virtual clock does not wait for threads; run it inline.")

    def run_within(self, main: Coroutine[Any, Any, T], limit_s: float) -> T:
        """As `run_until_complete`; raises `TimeLimitError` where the clock would pass `limit_s`."""
        self._limit_s = limit_s
        try:
            return self.run_until_complete(self.create_task(main, name="main"))
        finally:
            self._limit_s = math.inf

    def pending_tasks(self) -> list[asyncio.Task[Any]]:
        """Tasks that have not ended, oldest first."""
        return sorted(asyncio.all_tasks(self), key=hash)

    def cancel_pending(self) -> None:
        """Cancel all tasks and run until they have ended; raises `TaskLeakError` for those that will not."""
        for _ in range(MAX_CANCEL_ROUNDS):
            tasks = self.pending_tasks()
            if not tasks:
                return
            for task in tasks:
                task.cancel()
            self.run_until_complete(asyncio.wait(tasks, timeout=CANCEL_LIMIT_S))
        raise TaskLeakError(f"still there after being cancelled:\n{describe_tasks(self.pending_tasks())}")

    def _on_idle(self, timeout: float | None) -> None:
        """Called before the clock moves, with the seconds to the next timer (None: there is none)."""
        if self._foreign_failure is not None:
            failure, self._foreign_failure = self._foreign_failure, None
            raise failure
        if timeout is None:
            tasks = self.pending_tasks()
            raise DeadlockError(f"at {self.time():.6f} s {len(tasks)} tasks wait for nothing:\n{describe_tasks(tasks)}")
        if self.time() + timeout > self._limit_s:
            text = f"not done after {self._limit_s:g} virtual seconds"
            raise TimeLimitError(f"{text}; tasks:\n{describe_tasks(self.pending_tasks())}")
        if self._clock.turns > MAX_TURNS_AT_ONE_MOMENT:
            self._clock.turns = 0
            text = f"{MAX_TURNS_AT_ONE_MOMENT} turns of the loop at {self.time():.6f} s"
            raise LivelockError(f"{text}; tasks:\n{describe_tasks(self.pending_tasks())}")

    @staticmethod
    def _on_exception(loop: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
        """Log as asyncio does; what a callback raises ends the loop, as nobody else would see it."""
        assert isinstance(loop, VirtualTimeLoop)
        loop.default_exception_handler(dict(context))
        if "handle" in context and "exception" in context:
            loop._foreign_failure = context["exception"]


class _NumberedTask(asyncio.Task[Any]):
    """A task that hashes by its number and not by its address."""

    def __init__(self, number: int, coro: Coroutine[Any, Any, Any], **options: Any) -> None:
        # Before the base class, which puts the task into a set.
        self.number = number
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self.number


class _Clock(selectors.BaseSelector):
    """A selector that never waits: it moves its time by what it is told to wait at most."""

    def __init__(self, on_idle: Callable[[float | None], None]) -> None:
        self._on_idle = on_idle
        self._now_ns = 0
        self._keys: dict[int, selectors.SelectorKey] = {}
        self.now_s = 0.0
        self.turns = 0
        self.sealed = False

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Move on by `timeout` seconds; nothing is ever ready."""
        self._on_idle(timeout)
        if timeout is not None and timeout > 0:
            self._now_ns += max(1, round(timeout * _NS_PER_S))
            self.now_s = self._now_ns / _NS_PER_S
            self.turns = 0
        else:
            self.turns += 1
        return []

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        """Take in what the loop itself needs; raises `VirtualTimeError` for anything later."""
        if self.sealed:
            raise VirtualTimeError(f"{fileobj!r}: files and sockets never become ready on a virtual clock.")
        fd = fileobj if isinstance(fileobj, int) else fileobj.fileno()
        key = self._keys[fd] = selectors.SelectorKey(fileobj, fd, events, data)
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        """Forget a file."""
        return self._keys.pop(fileobj if isinstance(fileobj, int) else fileobj.fileno())

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        """What is registered, by file descriptor."""
        return self._keys


def run(main: Coroutine[Any, Any, T], *, limit_s: float = DEFAULT_LIMIT_S) -> T:
    """Run `main` on a fresh virtual clock and return its result; tasks it leaves behind are cancelled.

    Raises what `main` raises, `TaskLeakError` if it succeeded but left tasks behind, `TimeLimitError` after `limit_s`
    virtual seconds, and the other errors of this module.
    """
    loop = VirtualTimeLoop()
    try:
        try:
            result = loop.run_within(main, limit_s)
        except BaseException:
            # The first failure is the one to tell.
            with contextlib.suppress(VirtualTimeError):
                loop.cancel_pending()
            raise
        left = loop.pending_tasks()
        description = describe_tasks(left)
        loop.cancel_pending()
        loop.run_until_complete(loop.shutdown_asyncgens())
        if left:
            raise TaskLeakError(f"{len(left)} tasks were left behind:\n{description}")
        return result
    finally:
        loop.close()


def describe_tasks(tasks: list[asyncio.Task[Any]]) -> str:
    """One line a task: its name and where it waits."""
    return "\n".join(f"  {task.get_name()}: {_place_of(task)}" for task in tasks)


def _place_of(task: asyncio.Task[Any]) -> str:
    """Function and line of the innermost await of `task`."""
    coroutine: Any = task.get_coro()
    place = "not started"
    while coroutine is not None:
        frame = getattr(coroutine, "cr_frame", None) or getattr(coroutine, "gi_frame", None)
        if frame is not None:
            place = f"{coroutine.__qualname__} ({frame.f_code.co_filename}:{frame.f_lineno})"
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "gi_yieldfrom", None)
    return place
