"""The experiment's log and its report: what is written comes back, what is not such a line is refused by its number."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from outrider.edge.experiment_log import ExperimentLog, LogLine, read_logs
from outrider.edge.experiment_report import report
from outrider.shared.cli import main
from outrider.shared.errors import Reason
from support.refusal import refused

SETTINGS: dict[str, str | int | float | None] = {"drafter": "tiny:0", "gamma": 5, "pace": "patient"}


def line(arm: str = "a", **changes: Any) -> LogLine:
    fields: dict[str, Any] = {
        "version": 1, "experiment": "plain", "arm": arm, "time": "2026-01-01T00:00:00.000+00:00", "model": "target",
        "draft_model": "draft", "settings": SETTINGS, "tokens": 11, "seconds": 1.5, "ttft_ms": 500.0, "passes": 4,
        "drafted": 20, "accepted": 7, "uplink_bytes": 100, "downlink_bytes": 120, "finish_reason": "stop",
        "error": None,
    }  # fmt: skip
    return LogLine(**(fields | changes))


def written(path: Path, *lines: LogLine) -> Path:
    log = ExperimentLog(path)
    for each in lines:
        log.append(each)
    return path


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[dict[str, Any]]]:
    code = main(["experiment", *arguments, "--json"])
    return code, [json.loads(row) for row in capsys.readouterr().out.splitlines()]


def test_what_is_written_is_read_back_whatever_the_names_hold(tmp_path: Path) -> None:
    odd = line(model="line\u2028end and ünïcode", error="INTERNAL", finish_reason=None, ttft_ms=None)
    path = written(tmp_path / "log.jsonl", line(), odd)
    assert read_logs([path]) == [line(), odd]


def test_a_name_that_is_no_unicode_costs_the_log_a_character_and_not_the_answer(tmp_path: Path) -> None:
    path = written(tmp_path / "log.jsonl", line().model_copy(update={"draft_model": "\udcff.gguf"}))
    assert read_logs([path])[0].draft_model == "?.gguf"


def test_processes_that_share_a_log_do_not_mix_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    program = """
import sys
from pathlib import Path
from outrider.edge.experiment_log import ExperimentLog, LogLine
line = LogLine.model_validate_json(sys.argv[2])
log = ExperimentLog(Path(sys.argv[1]))
for _ in range(2000):
    log.append(line)
"""
    long = [line("a", model="a" * 5000), line("b", model="b" * 5000)]
    writers = [subprocess.Popen([sys.executable, "-c", program, str(path), each.model_dump_json()]) for each in long]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    found = read_logs([path])
    assert [found.count(each) for each in long] == [2000, 2000]


@pytest.mark.parametrize("where", ["missing/log.jsonl", ".", "/dev/full"])
def test_a_log_that_cannot_be_written_is_said_once(
    tmp_path: Path, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    written(tmp_path / where, line(), line(), line())
    assert len(caplog.records) == 1
    assert str(tmp_path / where) in caplog.text


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"version": 2}, "version = '2'"),
        ({"version": 2, "tokens": "many"}, "version = '2'"),
        ({"arm": "c"}, "arm = 'c'"),
        ({"tokens": -1}, "tokens = '-1'"),
        ({"tokens": "11"}, "tokens = '11'"),
        ({"seconds": None}, "seconds = 'None'"),
        ({"seconds": math.nan}, "seconds = 'nan'"),
        ({"ttft_ms": math.inf}, "ttft_ms = 'inf'"),
        ({"passes": ...}, "passes: Field required"),
    ],
)
def test_another_version_and_a_wrong_value_are_refused_with_file_and_line(
    tmp_path: Path, change: dict[str, Any], named: str
) -> None:
    path = written(tmp_path / "log.jsonl", line())
    fields = {k: v for k, v in (line().model_dump() | change).items() if v is not ...}
    with path.open("a") as file:
        file.write("\n" + json.dumps(fields) + "\n")
    with refused(Reason.FILE_UNREADABLE, f"{path}, line 3: ", named):
        read_logs([path])


@pytest.mark.parametrize("row", ['{"version": 1', "null", "[]", "\x00", "\xff"])
def test_a_line_that_is_no_json_object_is_refused_with_its_number(tmp_path: Path, row: str) -> None:
    path = written(tmp_path / "log.jsonl", line())
    path.write_bytes(path.read_bytes() + row.encode("latin-1"))
    with refused(Reason.FILE_UNREADABLE, f"{path}, line 2: "):
        read_logs([path])


def test_keys_of_a_later_writer_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(json.dumps(line().model_dump() | {"energy_joules": 3}))
    assert read_logs([path]) == [line()]


def test_a_log_given_twice_or_missing_or_empty_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "log.jsonl", line())
    (tmp_path / "link.jsonl").symlink_to(path)
    with refused(Reason.USAGE, "link.jsonl is given twice"):
        read_logs([path, tmp_path / "link.jsonl"])
    with refused(Reason.FILE_UNREADABLE, "none.jsonl"):
        read_logs([tmp_path / "none.jsonl"])
    (tmp_path / "empty.jsonl").write_text("\n")
    assert main(["experiment", str(tmp_path / "empty.jsonl")]) == 5


def test_an_arm_is_summed_up_over_its_answers() -> None:
    lines = [
        line("a"),
        line("a", tokens=21, seconds=2.0, ttft_ms=1000.0, passes=6),
        line("a", tokens=1, seconds=0.2, ttft_ms=200.0, passes=1),
        line("a", tokens=0, seconds=0.1, ttft_ms=None, passes=0, finish_reason=None, error="INTERNAL"),
        line("a", tokens=7, seconds=0.7, ttft_ms=100.0, passes=3, finish_reason="cancelled"),
    ]
    arm = report("plain", lines, 0.95)["arms"]["a"]
    assert (arm["answers"], arm["failures"], arm["cancelled"], arm["tokens"]) == (5, 1, 1, 40)
    # Sum over answers of more than one token, cut short or not: (1000 + 1000 + 600) ms / (10 + 20 + 6) tokens.
    assert arm["ms_per_token"] == pytest.approx(2600 / 36, abs=1e-4)
    assert arm["ttft_ms"] == {"mean": 450.0, "p50": 350.0, "p95": pytest.approx(925.0)}
    assert arm["tokens_per_pass"] == pytest.approx(40 / 14, abs=1e-4)
    assert arm["bytes_per_token"] == pytest.approx(5 * 220 / 40)
    assert arm["settings"] == [SETTINGS]


def test_fewer_than_two_answers_in_an_arm_are_said_instead_of_an_interval(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # The second answer of arm b has one token, so it says nothing about the time between tokens.
    path = written(tmp_path / "log.jsonl", line(), line(), line("b"), line("b", tokens=1))
    code, (found,) = said(capsys, str(path))
    assert code == 0
    assert found["comparison"]["ms_per_token"] is None
    assert (found["distinguishable"], found["more_answers"]) == (None, None)
    assert "arm a has 2 and arm b has 1" in found["verdict"]
    assert main(["experiment", str(path)]) == 0
    assert "arm a has 2 and arm b has 1" in capsys.readouterr().out


def speeds(arm: str, *milliseconds: float, **changes: Any) -> list[LogLine]:
    return [line(arm, seconds=0.5 + 10 * ms / 1000, **changes) for ms in milliseconds]


def test_the_verdict_says_what_can_be_told_apart_and_how_many_more_are_needed() -> None:
    clear = report("x", [*speeds("a", 20, 21, 19, 20), *speeds("b", 10, 11, 9, 10)], 0.95)
    assert clear["distinguishable"]
    assert clear["more_answers"] == 0
    assert clear["comparison"]["ms_per_token"]["ratio"]["estimate"] == 0.5
    assert clear["comparison"]["ms_per_token"]["difference"]["estimate"] == -10
    assert clear["verdict"].startswith("arm b takes 0.500 times")
    assert clear["verdict"].endswith("distinguishable.")
    unclear = report("x", [*speeds("a", 20, 25, 15, 20), *speeds("b", 19, 24, 14, 20)], 0.95)
    assert not unclear["distinguishable"]
    assert unclear["more_answers"] > 8
    assert "not distinguishable" in unclear["verdict"]
    assert "more answers would show it" in unclear["verdict"]


def test_a_wider_confidence_gives_a_longer_interval() -> None:
    lines = [*speeds("a", 20, 25, 15, 20), *speeds("b", 19, 24, 14, 20)]
    low, high = (report("x", lines, c)["comparison"]["ms_per_token"]["ratio"] for c in (0.8, 0.99))
    assert high["low"] < low["low"] < low["high"] < high["high"]


def test_an_arm_that_fails_more_is_pointed_out() -> None:
    lines = [*[line("a")] * 50, *[line("b")] * 30, *[line("b", finish_reason=None, error="INTERNAL")] * 20]
    found = report("x", lines, 0.95)
    assert found["arms"]["b"]["failures"] == 20
    assert found["comparison"]["failure_share"]["difference"]["estimate"] == pytest.approx(0.4)
    assert any("arm b fails more often" in note for note in found["notes"])


def test_settings_and_models_that_changed_under_one_name_are_pointed_out() -> None:
    changed = dict(SETTINGS) | {"gamma": 3}
    found = report("x", [line("a"), line("a", settings=changed), line("b", model="other")], 0.95)
    assert any("arm a changed" in note for note in found["notes"])
    assert any("other, target" in note for note in found["notes"])
    assert report("x", [line("a"), line("b")], 0.95)["notes"] == []


def test_several_experiments_are_reported_each_or_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = written(tmp_path / "1.jsonl", line(), line("b"), line(experiment="[bold]other"))
    second = written(tmp_path / "2.jsonl", line())
    code, found = said(capsys, str(first), str(second))
    assert (code, [each["experiment"] for each in found]) == (0, ["plain", "[bold]other"])
    assert found[0]["arms"]["a"]["answers"] == 2
    code, found = said(capsys, str(first), str(second), "--name", "[bold]other")
    assert (code, [each["experiment"] for each in found]) == (0, ["[bold]other"])
    assert main(["experiment", str(first)]) == 0
    assert "experiment [bold]other" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code", "named"),
    [
        (["--confidence", "1"], 2, "--confidence 1.0"),
        (["--confidence", "0"], 2, "--confidence 0.0"),
        (["--confidence", "nan"], 2, "--confidence nan"),
        (["--confidence", "high"], 2, "--confidence"),
        (["--name", "none"], 2, "expected one of 'plain'"),
        (["missing.jsonl"], 5, "missing.jsonl"),
    ],
)
def test_bad_options_of_the_command_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, named: str
) -> None:
    path = written(tmp_path / "log.jsonl", line())
    exit_code, (found,) = said(capsys, str(path), *arguments)
    assert exit_code == code
    assert named in found["error"]["message"]
