"""Lines over an axis of numbers, one a way to run, with marks where a lead is lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from outrider.harness.report import svg
from outrider.harness.report.svg import Scale
from outrider.harness.report.words import PRODUCT, SERIES, number

HEIGHT = 236
LEFT, RIGHT, TOP, BOTTOM = 44, 328, 28, 196

Points = Sequence[tuple[float, float]]


def line_chart(
    label: str,
    x_label: str,
    y_label: str,
    series: Mapping[str, Points],
    *,
    verticals: Sequence[float] = (),
    log_x: bool = False,
) -> Markup:
    """Lines through points with ascending x, the product's on top. `verticals` are marked and labelled with their x.
    There must be a point; with `log_x` every x must be above 0.
    """
    xs = sorted({x for points in series.values() for x, _ in points})
    y_ticks = svg.ticks(max(y for points in series.values() for _, y in points))
    y_scale = Scale(0, y_ticks[-1], BOTTOM, TOP)
    x_ticks = xs if log_x else svg.ticks(xs[-1])
    x_scale = Scale(x_ticks[0], x_ticks[-1], LEFT, RIGHT, log=log_x)
    parts = [svg.text(0, 12, y_label, css="axis")]
    for tick in y_ticks:
        parts += [
            svg.line(LEFT, y_scale(tick), RIGHT, y_scale(tick), "grid"),
            svg.text(LEFT - 6, y_scale(tick) + 4, number(tick), anchor="end"),
        ]
    parts += _x_axis(x_ticks, x_scale, x_label)
    for name in sorted(series, key=lambda name: (name == PRODUCT, list(SERIES).index(name))):
        places = [(x_scale(x), y_scale(y)) for x, y in series[name]]
        marks = [
            svg.marker(name, *place, f"{SERIES[name]}: {number(y)} at {number(x)}")
            for place, (x, y) in zip(places, series[name], strict=True)
        ]
        parts.append(svg.series_group(name, [svg.polyline(places, "line"), *marks]))
    parts += _verticals(verticals, x_scale)
    return svg.document(HEIGHT, label, parts)


def _x_axis(values: Sequence[float], scale: Scale, label: str) -> list[Markup]:
    parts = [svg.line(LEFT, BOTTOM, RIGHT, BOTTOM, "base")]
    free_from = 0.0
    for value in values:
        half = len(number(value)) * svg.LETTER_PX / 2
        parts.append(svg.line(scale(value), BOTTOM, scale(value), BOTTOM + 4, "base"))
        if scale(value) - half >= free_from:
            parts.append(svg.text(scale(value), BOTTOM + 17, number(value), anchor="middle"))
            free_from = scale(value) + half + 4
    parts.append(svg.text((LEFT + RIGHT) / 2, HEIGHT - 5, label, anchor="middle", css="axis"))
    return parts


def _verticals(values: Sequence[float], scale: Scale) -> list[Markup]:
    """Dashed lines from top to bottom, their labels on alternating heights so that neighbours do not touch."""
    parts: list[Markup] = []
    for index, value in enumerate(values):
        x = scale(value)
        near_end = x > RIGHT - 60
        y = TOP + 10 + 14 * (index % 3)
        words = f"{number(value)} ms"
        parts.append(svg.line(x, TOP, x, BOTTOM, "even"))
        parts.append(svg.text(x + (-4 if near_end else 4), y, words, anchor="end" if near_end else "start", css="halo"))
    return parts
