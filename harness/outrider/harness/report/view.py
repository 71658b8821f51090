"""A sweep as all sections look at it: which axes vary, which ways to run it holds, and tables that several need."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from outrider.harness.report.compare import Spread, figures, per_token
from outrider.harness.report.dot_chart import DotRow, dot_chart
from outrider.harness.report.format import AxisValue
from outrider.harness.report.groups import Group, group_rows, nearest, split_axes
from outrider.harness.report.parts import Figure, LegendItem, Table, text_note
from outrider.harness.report.read import Row, Sweep
from outrider.harness.report.words import NO_VALUE, SERIES, axis_name, axis_value, count, listed, number, setting

MAX_DOT_ROWS = 16
TALL_ROWS = 8


@dataclass(frozen=True, slots=True)
class View:
    """A sweep with at least one cell. `axes` vary in it, `common` have one value; `series` are the ways to run."""

    sweep: Sweep
    axes: tuple[str, ...]
    common: Mapping[str, AxisValue | None]
    series: tuple[str, ...]

    @classmethod
    def of(cls, sweep: Sweep) -> View:
        """The view of a sweep."""
        axes, common = split_axes(sweep.rows)
        series = tuple(name for name in SERIES if any(figures(row, name) is not None for row in sweep.rows))
        return cls(sweep, axes, common, series)

    @property
    def rows(self) -> tuple[Row, ...]:
        """All cells, in the order of the file."""
        return self.sweep.rows

    @property
    def common_words(self) -> str:
        """What all cells have in common, as a sentence; empty if nothing."""
        words = [axis_value(axis, value) for axis, value in self.common.items()]
        return f"In all cells: {listed(words)}." if words else ""

    @property
    def solo_words(self) -> str:
        """Which ways ran with fewer sessions than the product, as a sentence; empty if none."""
        names = [
            SERIES[name]
            for name in self.series
            if any((own := figures(row, name)) is not None and own.sessions < row.result.sessions for row in self.rows)
        ]
        return (
            f"With one session alone, however many share the accelerator elsewhere: {listed(names)}." if names else ""
        )

    def groups(self, *without: str) -> tuple[Group, ...]:
        """Groups that agree in all varying axes but these."""
        return group_rows(self.rows, self.axes, without)

    def shown(self, groups: Sequence[Group], limit: int) -> tuple[tuple[Group, ...], tuple[str, ...]]:
        """The groups to draw, and a sentence on those left out if there are any."""
        kept, left_out = nearest(groups, self.sweep.header.scenario, limit)
        if not left_out:
            return kept, ()
        sentence = (
            f"Drawn are the {len(kept)} of {count(len(groups), 'group')} that are nearest to the base scenario, or to "
            "the middle of an axis where it names no value of the sweep; "
            f"{len(left_out)} more are in the tables of numbers only."
        )
        return kept, (sentence,)


def label_cells(group: Group) -> tuple[str, ...]:
    """The values of a group's key, as the first columns of a table."""
    return tuple(NO_VALUE if value is None else setting(value) for _, value in group.key) or (group.label,)


def label_head(axes: Collection[str]) -> tuple[str, ...]:
    """Heads of the columns that `label_cells` fills."""
    return tuple(axis_name(axis) for axis in axes) or ("cells",)


def per_token_column(series: str, name: str) -> Callable[[Group], Spread | None]:
    """A measure per token of one way to run, as a function of a group."""
    return lambda group: per_token(group.rows, series, name)


def dot_figure(
    view: View,
    groups: Sequence[Group],
    title: str,
    unit: str,
    columns: Mapping[str, Callable[[Group], Spread | None]],
    legend: Sequence[LegendItem],
    *,
    series_names: Mapping[str, str] = SERIES,
) -> tuple[Figure, tuple[str, ...]]:
    """A figure with a line for each group and a dot for each column, and a sentence on what was left out if anything
    was. Its table has all groups.
    """
    kept, left_out = view.shown(groups, MAX_DOT_ROWS)
    spreads = {group.key: {name: value(group) for name, value in columns.items()} for group in groups}
    rows = [
        DotRow(
            group.label,
            {name: s for name, s in spreads[group.key].items() if s is not None},
        )
        for group in kept
    ]
    keys = [axis for axis, _ in groups[0].key]
    table = Table(
        title,
        (*label_head(keys), *(series_names[name] for name in columns)),
        tuple((*label_cells(group), *map(_spread_cell, spreads[group.key].values())) for group in groups),
        labels=max(1, len(keys)),
    )
    label = f"{title} for {count(len(kept), 'group')} of cells; the table below holds the numbers."
    note = text_note(list(columns))
    drawing = dot_chart(label, unit, rows)
    return Figure(title, (drawing,), tuple(legend), table, note, tall=len(rows) > TALL_ROWS, long=True), left_out


def _spread_cell(spread: Spread | None) -> str:
    if spread is None:
        return NO_VALUE
    if spread.low == spread.high:
        return number(spread.value)
    return f"{number(spread.value)} ({number(spread.low)} to {number(spread.high)})"
