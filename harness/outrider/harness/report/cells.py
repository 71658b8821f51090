"""Every cell with its numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from outrider.harness.report.compare import compare, figures, measure
from outrider.harness.report.groups import value_of
from outrider.harness.report.parts import Section, Table, text_note
from outrider.harness.report.read import Row
from outrider.harness.report.view import View
from outrider.harness.report.words import (
    COLOCATED,
    NO_VALUE,
    PRODUCT,
    SERIES,
    STREAMING,
    axis_name,
    factor,
    number,
    setting,
)

Column = tuple[str, Callable[[Row], str]]


def cells(view: View) -> Section:
    """Three tables with a line for each cell, each narrow enough to print."""
    speed: list[Column] = [
        ("ms per token", _own("ms_per_token")),
        ("× streaming", lambda row: _ratio(row, STREAMING)),
        ("× co-located", lambda row: _ratio(row, COLOCATED)),
        ("first token, ms", _own("ttft_ms")),
        ("gap p50, ms", lambda row: number(row.result.gap_ms.p50)),
        ("gap p95, ms", lambda row: number(row.result.gap_ms.p95)),
        ("gap p99, ms", lambda row: number(row.result.gap_ms.p99)),
        ("answers", lambda row: f"{row.result.answers:,}"),
        ("tokens", lambda row: f"{row.result.tokens:,}"),
    ]
    work: list[Column] = [
        ("tokens per pass", _own("tokens_per_pass")),
        ("passes per token", _own("passes_per_token")),
        ("target ms per token", _own("target_ms_per_token")),
        ("accelerator ms per token", _own("accelerator_ms_per_token")),
        ("draft ms wasted per token", _own("draft_ms_wasted_per_token")),
        ("bytes up per token", _own("bytes_up_per_token")),
        ("bytes down per token", _own("bytes_down_per_token")),
        ("acceptance α", _own("alpha")),
    ]
    rivals: list[Column] = [(SERIES[name], _rival(name)) for name in view.series if name != PRODUCT]
    note = "With the γ that a baseline was run with behind its number, where it has one of its own."
    tables = [_table(view, "The split: speed", speed), _table(view, "The split: work", work)]
    if rivals:
        tables.append(
            _table(view, "Milliseconds per token of the others", rivals, f"{note} {text_note(view.series)}".strip())
        )
    lead = tuple(filter(None, (view.common_words, "Other numbers of the baselines are in the sweep file.")))
    return Section("cells", "All cells", lead, tables=tuple(tables), wide=True)


def _table(view: View, caption: str, columns: Iterable[Column], note: str = "") -> Table:
    columns = list(columns)
    rows = tuple(
        (
            str(index),
            *(_axis_cell(row, axis) for axis in view.axes),
            *(cell(row) for _, cell in columns),
        )
        for index, row in enumerate(view.rows, 1)
    )
    head = ("cell", *map(axis_name, view.axes), *(name for name, _ in columns))
    return Table(caption, head, rows, labels=1 + len(view.axes), note=note)


def _axis_cell(row: Row, axis: str) -> str:
    value = value_of(row, axis)
    return NO_VALUE if value is None else setting(value)


def _own(name: str) -> Callable[[Row], str]:
    return lambda row: number(measure(row, PRODUCT, name))


def _ratio(row: Row, baseline: str) -> str:
    found = compare([row], baseline)
    return factor(found.best.ratio if found.outcomes else None)


def _rival(name: str) -> Callable[[Row], str]:
    def cell(row: Row) -> str:
        found = figures(row, name)
        if found is None:
            return NO_VALUE
        gamma = found.settings.get("gamma")
        own = gamma is not None and gamma != row.result.settings.get("gamma")
        return f"{number(found.ms_per_token)} (γ {setting(gamma)})" if own else number(found.ms_per_token)

    return cell
