"""Accelerator time and visible gaps against the number of sessions that share the accelerator."""

from __future__ import annotations

from collections.abc import Callable

from outrider.harness.report.compare import figures, measure
from outrider.harness.report.groups import Group, sessions_of
from outrider.harness.report.line_chart import line_chart
from outrider.harness.report.parts import Figure, Section, Table, legend, text_note
from outrider.harness.report.read import Row
from outrider.harness.report.view import View
from outrider.harness.report.words import SERIES, number

MAX_GROUPS = 6


def _accelerator_ms(row: Row, series: str) -> float | None:
    return measure(row, series, "accelerator_ms_per_token")


def _gap_p95_ms(row: Row, series: str) -> float | None:
    found = figures(row, series)
    return None if found is None else found.gap_ms.p95


SESSION_CHARTS = (
    ("Accelerator time per token", "accelerator ms per token", _accelerator_ms),
    ("Visible gaps, 95th percentile", "ms between updates, p95", _gap_p95_ms),
)


def load(view: View) -> Section:
    """Accelerator time and visible gaps as sessions share one accelerator."""
    title = "Sessions on one accelerator"
    groups = [group for group in view.groups("sessions") if len({sessions_of(row) for row in group.rows}) > 1]
    if not groups:
        return Section("sessions", title, ("No cells differ in their number of sessions only.",))
    kept, left_out = view.shown(groups, MAX_GROUPS)
    drawn = [_session_figure(view, group, *chart) for group in kept for chart in SESSION_CHARTS]
    lead = (
        "More sessions fill a pass with more rows: each costs the accelerator less, until rows stop being free.",
        *filter(None, [view.solo_words]),
        *(sentence.replace("the tables of numbers only", "the table of all cells only") for sentence in left_out),
    )
    return Section("sessions", title, lead, tuple(drawn))


def _session_figure(
    view: View, group: Group, title: str, unit: str, value_at: Callable[[Row, str], float | None]
) -> Figure:
    rows = sorted(group.rows, key=sessions_of)
    values = {name: [value_at(row, name) for row in rows] for name in view.series}
    lines = {
        name: [(float(sessions_of(row)), value) for row, value in zip(rows, found, strict=True) if value is not None]
        for name, found in values.items()
    }
    drawn = {name: points for name, points in lines.items() if points}
    whole = f"{title}: {group.label}"
    table = Table(
        whole,
        ("sessions", *(SERIES[name] for name in view.series)),
        tuple(
            (str(sessions_of(row)), *(number(values[name][index]) for name in view.series))
            for index, row in enumerate(rows)
        ),
    )
    if not drawn:
        return Figure(whole, (), (), table, "No cell of this group has a number for it.")
    label = f"{title} against sessions, {group.label}; the table below holds the numbers."
    drawing = line_chart(label, "sessions", unit, drawn, log_x=True)
    return Figure(whole, (drawing,), legend(list(drawn)), table, text_note(list(drawn)))
