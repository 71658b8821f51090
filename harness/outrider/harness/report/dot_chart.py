"""Dots on one line for each group of cells, with the range behind them where a group holds several cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from outrider.harness.report import svg
from outrider.harness.report.compare import Spread
from outrider.harness.report.svg import Scale
from outrider.harness.report.words import PRODUCT, SERIES, number

LEFT, RIGHT, TOP, ROW, BELOW = 8, 326, 8, 38, 38


@dataclass(frozen=True, slots=True)
class DotRow:
    """A group and its dots by series."""

    label: str
    dots: Mapping[str, Spread]


def dot_chart(label: str, x_label: str, rows: Sequence[DotRow]) -> Markup:
    """One line for each row, from 0 on; the product's dot on top of others."""
    values = svg.ticks(max((dot.high for row in rows for dot in row.dots.values()), default=0))
    scale = Scale(0, values[-1], LEFT, RIGHT)
    bottom = TOP + ROW * len(rows)
    parts: list[Markup] = []
    for value in values:
        parts += [
            svg.line(scale(value), TOP, scale(value), bottom, "grid"),
            svg.text(scale(value), bottom + 15, number(value), anchor=_anchor(scale, value)),
        ]
    parts.append(svg.text((LEFT + RIGHT) / 2, bottom + 33, x_label, anchor="middle", css="axis"))
    for index, row in enumerate(rows):
        y = TOP + ROW * index + 27
        parts += [
            svg.line(LEFT, y, RIGHT, y, "base"),
            svg.text(LEFT, y - 13, svg.shortened(row.label, RIGHT - LEFT), css="halo", full=row.label),
        ]
        for name in sorted(row.dots, key=lambda name: (name == PRODUCT, name)):
            parts.append(svg.series_group(name, _dot(name, row.dots[name], scale, y)))
    return svg.document(bottom + BELOW, label, parts)


def _dot(series: str, dot: Spread, scale: Scale, y: float) -> list[Markup]:
    parts = []
    if dot.high > dot.low:
        parts.append(svg.line(scale(dot.low), y, scale(dot.high), y, "range"))
    title = f"{SERIES.get(series, series)}: {number(dot.value)}"
    return [*parts, svg.marker(series, scale(dot.value), y, title)]


def _anchor(scale: Scale, value: float) -> str:
    return "start" if value == scale.low else "end" if value == scale.high else "middle"
