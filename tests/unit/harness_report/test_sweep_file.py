"""Reading sweeps and timelines: what is refused, and how it is named."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from outrider.harness.report.read import read_sweep, read_timeline
from outrider.shared.errors import OutriderError, Reason
from unit.harness_report.sample_sweep import HEADER, grid, timeline, write_sweep


def refusal(read: Callable[[], object]) -> str:
    with pytest.raises(OutriderError) as caught:
        read()
    assert caught.value.reason is Reason.FILE_UNREADABLE
    return caught.value.detail


def test_cells_and_results_are_read_in_order(tmp_path: Path) -> None:
    sweep = read_sweep(write_sweep(tmp_path / "a.jsonl", grid(rtt_ms=(40, 5))))
    assert [row.cell for row in sweep.rows] == [{"rtt_ms": 40.0}, {"rtt_ms": 5.0}]
    assert [row.line for row in sweep.rows] == [2, 3]
    assert sweep.rows[0].result.baselines["streaming"].ms_per_token == 40.0
    assert sweep.name == "a.jsonl"


def test_blank_lines_and_a_byte_order_mark_do_not_matter(tmp_path: Path) -> None:
    path = write_sweep(tmp_path / "a.jsonl", grid(rtt_ms=(5,)))
    path.write_text("\ufeff" + path.read_text("utf-8").replace("\n", "\n\n"), "utf-8")
    assert [row.line for row in read_sweep(path).rows] == [3]


def test_a_last_line_that_was_cut_short_is_left_out_and_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write_sweep(tmp_path / "a.jsonl", grid(rtt_ms=(5, 20)))
    whole = path.read_text("utf-8").rstrip("\n")
    path.write_text(whole[:-50], "utf-8")
    assert [row.cell for row in read_sweep(path).rows] == [{"rtt_ms": 5.0}]
    assert "line 3" in caplog.text
    caplog.clear()
    path.write_text(whole, "utf-8")
    assert len(read_sweep(path).rows) == 2
    assert not caplog.text
    path.write_text(whole[:-50] + "\n", "utf-8")
    assert "line 3" in refusal(lambda: read_sweep(path))


def test_keys_that_are_not_known_are_allowed(tmp_path: Path) -> None:
    (line,) = grid(rtt_ms=(5,))
    line["result"]["watts"] = 3
    line["result"]["baselines"]["streaming"]["watts"] = {"a": 1}
    assert len(read_sweep(write_sweep(tmp_path / "a.jsonl", [line])).rows) == 1


def without(*path: str) -> Callable[[dict[str, Any]], None]:
    def change(line: dict[str, Any]) -> None:
        for key in path[:-1]:
            line = line[key]
        del line[path[-1]]

    return change


def with_value(value: Any, *path: str) -> Callable[[dict[str, Any]], None]:
    def change(line: dict[str, Any]) -> None:
        for key in path[:-1]:
            line = line[key]
        line[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "key", "reason"),
    [
        (without("cell"), "cell", "Field required"),
        (without("result", "gap_ms", "p95"), "result.gap_ms.p95", "Field required"),
        (without("result", "baselines", "streaming", "tokens"), "result.baselines.streaming.tokens", "Field required"),
        (with_value("12", "result", "ms_per_token"), "result.ms_per_token", "valid number"),
        (with_value(-1.0, "result", "ms_per_token"), "result.ms_per_token", "greater than or equal to 0"),
        (with_value(True, "result", "ttft_ms"), "result.ttft_ms", "valid number"),
        (with_value(float("nan"), "result", "ttft_ms"), "result.ttft_ms", "finite"),
        (with_value(float("inf"), "cell", "rtt_ms"), "cell.rtt_ms", "finite"),
        (with_value(1.5, "result", "alpha"), "result.alpha", "less than or equal to 1"),
        (with_value([1, -2], "result", "accepted_histogram"), "result.accepted_histogram.1", "greater than"),
        (with_value({}, "result", "baselines", "magic"), "result.baselines.magic", "'streaming'"),
        (with_value("far", "cell", "rtt_ms"), "cell", "rtt_ms: expected a number of at least 0, got 'far'"),
        (with_value(0, "cell", "sessions"), "cell", "sessions: expected a number of at least 1"),
        (with_value([1], "cell", "draft_ms"), "cell.draft_ms", "valid"),
        (with_value(None, "result", "settings"), "result.settings", "object"),
    ],
)
def test_what_is_missing_or_wrong_is_refused_with_file_line_key_and_reason(
    tmp_path: Path, change: Callable[[dict[str, Any]], None], key: str, reason: str
) -> None:
    lines = copy.deepcopy(grid(rtt_ms=(5, 20)))
    change(lines[1])
    path = write_sweep(tmp_path / "a.jsonl", lines)
    detail = refusal(lambda: read_sweep(path))
    assert detail.startswith(f"{path}, line 3: {key}")
    assert reason in detail


def test_a_cell_that_comes_twice_is_refused_with_both_lines(tmp_path: Path) -> None:
    lines = grid(rtt_ms=(5, 20))
    path = write_sweep(tmp_path / "a.jsonl", [*lines, lines[0]])
    assert refusal(lambda: read_sweep(path)) == f"{path}, line 4: cell: the same as on line 2."


@pytest.mark.parametrize(
    ("header", "key"),
    [
        ({**HEADER, "format": "outrider-recording"}, "format"),
        ({**HEADER, "version": 2}, "version"),
        ({"format": "outrider-sweep", "version": 1}, "scenario"),
    ],
)
def test_another_header_is_refused(tmp_path: Path, header: dict[str, Any], key: str) -> None:
    path = write_sweep(tmp_path / "a.jsonl", [], header)
    assert f"line 1: {key}: " in refusal(lambda: read_sweep(path))


@pytest.mark.parametrize("content", [b"", b"\n\n", b"{", b"\xff\xfe", b"[" * 100_000])
def test_files_that_are_no_sweeps_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(content)
    assert str(path) in refusal(lambda: read_sweep(path))
    assert str(tmp_path / "none") in refusal(lambda: read_sweep(tmp_path / "none"))


@pytest.mark.parametrize(
    ("change", "key"),
    [
        (with_value(2, "version"), "version"),
        (without("commits"), "commits"),
        (with_value([{"start_ms": 5, "end_ms": 4}], "drafts"), "drafts.0"),
        (with_value([{"direction": "left", "bytes": 1, "sent_ms": 0, "arrives_ms": 1}], "flights"), "flights.0"),
        (with_value([{"direction": "up", "bytes": 1, "sent_ms": 2, "arrives_ms": 1}], "flights"), "flights.0"),
        (with_value([{"at_ms": 1, "tokens": "text"}], "commits"), "commits.0.tokens"),
    ],
)
def test_a_wrong_timeline_is_refused(tmp_path: Path, change: Callable[[dict[str, Any]], None], key: str) -> None:
    content = timeline()
    change(content)
    path = tmp_path / "t.json"
    path.write_text(json.dumps(content), "utf-8")
    assert refusal(lambda: read_timeline(path)).startswith(f"{path}: {key}")
