"""Sections of a sweep put together and rendered as one HTML page that loads nothing."""

from __future__ import annotations

from dataclasses import dataclass

from jinja2 import Environment, PackageLoader, StrictUndefined

from outrider.harness.report.answer import answer
from outrider.harness.report.cells import cells
from outrider.harness.report.format import Timeline
from outrider.harness.report.load import load
from outrider.harness.report.made import made
from outrider.harness.report.parts import Section
from outrider.harness.report.read import Sweep
from outrider.harness.report.speed import speed
from outrider.harness.report.summary import empty_summary, summary
from outrider.harness.report.view import View
from outrider.harness.report.work import money, passes, traffic


@dataclass(frozen=True, slots=True)
class PageOptions:
    """What the command line says. Prices are per hour in any currency; `version` is the software's."""

    title: str
    accelerator_price_per_hour: float
    device_price_per_hour: float
    timeline_ms: float
    version: str


def sections(sweep: Sweep, timeline: Timeline | None, options: PageOptions) -> tuple[Section, ...]:
    """The parts of the page. A sweep without cells has no charts."""
    last = answer(timeline, options.timeline_ms)
    if not sweep.rows:
        return empty_summary(), last, made(sweep, timeline, (), options.version)
    view = View.of(sweep)
    return (
        summary(view),
        speed(view),
        passes(view),
        last,
        load(view),
        traffic(view),
        money(view, options.accelerator_price_per_hour, options.device_price_per_hour),
        cells(view),
        made(sweep, timeline, view.series, options.version),
    )


def render(parts: tuple[Section, ...], title: str) -> bytes:
    """The page in UTF-8; equal parts give equal bytes."""
    environment = Environment(
        loader=PackageLoader("outrider.harness.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    text = environment.get_template("page.html.jinja").render(title=title, sections=parts)
    # A text from a file may hold half a surrogate pair, which has no bytes.
    return text.encode("utf-8", "backslashreplace")
