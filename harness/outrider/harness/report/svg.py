"""Small parts of which charts are made: numbers on a scale, ticks, text, marks. Colours come from the page's style, by
the class of a series; all text is escaped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from outrider.harness.report.words import SERIES

# Drawn about as wide as a phone's screen, so that text keeps its size there; on wide screens charts stand side by side.
WIDTH = 340
FONT_PX = 12
# Width of a digit or a small letter; wide enough for all fonts a page may be shown in.
LETTER_PX = 6.4


@dataclass(frozen=True, slots=True)
class Scale:
    """From values to positions; on a logarithmic scale `low` must be above 0."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """Position of a value."""
        low, high, value = (math.log(v) if self.log else v for v in (self.low, self.high, value))
        if high == low:
            return (self.start + self.end) / 2
        return self.start + (self.end - self.start) * (value - low) / (high - low)


def ticks(high: float, steps: int = 5) -> list[float]:
    """Round numbers from 0 to the first that is not below `high`, about `steps` apart."""
    # Below that, a chart of nothing but zeros; rounding to twelve digits would lose the steps.
    step = nice_step(high / steps) if high > 1e-9 else 0.25
    return [round(step * index, 12) for index in range(max(1, math.ceil(high / step - 1e-9)) + 1)]


def nice_step(least: float) -> float:
    """The smallest of 1, 2, 2.5, 5, 10 times a power of ten that is not below `least`, which is above 0."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= least * (1 - 1e-9))


def join(parts: Sequence[Markup]) -> Markup:
    """Parts one after the other, a line each."""
    return Markup("\n").join(parts)


def text(x: float, y: float, content: str, *, anchor: str = "start", css: str = "", full: str = "") -> Markup:
    """A text; `full` is shown when it is pointed at."""
    return Markup('<text x="{}" y="{}" text-anchor="{}"{}>{}{}</text>').format(
        px(x), px(y), anchor, Markup(' class="{}"').format(css) if css else "", content, _title(full)
    )


def shortened(content: str, width_px: float) -> str:
    """A text that fits into so many pixels, with an ellipsis if it had to be cut."""
    letters = int(width_px / LETTER_PX)
    return content if len(content) <= letters else content[: letters - 1] + "…"


def _title(content: str) -> Markup | str:
    return Markup("<title>{}</title>").format(content) if content else ""


def line(x1: float, y1: float, x2: float, y2: float, css: str) -> Markup:
    """A straight line."""
    return Markup('<line x1="{}" y1="{}" x2="{}" y2="{}" class="{}"/>').format(px(x1), px(y1), px(x2), px(y2), css)


def rect(x: float, y: float, width: float, height: float, css: str, title: str = "") -> Markup:
    """A bar, never so thin that it cannot be seen."""
    return Markup('<rect x="{}" y="{}" width="{}" height="{}" class="{}">{}</rect>').format(
        px(x), px(y), px(max(width, 0.8)), px(height), css, _title(title)
    )


def polyline(points: Sequence[tuple[float, float]], css: str) -> Markup:
    """Points joined by straight lines."""
    steps = " ".join(f"{px(x)},{px(y)}" for x, y in points)
    return Markup('<polyline points="{}" class="{}"/>').format(steps, css)


def marker(series: str, x: float, y: float, title: str = "") -> Markup:
    """The mark of a series: its shape tells it from the others without colour."""
    path = _SHAPES[list(SERIES).index(series) % len(_SHAPES)] if series in SERIES else _SHAPES[0]
    return Markup('<path d="{}" transform="translate({} {})" class="mark">{}</path>').format(
        path, px(x), px(y), _title(title)
    )


# Around 0, about 8 wide: disc, square, diamond, triangle up, triangle down, bow tie, star, cross.
_SHAPES = (
    "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z",
    "M-3.5 -3.5h7v7h-7z",
    "M0 -5l4.5 5l-4.5 5l-4.5 -5z",
    "M0 -4.8l4.6 8.4h-9.2z",
    "M0 4.8l4.6 -8.4h-9.2z",
    "M-4 -4l8 8v-8l-8 8z",
    "M0 -5.2l1.4 3.8h3.8l-3 2.4l1.2 3.9l-3.4 -2.4l-3.4 2.4l1.2 -3.9l-3 -2.4h3.8z",
    "M-4 -2.4l1.6 -1.6l2.4 2.4l2.4 -2.4l1.6 1.6l-2.4 2.4l2.4 2.4l-1.6 1.6l-2.4 -2.4l-2.4 2.4l-1.6 -1.6l2.4 -2.4z",
)


def series_group(series: str, parts: Sequence[Markup]) -> Markup:
    """Parts in the colour and stroke of a series."""
    return Markup('<g class="s-{}">{}</g>').format(series, join(parts))


def document(height: float, label: str, parts: Sequence[Markup]) -> Markup:
    """A whole chart, `WIDTH` wide; `label` is what a screen reader says instead."""
    return Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}">\n{}\n</svg>').format(
        WIDTH, px(height), label, join(parts)
    )


def swatch(series: str, kind: str = "line") -> Markup:
    """A sample for a legend: `line` with its mark, `stroke` without, `even` across, `mark` alone, or `bar`."""
    parts = {
        "line": [line(1, 7, 27, 7, "line"), marker(series, 14, 7)],
        "stroke": [line(2, 3, 26, 11, "stroke")],
        "even": [line(14, 0, 14, 14, "even")],
        "mark": [marker(series, 14, 7)],
        "bar": [rect(4, 2, 20, 10, "bar")],
    }[kind]
    return Markup('<svg viewBox="0 0 28 14" class="swatch" aria-hidden="true">{}</svg>').format(
        series_group(series, parts)
    )


def px(value: float) -> str:
    """A coordinate, to a tenth."""
    return f"{value:.1f}".removesuffix(".0")
