"""The harness's commands as their users call them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

CASE = ("--category", "code", "--limit", "2", "--max-tokens", "24", "--link", "5g")


def outrider(*arguments: str, hash_seed: str = "0") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "outrider.shared.cli", *arguments],
        capture_output=True, text=True, check=False, timeout=120, env=os.environ | {"PYTHONHASHSEED": hash_seed},
    )  # fmt: skip


def simulated(*arguments: str, hash_seed: str = "0") -> dict[str, Any]:
    done = outrider("simulate", *CASE, *arguments, "--json", hash_seed=hash_seed)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_the_same_seed_gives_the_same_bytes_and_another_does_not() -> None:
    runs = [
        outrider("simulate", *CASE, "--sessions", "3", "--seed", seed, "--json", hash_seed=hash_seed).stdout
        for seed, hash_seed in (("7", "1"), ("7", "2"), ("8", "1"))
    ]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


def test_it_prints_what_the_contract_says() -> None:
    result = simulated("--target-ms", "40", "--draft-ms", "8", "--rtt-ms", "20", "--gamma", "4", "--pace", "eager")
    keys = {
        "ms_per_token", "ttft_ms", "gap_ms", "passes_per_token", "target_ms_per_token", "draft_ms_wasted_per_token",
        "bytes_up_per_token", "bytes_down_per_token", "alpha", "accepted_histogram", "sessions", "settings",
    }  # fmt: skip
    assert keys | {"baselines"} <= set(result)
    assert set(result["baselines"]) == {
        "streaming", "colocated", "batched", "stop_and_wait", "draft_only", "rtt_zero", "oracle",
    }  # fmt: skip
    for baseline in result["baselines"].values():
        assert keys <= set(baseline)
    settings = result["settings"]
    assert (settings["target_ms"], settings["draft_ms"], settings["rtt_ms"]) == (40, 8, 20)
    assert (settings["gamma"], settings["pace"], settings["clock"]) == (4, "eager", "virtual")


def test_a_file_and_options_over_it(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("gamma = 2\nrtt_ms = 5\n")
    result = simulated(str(path), "--rtt-ms", "40", "--baselines", "none")
    assert result["settings"]["gamma"] == 2
    assert result["settings"]["rtt_ms"] == 40
    assert result["baselines"] == {}


def test_bad_scenarios_are_refused_as_json_with_the_usage_exit_code(tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text("rtt_ms = -5\n")
    done = outrider("simulate", str(path), "--json")
    assert done.returncode == 2
    error = json.loads(done.stdout)["error"]
    assert error["reason"] == "USAGE"
    assert "bad.toml" in error["message"]
    assert "rtt_ms = -5" in error["message"]


def test_a_sweep_and_a_plan_from_the_command_line(tmp_path: Path) -> None:
    out = tmp_path / "sweep.jsonl"
    case = ("--limit", "1", "--max-tokens", "16", "--baselines", "streaming")
    for expected in (2, 0):
        done = outrider("sweep", "--rtt-ms", "0,60", "--category", "code", *case, "--out", str(out), "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["run"] == expected
    assert len(out.read_text().splitlines()) == 3
    done = outrider("plan", "--rtt-ms", "20", "--draft-ms", "30", "--target-ms", "25", "--acceptance", "0.8", "--json")
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    assert plan["helps"] is False
    assert abs(plan["acceptance"] - 0.8) < 0.005


def test_the_example_runs_over_its_recorded_trace() -> None:
    example = Path(__file__).parents[2] / "examples" / "train.toml"
    done = outrider("simulate", str(example), "--limit", "1", "--max-tokens", "24", "--json")
    assert done.returncode == 0, done.stderr
    assert 100 < json.loads(done.stdout)["settings"]["rtt_ms"] < 200


def test_a_bad_cell_is_refused_with_its_reason_and_leaves_no_file(tmp_path: Path) -> None:
    out = tmp_path / "sweep.jsonl"
    for options, code, reason in (
        (("--link", "5g,nowhere"), 2, "USAGE"),
        (("--gamma", "1,1.0"), 2, "USAGE"),
        (("--gamma", "2,02"), 2, "USAGE"),
        (("--gamma", "2,4", "--jobs", "65"), 2, "USAGE"),
        (("--rtt-ms", "1e308"), 2, "USAGE"),
        (("--gamma", "2,4", "--recordings", str(tmp_path / "none")), 5, "FILE_UNREADABLE"),
    ):
        done = outrider("sweep", *options, "--out", str(out), "--json")
        assert (done.returncode, json.loads(done.stdout)["error"]["reason"]) == (code, reason), options
    assert not out.exists()


def test_a_page_is_made_in_a_new_folder_of_a_sweep_that_was_cut_short(tmp_path: Path) -> None:
    sweep, page = tmp_path / "sweep.jsonl", tmp_path / "new" / "page.html"
    case = ("--limit", "1", "--max-tokens", "16", "--baselines", "streaming", "--jobs", "1")
    assert outrider("sweep", "--rtt-ms", "0,60", *case, "--out", str(sweep)).returncode == 0
    sweep.write_bytes(sweep.read_bytes()[:-50])
    done = outrider("report", str(sweep), "--out", str(page), "--json")
    assert done.returncode == 0, done.stdout
    assert json.loads(done.stdout)["cells"] == 1
    assert "line 3: was cut short" in done.stderr
    assert page.read_bytes().startswith(b"<!")
