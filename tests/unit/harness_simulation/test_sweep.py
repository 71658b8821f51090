"""Sweeps: every combination once, taken up where they were left, and one file whatever happened on the way."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from outrider.harness.simulation.scenario import Scenario
from outrider.harness.simulation.sweep import sweep
from outrider.shared.errors import Reason
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
