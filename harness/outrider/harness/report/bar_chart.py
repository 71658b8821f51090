"""Bars side by side for each count, one a way to run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from outrider.harness.report import svg
from outrider.harness.report.svg import Scale
from outrider.harness.report.words import SERIES, number

HEIGHT = 190
LEFT, RIGHT, TOP, BOTTOM = 34, 334, 28, 150


def bar_chart(
    label: str, x_label: str, y_label: str, categories: Sequence[str], series: Mapping[str, Sequence[float]]
) -> Markup:
    """Bars from 0 on; every series has one value a category."""
    values = svg.ticks(max(max(bars, default=0) for bars in series.values()), steps=4)
    scale = Scale(0, values[-1], BOTTOM, TOP)
    parts = [svg.text(0, 12, y_label, css="axis")]
    for value in values:
        parts += [
            svg.line(LEFT, scale(value), RIGHT, scale(value), "grid"),
            svg.text(LEFT - 6, scale(value) + 4, number(value), anchor="end"),
        ]
    slot = (RIGHT - LEFT) / len(categories)
    width = slot * 0.8 / len(series)
    for position, (name, bars) in enumerate(series.items()):
        parts.append(
            svg.series_group(
                name,
                [
                    svg.rect(
                        LEFT + slot * (index + 0.1) + width * position,
                        scale(bar),
                        width,
                        BOTTOM - scale(bar),
                        "bar",
                        f"{SERIES[name]}, {category}: {number(bar)}",
                    )
                    for index, (category, bar) in enumerate(zip(categories, bars, strict=True))
                    if bar
                ],
            )
        )
    parts.append(svg.line(LEFT, BOTTOM, RIGHT, BOTTOM, "base"))
    for index, category in enumerate(categories):
        parts.append(svg.text(LEFT + slot * (index + 0.5), BOTTOM + 15, category, anchor="middle"))
    parts.append(svg.text((LEFT + RIGHT) / 2, HEIGHT - 6, x_label, anchor="middle", css="axis"))
    return svg.document(HEIGHT, label, parts)
