"""The virtual clock: asyncio as it is, in no time, alike in every run, and loud about what cannot work on it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest

from outrider.harness.virtual_time import (
    DeadlockError,
    LivelockError,
    TaskLeakError,
    ThreadUseError,
    TimeLimitError,
    VirtualTimeError,
    run,
)


def now() -> float:
    return asyncio.get_running_loop().time()


def test_the_clock_starts_at_zero_and_jumps_to_the_nanosecond() -> None:
    async def main() -> list[float]:
        seen = [now()]
        for seconds in (0.1, 0.2, 86_400 * 3, 1e-9):
            await asyncio.sleep(seconds)
            seen.append(now())
        return seen

    began = time.monotonic()
    assert run(main()) == [0.0, 0.1, 0.3, 259_200.3, 259_200.300000001]
    assert time.monotonic() - began < 5


def test_what_asyncio_offers_works() -> None:
    async def main() -> list[object]:
        log: list[object] = []
        queue: asyncio.Queue[int] = asyncio.Queue(maxsize=1)
        opened = asyncio.Event()

        async def produce() -> None:
            for item in range(3):
                await asyncio.sleep(0.5)
                await queue.put(item)
            opened.set()

        async def consume() -> None:
            for _ in range(3):
                log.append((await queue.get(), now()))
                await asyncio.sleep(2)

        async with asyncio.TaskGroup() as group:
            group.create_task(produce())
            group.create_task(consume())
            await opened.wait()
            log.append(("opened", now()))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.5):
                await asyncio.Event().wait()
        log.append(now())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.sleep(9), 0.25)
        done, waiting = await asyncio.wait([asyncio.ensure_future(asyncio.sleep(5))], timeout=1)
        log.append((len(done), len(waiting), now()))
        await asyncio.gather(*waiting)
        return log

    assert run(main()) == [(0, 0.5), (1, 2.5), ("opened", 2.5), (2, 4.5), 8.0, (0, 1, 9.25)]


def test_a_deadlock_names_the_tasks_and_where_they_wait() -> None:
    async def stuck_here() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        await asyncio.sleep(2)
        await asyncio.gather(asyncio.create_task(stuck_here(), name="first"), asyncio.create_task(stuck_here()))

    with pytest.raises(
        DeadlockError, match=r"(?s)at 2\.0+ s 3 tasks.*main: .*first: .*Event\.wait.*task-3: "
    ) as caught:
        run(main())
    assert __file__.rpartition("/")[2] not in str(caught.value).splitlines()[2], "the innermost await is named"


def test_a_loop_that_never_lets_the_clock_move_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outrider.harness.virtual_time.MAX_TURNS_AT_ONE_MOMENT", 1000)

    async def main(turns: int) -> None:
        await asyncio.sleep(1)
        for _ in range(turns):
            await asyncio.sleep(0)

    run(main(900))
    with pytest.raises(LivelockError, match=r"(?s)at 1\.0.*main"):
        run(main(2000))


@pytest.mark.parametrize(
    "start",
    [
        lambda: asyncio.to_thread(time.sleep, 0),
        lambda: asyncio.get_running_loop().run_in_executor(None, time.sleep, 0),
        lambda: asyncio.get_running_loop().getaddrinfo("localhost", 1),
    ],
)
def test_threads_are_refused(start: Callable[[], asyncio.Future[object]]) -> None:
    async def main() -> None:
        await start()

    with pytest.raises(ThreadUseError, match="thread"):
        run(main())


def test_a_call_from_another_thread_is_refused_there_and_ends_the_loop() -> None:
    refused: list[BaseException] = []

    async def main() -> None:
        loop, event = asyncio.get_running_loop(), asyncio.Event()

        def elsewhere() -> None:
            try:
                loop.call_soon_threadsafe(event.set)
            except ThreadUseError as error:
                refused.append(error)

        thread = threading.Thread(target=elsewhere, name="stranger")
        thread.start()
        thread.join()
        await event.wait()

    with pytest.raises(ThreadUseError, match="stranger") as caught:
        run(main())
    assert refused == [caught.value]


def test_sockets_are_refused() -> None:
    async def main() -> None:
        with socket.socket() as one:
            asyncio.get_running_loop().add_reader(one, print)

    with pytest.raises(VirtualTimeError, match="sockets"):
        run(main())


def test_a_task_left_behind_is_cancelled_and_told_of() -> None:
    ended: list[float] = []

    async def forgotten() -> None:
        try:
            await asyncio.sleep(100)
        finally:
            await asyncio.sleep(1)
            ended.append(now())

    async def main() -> None:
        asyncio.create_task(forgotten(), name="forgotten")  # noqa: RUF006 - that is the point
        await asyncio.sleep(1)

    with pytest.raises(TaskLeakError, match="forgotten: "):
        run(main())
    assert ended == [2.0]


def test_the_first_failure_is_told_and_leftovers_are_cancelled() -> None:
    cancelled: list[str] = []

    async def other() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        cancelled.append("other")

    async def main() -> None:
        asyncio.create_task(other())  # noqa: RUF006
        await asyncio.sleep(1)
        raise ValueError("first")

    with pytest.raises(ValueError, match="first"):
        run(main())
    assert cancelled == ["other"]


def test_a_task_that_cannot_be_cancelled_does_not_hang_the_run() -> None:
    async def stubborn() -> None:
        while True:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(1)

    async def main() -> None:
        asyncio.create_task(stubborn())  # noqa: RUF006
        await asyncio.sleep(0.5)
        raise ValueError("first")

    with pytest.raises(ValueError, match="first"):
        run(main())


def test_too_much_virtual_time_is_an_error_and_a_timeout_of_the_program_is_its_own() -> None:
    async def slow() -> None:
        await asyncio.sleep(11)

    async def times_out() -> None:
        async with asyncio.timeout(1):
            await slow()

    with pytest.raises(TimeLimitError, match="10 virtual"):
        run(slow(), limit_s=10)
    with pytest.raises(TimeoutError):
        run(times_out(), limit_s=10)


def test_what_a_callback_raises_ends_the_run() -> None:
    async def main() -> None:
        asyncio.get_running_loop().call_later(1, [].pop)
        await asyncio.sleep(5)

    with pytest.raises(IndexError):
        run(main())


ORDER = """
import asyncio
from outrider.harness.virtual_time import run
ended = []
class Boom(Exception): pass
async def one(number):
    try:
        await asyncio.sleep(10 + number % 3)
    finally:
        ended.append(number)
async def fail():
    await asyncio.sleep(1)
    raise Boom
async def main():
    junk = [object() for _ in range(hash("x") % 1000)]
    tasks = [asyncio.create_task(one(n)) for n in range(20)]
    done, _ = await asyncio.wait(tasks, timeout=11.5)
    ended.extend(task.get_name() for task in done)
    try:
        async with asyncio.TaskGroup() as group:
            for number in range(40):
                group.create_task(one(number))
            group.create_task(fail())
    except* Boom:
        pass
run(main())
print(ended)
"""


def test_sets_of_tasks_have_one_order_in_every_run() -> None:
    """`TaskGroup` and `asyncio.wait` go through sets, whose order is otherwise that of addresses."""
    said = {
        subprocess.run(
            [sys.executable, "-c", ORDER],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(said) == 1
