"""Milliseconds a token against the round trip time, and the round trips at which a lead is lost."""

from __future__ import annotations

from collections.abc import Sequence

from outrider.harness.report import svg
from outrider.harness.report.compare import break_evens, measure, regions
from outrider.harness.report.groups import Group, rtt_of
from outrider.harness.report.line_chart import line_chart
from outrider.harness.report.parts import Figure, LegendItem, Section, Table, legend, text_note
from outrider.harness.report.read import Row
from outrider.harness.report.summary import RIVALS
from outrider.harness.report.view import View, dot_figure, label_cells, label_head, per_token_column
from outrider.harness.report.words import NO_VALUE, PRODUCT, SERIES, STREAMING, count, number, unbroken

MAX_PANELS = 12
MEASURE = "ms_per_token"


def speed(view: View) -> Section:
    """Lines where cells of a group have several round trip times, dots where they have one."""
    groups = view.groups("rtt_ms")
    panels = [group for group in groups if len(_rtts(group)) > 1]
    others = [group for group in groups if len(_rtts(group)) < 2]
    lead = ["Time a token takes after the first one, as its reader sees it; less is better.", view.common_words]
    figures: list[Figure] = []
    tables: list[Table] = []
    if panels:
        kept, left_out = view.shown(panels, MAX_PANELS)
        lead.append(
            "A vertical line stands where the split is as fast as streaming; between cells it is interpolated on "
            "straight lines, beyond them nothing is claimed."
        )
        lead += left_out
        unplaced = sum(rtt_of(row) is None for group in panels for row in group.rows)
        if unplaced:
            lead.append(f"{count(unplaced, 'cell')} without a round trip time cannot be drawn here.")
        tables.append(_break_even_table(panels))
        if left_out:
            tables.append(_all_panels_table(view, panels))
        figures += [_panel(view, group) for group in kept]
    if others:
        lead.append("Where a group has one round trip time only, its ways to run are dots on one line.")
        columns = {name: per_token_column(name, MEASURE) for name in view.series}
        figure, left_out = dot_figure(
            view, others, "Time per token, ms", "ms per token", columns, legend(view.series, "mark")
        )
        figures.append(figure)
        lead += left_out
    return Section("speed", "Time per token and round trip", tuple(filter(None, lead)), tuple(figures), tuple(tables))


def _rtts(group: Group) -> list[float]:
    """Round trip times of a group's cells, in milliseconds, each once."""
    return sorted({rtt_ms for rtt_ms in map(rtt_of, group.rows) if rtt_ms is not None})


def _sorted_rows(group: Group) -> list[tuple[float, Row]]:
    """Cells by round trip time; those without one are left out."""
    found = [(rtt_ms, row) for row in group.rows if (rtt_ms := rtt_of(row)) is not None]
    return sorted(found, key=lambda pair: pair[0])


def _against(group: Group, baseline: str) -> list[tuple[float, float, float]]:
    """Points (rtt_ms, product, baseline) where both are known, in milliseconds a token."""
    points = []
    for rtt_ms, row in _sorted_rows(group):
        product, other = measure(row, PRODUCT, MEASURE), measure(row, baseline, MEASURE)
        if product is not None and other is not None:
            points.append((rtt_ms, product, other))
    return points


def _panel(view: View, group: Group) -> Figure:
    rows = _sorted_rows(group)
    lines = {
        name: [(rtt_ms, value) for rtt_ms, row in rows if (value := measure(row, name, MEASURE)) is not None]
        for name in view.series
    }
    drawn = {name: points for name, points in lines.items() if points}
    table = Table(
        f"Milliseconds per token: {group.label}",
        ("RTT, ms", *(SERIES[name] for name in view.series)),
        tuple((number(rtt_ms), *(number(measure(row, name, MEASURE)) for name in view.series)) for rtt_ms, row in rows),
    )
    if not drawn:
        return Figure(group.label, (), (), table, "No cell of this group has a time per token.")
    evens = break_evens(regions(_against(group, STREAMING)))
    label = f"Time per token against round trip time, {group.label}; the table below holds the numbers."
    items = legend(list(drawn))
    if evens:
        label += f" As fast as streaming at {_numbers(evens)} ms."
        items += (LegendItem(svg.swatch(STREAMING, "even"), "break-even with streaming"),)
    drawing = line_chart(label, "round trip time, ms", "ms per token", drawn, verticals=evens)
    return Figure(group.label, (drawing,), items, table, text_note(list(drawn)))


def _break_even_table(groups: Sequence[Group]) -> Table:
    keys = [axis for axis, _ in groups[0].key]
    rows = []
    for group in groups:
        cells = list(label_cells(group))
        for baseline in RIVALS:
            found = regions(_against(group, baseline))
            evens = break_evens(found)
            cells.append(_numbers(evens))
            cells.append(
                "; ".join(
                    unbroken(*region.state.split(), number(region.start), "to", number(region.end), "ms")
                    for region in found
                    if region.end > region.start
                )
                or NO_VALUE
            )
        rows.append(tuple(cells))
    head = [f"{what} {SERIES[name]}" for name in RIVALS for what in ("break-even RTT, ms, with", "the split beside")]
    return Table(
        "Round trip times at which the split and its rivals are equally fast",
        (*label_head(keys), *head),
        tuple(rows),
        labels=max(1, len(keys)),
        prose=True,
        note="A dash: they do not cross within the round trip times of the sweep, or there is no number to compare.",
    )


def _all_panels_table(view: View, groups: Sequence[Group]) -> Table:
    keys = [axis for axis, _ in groups[0].key]
    return Table(
        "Milliseconds per token of all groups",
        (*label_head(keys), "RTT, ms", *(SERIES[name] for name in view.series)),
        tuple(
            (*label_cells(group), number(rtt_ms), *(number(measure(row, name, MEASURE)) for name in view.series))
            for group in groups
            for rtt_ms, row in _sorted_rows(group)
        ),
        labels=max(1, len(keys)) + 1,
        note=text_note(view.series),
    )


def _numbers(values: Sequence[float]) -> str:
    """Numbers one after the other, or a dash for none."""
    return ", ".join(map(number, values)) or NO_VALUE
