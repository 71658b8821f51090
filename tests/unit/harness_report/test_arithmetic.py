"""Break-even, ratios, sums and money, against numbers worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import JsonValue

from outrider.harness.report.compare import (
    Region,
    break_evens,
    compare,
    money_per_million,
    per_token,
    regions,
    tokens_per_pass,
)
from outrider.harness.report.groups import group_rows, nearest, split_axes
from outrider.harness.report.read import Row, read_sweep
from outrider.harness.report.words import number, setting
from unit.harness_report.sample_sweep import Json, figures, grid, write_sweep


def rows_of(tmp_path: Path, lines: list[Json]) -> tuple[Row, ...]:
    return read_sweep(write_sweep(tmp_path / "a.jsonl", lines)).rows


def line(product: Json, streaming: Json | None, **cell: float) -> Json:
    baselines = {} if streaming is None else {"streaming": streaming}
    return {"cell": cell, "result": {**product, "baselines": baselines}}


def test_break_even_lies_where_the_straight_lines_cross() -> None:
    # From 30 to 60 ms over 60 ms of round trip: half a millisecond a millisecond, so 40 is reached 20 ms on.
    found = regions([(20, 30, 40), (80, 60, 40)])
    assert found == (Region("faster", 20, 40), Region("slower", 40, 80))
    assert break_evens(found) == (40,)


def test_break_even_allows_for_a_baseline_that_moves_too() -> None:
    # The lead of 10 shrinks to -5 over 30 ms: two thirds of the way.
    assert break_evens(regions([(0, 30, 40), (30, 50, 45)])) == (20,)


def test_every_crossing_is_found() -> None:
    assert break_evens(regions([(0, 30, 40), (10, 50, 40), (20, 30, 40)])) == (5, 15)


def test_equal_at_a_cell_is_one_break_even() -> None:
    assert break_evens(regions([(0, 30, 40), (10, 40, 40), (20, 50, 40)])) == (10,)


def test_equal_from_a_cell_on_is_a_region() -> None:
    found = regions([(0, 30, 40), (10, 40, 40), (20, 40.000001, 40)])
    assert found == (Region("faster", 0, 10), Region("as fast", 10, 20))
    assert break_evens(found) == (10,)


def test_without_a_crossing_there_is_no_break_even() -> None:
    assert regions([(5, 50, 40), (80, 60, 40)]) == (Region("slower", 5, 80),)
    assert break_evens(regions([(5, 50, 40), (80, 60, 40)])) == ()
    assert regions([]) == ()


def test_a_million_tokens_at_9_accelerator_ms_and_8_an_hour_cost_20() -> None:
    # 9,000 seconds are 2.5 hours.
    assert money_per_million(8.0, 9.0) == pytest.approx(20.0)


def test_sums_weigh_tokens_and_passes(tmp_path: Path) -> None:
    lines = [
        line(figures(10.0, 1.0, 2.0, tokens=100, bytes_up_per_token=4.0), None, rtt_ms=5),
        line(figures(20.0, 1.0, 6.0, tokens=300, bytes_up_per_token=8.0), None, rtt_ms=20),
        line(figures(None, 1.0, None, tokens=300, bytes_up_per_token=None), None, rtt_ms=40),
    ]
    rows = rows_of(tmp_path, lines)
    passes = tokens_per_pass(rows, "product")
    # 400 tokens in 50 + 50 passes.
    assert passes is not None
    assert [passes.value, passes.low, passes.high] == pytest.approx([4, 2, 6])
    bytes_up = per_token(rows, "product", "bytes_up_per_token")
    assert bytes_up is not None
    assert (bytes_up.value, bytes_up.low, bytes_up.high) == (7.0, 4.0, 8.0)
    assert per_token(rows, "streaming", "bytes_up_per_token") is None


def test_cells_are_counted_as_won_lost_equal_or_missing(tmp_path: Path) -> None:
    stream = figures(40.0, 40.0, 1.0)
    lines = [
        line(figures(20.0, 10.0, 4.0), stream, rtt_ms=5),
        line(figures(40.0, 10.0, 4.0), stream, rtt_ms=20),
        line(figures(80.0, 10.0, 4.0), stream, rtt_ms=40),
        line(figures(None, 10.0, 4.0), stream, rtt_ms=60),
        line(figures(10.0, 10.0, 4.0), None, rtt_ms=80),
    ]
    found = compare(rows_of(tmp_path, lines), "streaming")
    assert [found.count("faster"), found.count("as fast"), found.count("slower"), found.missing] == [1, 1, 1, 2]
    assert (found.best.ratio, found.best.row.line) == (2.0, 2)
    assert (found.worst.ratio, found.worst.row.line) == (0.5, 4)


def test_only_axes_that_vary_make_groups(tmp_path: Path) -> None:
    lines = grid(rtt_ms=(5, 20), draft_ms=(8, 4), gamma=(5,))
    rows = rows_of(tmp_path, lines)
    varying, common = split_axes(rows)
    assert varying == ("draft_ms", "rtt_ms")
    assert common == {"sessions": 1.0, "gamma": 5.0}
    groups = group_rows(rows, varying, without=("rtt_ms",))
    assert [group.label for group in groups] == ["draft 4\N{NO-BREAK SPACE}ms", "draft 8\N{NO-BREAK SPACE}ms"]
    assert [len(group.rows) for group in groups] == [2, 2]


def test_a_cell_that_does_not_name_an_axis_stands_where_its_settings_say(tmp_path: Path) -> None:
    lines = grid(rtt_ms=(5,), draft_ms=(4, 8))
    del lines[1]["cell"]["draft_ms"]
    varying, _ = split_axes(rows_of(tmp_path, lines))
    assert varying == ("draft_ms",)


def test_a_profile_that_is_spelled_out_is_called_by_its_name(tmp_path: Path) -> None:
    lines = grid(rtt_ms=(5,), draft_ms=(4, 8))
    lines[0]["cell"] = {"device": "phone"}
    lines[1]["cell"] = {"rtt_ms": 5}
    lines[1]["result"]["settings"]["device"] = {"name": "laptop", "token_ms": 8.0}
    assert [group.label for group in group_rows(rows_of(tmp_path, lines), ("device",))] == [
        "device laptop",
        "device phone",
    ]


def test_the_groups_nearest_to_the_base_scenario_are_kept(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, grid(draft_ms=(4, 8), target_ms=(25, 40), gamma=(3, 5)))
    groups = group_rows(rows, ("draft_ms", "target_ms", "gamma"))
    kept, left_out = nearest(groups, {"draft_ms": 8, "target_ms": 40.0, "gamma": 5}, 4)
    keys = [tuple(value for _, value in group.key) for group in kept]
    assert keys == [(4.0, 40.0, 5.0), (8.0, 25.0, 5.0), (8.0, 40.0, 3.0), (8.0, 40.0, 5.0)]
    assert len(left_out) == 4


def test_the_middle_stands_in_for_what_the_base_scenario_does_not_name(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, grid(draft_ms=(4, 8, 30), target_ms=(10, 25, 40)))
    kept, _ = nearest(group_rows(rows, ("draft_ms", "target_ms")), {"draft_ms": 5, "seed": 1}, 1)
    assert kept[0].key == (("draft_ms", 8.0), ("target_ms", 25.0))


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (0.0, "0"), (3.14159, "3.142"), (41.27, "41.27"), (1234.5, "1,234"), (0.00012345, "0.0001234")],
)
def test_numbers_have_four_digits(value: float | None, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(5.0, "5"), (2.5, "2.5"), ("a b", "a b"), (True, "true"), (None, "null"), ([1, "x"], '[1, "x"]')],
)
def test_settings_read_as_they_were_written(value: JsonValue, text: str) -> None:
    assert setting(value) == text
