"""What a page is made of, before it is HTML: sections of sentences, figures and tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from outrider.harness.report.svg import swatch
from outrider.harness.report.words import DRAFT_ONLY, OTHER_TEXT_NOTE, SERIES


@dataclass(frozen=True, slots=True)
class Table:
    """Texts in columns; the first `labels` columns name a row, the others hold numbers unless `prose`."""

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    labels: int = 1
    prose: bool = False
    note: str = ""


@dataclass(frozen=True, slots=True)
class LegendItem:
    """A sample and what it stands for."""

    swatch: Markup
    label: str


@dataclass(frozen=True, slots=True)
class Figure:
    """One chart, in one or several drawings, with the numbers it was drawn from. `tall`: as high as two others.
    `long`: the table is too wide or too long to be printed beside the chart.
    """

    title: str
    drawings: tuple[Markup, ...]
    legend: tuple[LegendItem, ...]
    table: Table
    note: str = ""
    tall: bool = False
    long: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page; figures stand side by side where there is room. `wide` prints across the page."""

    id: str
    title: str
    lead: tuple[str, ...] = ()
    figures: tuple[Figure, ...] = ()
    tables: tuple[Table, ...] = ()
    wide: bool = False


def legend(series: Sequence[str], kind: str = "line") -> tuple[LegendItem, ...]:
    """A legend of ways to run, in the order given."""
    return tuple(LegendItem(swatch(name, kind), SERIES[name]) for name in series)


def text_note(series: Sequence[str]) -> str:
    """What has to be said where the draft model alone is shown."""
    return OTHER_TEXT_NOTE if DRAFT_ONLY in series else ""
