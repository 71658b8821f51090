"""A sweep that is ended from outside ends at once, with all of its processes, and keeps the cells it has."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

SWEEP = (
    "sweep", "--category", "code", "--limit", "1", "--max-tokens", "64", "--baselines", "streaming",
    "--sessions", "1,800,900", "--jobs", "2",
)  # fmt: skip


class Running:
    """A sweep with a session of its own, as a terminal's command has one."""

    def __init__(self, out: Path) -> None:
        self.out = out
        command = [sys.executable, "-m", "outrider.shared.cli", *SWEEP, "--out", str(out)]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )

    def workers(self) -> list[int]:
        """Processes of the session that run cells."""
        return [pid for pid in self.members() if b"spawn_main" in _read(pid, "cmdline")]

    def members(self) -> list[int]:
        """Living processes of the session."""
        found = []
        for pid in (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()):
            fields = _read(pid, "stat").rpartition(b")")[2].split()
            if fields and fields[0] != b"Z" and int(fields[3]) == self.process.pid:
                found.append(pid)
        return found

    def cells(self) -> int:
        """Whole cells in the file."""
        return max(0, self.out.read_text().count("\n") - 1) if self.out.exists() else 0


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def until(condition: Callable[[], bool], limit_s: float) -> float:
    """Wait for a condition; returns how long that took."""
    began_s = time.monotonic()
    while not condition():
        assert time.monotonic() < began_s + limit_s, "not in time"
        time.sleep(0.02)
    return time.monotonic() - began_s


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    sweep = Running(tmp_path / "sweep.jsonl")
    yield sweep
    for pid in sweep.members():
        os.kill(pid, signal.SIGKILL)
    sweep.process.communicate(timeout=30)


pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")


@pytest.mark.parametrize("kind", [signal.SIGKILL, signal.SIGTERM])
def test_workers_end_with_the_command(running: Running, kind: signal.Signals) -> None:
    until(lambda: running.cells() == 1 and len(running.workers()) == 2, 60)
    os.kill(running.process.pid, kind)
    running.process.wait(timeout=10)
    until(lambda: not running.members(), 5)
    assert running.cells() == 1


@pytest.mark.parametrize("whom", ["all, as a terminal does", "the command"])
def test_ctrl_c_ends_a_running_sweep_silently_and_keeps_its_cells(running: Running, whom: str) -> None:
    until(lambda: running.cells() == 1 and len(running.workers()) == 2, 60)
    _interrupt(running, os.kill if whom == "the command" else os.killpg)
    header, cell = running.out.read_text().splitlines()
    assert json.loads(header)["format"] == "outrider-sweep"
    assert json.loads(cell)["cell"] == {"category": "code", "sessions": 1}


@pytest.mark.parametrize("after_s", [0.0, 0.3])
def test_ctrl_c_while_workers_start_is_silent_too(running: Running, after_s: float) -> None:
    until(lambda: bool(running.workers()), 60)
    time.sleep(after_s)
    _interrupt(running, os.killpg)


def _interrupt(running: Running, send: Callable[[int, int], None]) -> None:
    began_s = time.monotonic()
    send(running.process.pid, signal.SIGINT)
    out, err = running.process.communicate(timeout=30)
    # About a second on an idle machine.
    assert time.monotonic() - began_s < 5
    # The bar ends its line.
    assert (running.process.returncode, out, err.strip()) == (130, "", "")
    until(lambda: not running.members(), 5)
