"""Sweeps: every combination once, taken up where they were left, and one file whatever happened on the way."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
from pathlib import Path

import pytest

from outrider.harness.simulation import sweep as sweep_module
from outrider.harness.simulation import workers
from outrider.harness.simulation.scenario import Scenario, shipped_recordings
from outrider.harness.simulation.sweep import sweep
from outrider.harness.simulation.workers import running
from outrider.shared.errors import OutriderError, Reason
from support.refusal import refused

BASE = Scenario(category=("code",), limit=1, max_tokens=16, baselines=("streaming",))
AXES = {"rtt_ms": [0, 60], "gamma": [2, 4]}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    out = tmp_path_factory.mktemp("whole") / "sweep.jsonl"
    assert sweep(BASE, AXES, out, 2) == 4
    return out.read_bytes()


def test_all_combinations_are_there_in_order_and_differ(whole: bytes) -> None:
    header, *cells = [json.loads(line) for line in whole.splitlines()]
    assert header["format"] == "outrider-sweep"
    assert [cell["cell"] for cell in cells] == [{"rtt_ms": r, "gamma": g} for r in (0, 60) for g in (2, 4)]
    for cell in cells:
        assert {key: cell["result"]["settings"][key] for key in AXES} == cell["cell"]
    assert len({cell["result"]["ms_per_token"] for cell in cells}) == 4


@pytest.mark.parametrize("kept", [1, 2, 3])
def test_what_was_cut_off_goes_on_and_ends_with_the_same_bytes(whole: bytes, tmp_path: Path, kept: int) -> None:
    lines = whole.splitlines(keepends=True)
    out = tmp_path / "sweep.jsonl"
    # Cells in another order, as processes finish, and half a line where the power went.
    out.write_bytes(lines[0] + b"".join(reversed(lines[1 : 1 + kept])) + lines[4][:50])
    told: list[tuple[int, int]] = []
    assert sweep(BASE, AXES, out, 1, lambda done, total: told.append((done, total))) == 4 - kept
    assert out.read_bytes() == whole
    assert told == [(done, 4) for done in range(kept, 5)]


def test_a_file_of_another_sweep_is_left_alone(whole: bytes, tmp_path: Path) -> None:
    out = tmp_path / "sweep.jsonl"
    out.write_bytes(whole)
    with refused(Reason.USAGE, "another axes", "--out"):
        sweep(BASE, {"rtt_ms": [0], "gamma": [2, 4]}, out, 1)
    with refused(Reason.USAGE, "another scenario"):
        sweep(BASE.model_copy(update={"seed": 2}), AXES, out, 1)
    out.write_text("my notes\n")
    with refused(Reason.FILE_UNREADABLE, "sweep.jsonl:1"):
        sweep(BASE, AXES, out, 1)
    assert out.read_text() == "my notes\n"


def test_values_that_make_no_scenario_are_refused_before_anything_runs(tmp_path: Path) -> None:
    out = tmp_path / "sweep.jsonl"
    with refused(Reason.USAGE, "gamma = 0"):
        sweep(BASE, {"gamma": [4, 0]}, out, 1)
    assert not out.exists()


def test_a_cell_without_its_profile_policy_or_files_is_refused_before_anything_runs(tmp_path: Path) -> None:
    out = tmp_path / "sweep.jsonl"
    for axes, reason, part in (
        ({"target": ["70b-4xa100-40ms", "nowhere"]}, Reason.USAGE, "'nowhere'"),
        ({"control": ["fixed", "magic"]}, Reason.USAGE, "'magic'"),
        ({"category": ["code", "cooking"]}, Reason.FILE_UNREADABLE, "cooking"),
    ):
        with refused(reason, part):
            sweep(BASE, axes, out, 1)
    with refused(Reason.USAGE, "nothing is emulated"):
        sweep(BASE.model_copy(update={"emulator": "netem"}), AXES, out, 1)
    assert not out.exists()


def test_what_a_cell_raises_while_it_runs_keeps_its_reason(tmp_path: Path) -> None:
    with refused(Reason.FILE_UNREADABLE, "gone"), running(gone, {"a": "gone"}, 1) as futures:
        for future in futures:
            future.result()


def gone(text: str) -> None:
    raise OutriderError(Reason.FILE_UNREADABLE, text)


@pytest.mark.parametrize(("jobs", "expected"), [(1, 1), (3, 3), (64, 4)])
def test_there_are_no_more_processes_than_cells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: int, expected: int
) -> None:
    asked: list[int] = []

    def pool(count: int, *_: object, **__: object) -> None:
        asked.append(count)
        raise KeyboardInterrupt

    monkeypatch.setattr(workers, "ProcessPoolExecutor", pool)
    with pytest.raises(KeyboardInterrupt):
        sweep(BASE, AXES, tmp_path / "sweep.jsonl", jobs)
    assert asked == [expected]


def test_a_file_whose_inputs_have_changed_is_of_another_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, trace, recordings = tmp_path / "sweep.jsonl", tmp_path / "walk.csv", tmp_path / "recordings"
    trace.write_text("time_s,rtt_ms\n0,10\n5,90\n")
    shutil.copytree(shipped_recordings("greedy"), recordings)
    base = BASE.model_copy(update={"trace": str(trace), "recordings": str(recordings), "baselines": ()})
    assert sweep(base, {"gamma": [2]}, out, 1) == 1
    assert sweep(base, {"gamma": [2]}, out, 1) == 0
    trace.write_text("time_s,rtt_ms\n0,10\n5,91\n")
    with refused(Reason.USAGE, "another sha256"):
        sweep(base, {"gamma": [2]}, out, 1)
    trace.write_text("time_s,rtt_ms\n0,10\n5,90\n")
    shutil.copy(recordings / "code-01.npz", recordings / "other.npz")
    with refused(Reason.USAGE, "another sha256"):
        sweep(base, {"gamma": [2]}, out, 1)
    (recordings / "other.npz").unlink()
    monkeypatch.setattr(sweep_module, "software_version", lambda: "0.0.7")
    with refused(Reason.USAGE, "another software", "0.0.7"):
        sweep(base, {"gamma": [2]}, out, 1)


def test_axes_of_another_type_are_another_sweeps(whole: bytes, tmp_path: Path) -> None:
    out = tmp_path / "sweep.jsonl"
    out.write_bytes(whole)
    with refused(Reason.USAGE, "another axes"):
        sweep(BASE, {"rtt_ms": [0.0, 60], "gamma": [2, 4]}, out, 1)


def test_characters_that_only_python_takes_for_ends_of_lines_do_not_matter(whole: bytes, tmp_path: Path) -> None:
    out = tmp_path / "sweep.jsonl"
    lines = whole.decode().splitlines()
    lines[1] = lines[1].replace('"result": {', '"result": {"note": "a\u2028b\x85c", ', 1)
    out.write_text("\n".join(lines) + "\n", "utf-8")
    assert sweep(BASE, AXES, out, 1) == 0
    assert "a\u2028b\x85c" in out.read_text("utf-8")


def test_what_is_no_sweeps_file_is_not_overwritten(tmp_path: Path) -> None:
    notes, pipe = tmp_path / "notes", tmp_path / "pipe"
    notes.write_text("no end of line")
    with refused(Reason.FILE_UNREADABLE, "notes:1"):
        sweep(BASE, AXES, notes, 1)
    assert notes.read_text() == "no end of line"
    os.mkfifo(pipe)
    with refused(Reason.FILE_UNREADABLE, "pipe"):
        sweep(BASE, AXES, pipe, 1)
    assert pipe.is_fifo()


def test_an_interrupt_waits_until_the_processes_are_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that another thread takes, such as that of the progress bar."""
    started: list[str] = []

    def take() -> None:
        # A thread inherits the mask of the one that starts it.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    class Pool:
        def __init__(self, *_: object, **__: object) -> None: ...

        def submit(self, _: object, item: str) -> object:
            other = threading.Thread(target=take)
            other.start()
            other.join()
            started.append(item)
            return object()

        def shutdown(self, **_: object) -> None: ...

    monkeypatch.setattr(workers, "ProcessPoolExecutor", Pool)
    with pytest.raises(KeyboardInterrupt), running(gone, {"a": "1", "b": "2"}, 2):
        pytest.fail("goes on")
    assert started == ["1", "2"]
