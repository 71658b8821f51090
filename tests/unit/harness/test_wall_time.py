"""The loop for measuring on the wall clock."""

from __future__ import annotations

import asyncio
import os
import selectors
import subprocess
import sys
import time

import pytest

from outrider.harness.wall_time import Lateness, PreciseLoop, real_time, run, waited_ms


def test_it_does_not_count_in_milliseconds() -> None:
    """How late it wakes is for a quiet machine to measure; `epoll` and `poll` round up to whole milliseconds."""

    async def main() -> object:
        await asyncio.sleep(0.0012)
        return getattr(asyncio.get_running_loop(), "_selector", None)

    assert isinstance(run(main()), selectors.SelectSelector)


def test_it_knows_how_late_its_timers_were() -> None:
    async def main() -> list[float]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, PreciseLoop)
        started = asyncio.create_task(asyncio.sleep(0.001))
        await asyncio.sleep(0)
        time.sleep(0.05)  # noqa: ASYNC251
        await started
        return loop.late_s

    late_s = run(main())
    assert len(late_s) == 1
    assert late_s[0] > 0.048


def test_no_timer_fires_before_its_time() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        for delay_s in (0.0, 0.00001, 0.0001, 0.0003, 0.002):
            began_s = loop.time()
            await asyncio.sleep(delay_s)
            # asyncio lets a timer fire within what the clock resolves.
            assert loop.time() - began_s >= delay_s - time.get_clock_info("monotonic").resolution

    run(main())


def test_lateness_adds_up_what_was_late_and_takes_early_for_punctual() -> None:
    lateness = Lateness.of([0.001, -0.5, 0.003, 0.0])
    assert lateness.steps == 4
    assert lateness.total_ms == pytest.approx(4.0)
    assert lateness.p50_ms == pytest.approx(0.5)
    assert 2.9 < lateness.p99_ms <= 3.0
    assert Lateness.of([]) == Lateness()
    assert Lateness.of([0.002]) == Lateness(1, 2.0, 2.0, 2.0)


def test_real_time_ends_with_its_context() -> None:
    before = os.sched_getscheduler(0)
    with real_time() as is_real_time:
        assert (os.sched_getscheduler(0) == os.SCHED_RR) == is_real_time
    assert os.sched_getscheduler(0) == before


def test_where_real_time_is_not_allowed_a_run_goes_on_without(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    with real_time() as is_real_time:
        assert not is_real_time


BUSY = """
import os, sys, time
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
end = time.monotonic() + 0.6
while time.monotonic() < end:
    pass
print(flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says it")
def test_two_that_share_a_processor_wait_for_it() -> None:
    command = [sys.executable, "-c", BUSY]
    processes = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(2)]
    try:
        for process in processes:
            assert process.stdout is not None
            process.stdout.readline()
        waited = waited_ms(process.pid for process in processes)
        assert waited is not None
        # Each of them had to wait for about as long as both ran.
        assert waited > 200
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def test_how_long_a_process_waited_that_is_not_there_is_not_known() -> None:
    assert waited_ms([os.getpid(), 2**30]) is None
