"""Make one HTML page with charts and tables out of a sweep of simulations."""

from __future__ import annotations

import importlib.metadata
import math
from pathlib import Path
from typing import Annotated

import typer

from outrider.harness.report.compare import compare
from outrider.harness.report.page import PageOptions, render, sections
from outrider.harness.report.read import read_sweep, read_timeline
from outrider.harness.report.words import COLOCATED, STREAMING, count
from outrider.shared.cli import JsonOption, LogLevelOption, print_json
from outrider.shared.errors import OutriderError, Reason
from outrider.shared.files import write_whole


def report(
    sweep: Annotated[Path, typer.Argument(metavar="SWEEP.jsonl", help="What `outrider sweep` wrote.")],
    out: Annotated[Path, typer.Option(metavar="FILE.html", help="Where the page goes; overwritten.")],
    timeline: Annotated[
        Path | None, typer.Option(metavar="FILE.json", help="The timeline of one answer, to be drawn.")
    ] = None,
    timeline_ms: Annotated[float, typer.Option(min=1, max=1e9, help="Draw so many milliseconds of it.")] = 1500,
    title: Annotated[str, typer.Option(help="Heading of the page.")] = "Outrider: split decoding under delay",
    accelerator_price_per_hour: Annotated[
        float, typer.Option(min=0, max=1e9, help="Price of the accelerator, in any currency.")
    ] = 8.0,
    draft_price: Annotated[
        float, typer.Option(min=0, max=1e9, help="Price per hour of a device that drafts, in the same currency.")
    ] = 0.0,
    json: JsonOption = False,
    log_level: LogLevelOption = None,
) -> int:
    """Write one page that needs nothing else: charts, tables and how they were made. The same input gives the same
    page.
    """
    for name, value in (
        ("--accelerator-price-per-hour", accelerator_price_per_hour),
        ("--draft-price", draft_price),
        ("--timeline-ms", timeline_ms),
    ):
        # Not a number passes every check of a range.
        if not math.isfinite(value):
            raise OutriderError(Reason.USAGE, f"{name}: expected a number, got {value}.")
    read = read_sweep(sweep)
    options = PageOptions(
        title=title,
        accelerator_price_per_hour=accelerator_price_per_hour,
        device_price_per_hour=draft_price,
        timeline_ms=timeline_ms,
        version=importlib.metadata.version("outrider"),
    )
    page = render(sections(read, None if timeline is None else read_timeline(timeline), options), title)
    write_whole(out, page)
    if json:
        faster = {f"faster_than_{name}": compare(read.rows, name).count("faster") for name in (STREAMING, COLOCATED)}
        print_json({"out": str(out), "bytes": len(page), "cells": len(read.rows), **faster})
    else:
        print(f"{out}: {count(len(read.rows), 'cell')}, {len(page):,} bytes.")
    return 0
