"""Run a grid of scenarios over round trip, draft speed, target speed, γ, sessions and more; goes on where it was."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from outrider.edge.commands.options import with_option_groups
from outrider.harness.commands.scenario_options import GridOptions, ScenarioArgument, ScenarioOptions, scenario_of
from outrider.harness.simulation.sweep import sweep as run_sweep
from outrider.shared.cli import JsonOption, LogLevelOption, print_json
from outrider.shared.errors import OutriderError, Reason

MAX_JOBS = 64


@with_option_groups
def sweep(
    out: Annotated[Path, typer.Option(metavar="FILE.jsonl", help="Where results go; an unfinished file is finished.")],
    options: ScenarioOptions,
    grid: GridOptions,
    scenario: ScenarioArgument = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, max=MAX_JOBS, help="Processes at the same time.", show_default="cores")
    ] = None,
    json: JsonOption = False,
    log_level: LogLevelOption = None,
) -> None:
    """Run every combination of the listed values; outrider report makes a page of the file."""
    base = scenario_of(scenario, options.given())
    axes = grid.axes()
    if base.clock == "wall":
        raise OutriderError(Reason.USAGE, "clock = 'wall': cells that run side by side would disturb each other.")
    console = Console(stderr=True)
    columns = (TextColumn("cells"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("cells", total=None)
        run_count = run_sweep(
            base,
            axes,
            out,
            jobs or min(os.cpu_count() or 1, MAX_JOBS),
            lambda done, total: bar.update(task, completed=done, total=total),
        )
    if json:
        print_json({"out": str(out), "run": run_count})
    else:
        print(f"{run_count} cells run, the others were there; all in {out}")
