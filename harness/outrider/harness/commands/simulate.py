"""Run a scenario of hardware, link and sessions with the product's own code, beside every baseline."""

from __future__ import annotations

import logging
import time
from json import dumps
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from outrider.edge.commands.options import with_option_groups
from outrider.harness.commands.scenario_options import (
    ScenarioArgument,
    ScenarioOptions,
    SingleOptions,
    given_fields,
    scenario_of,
)
from outrider.harness.simulation.scenario import resolve
from outrider.harness.simulation.simulate import settings_of
from outrider.harness.simulation.simulate import simulate as run_scenario
from outrider.harness.simulation.timeline import timeline as make_timeline
from outrider.shared.cli import JsonOption, LogLevelOption, print_json
from outrider.shared.files import write_whole

logger = logging.getLogger(__name__)

PRODUCT = "outrider"


@with_option_groups
def simulate(
    options: ScenarioOptions,
    single: SingleOptions,
    scenario: ScenarioArgument = None,
    timeline: Annotated[
        Path | None, typer.Option(metavar="FILE.json", help="Also write the first answer moment by moment.")
    ] = None,
    json: JsonOption = False,
    log_level: LogLevelOption = None,
) -> None:
    """Decode recorded answers over simulated hardware and links, and compare with every baseline."""
    chosen = scenario_of(scenario, options.given(), given_fields(single))
    setup = resolve(chosen)
    if timeline is not None:
        moments = make_timeline(setup, settings_of(chosen, setup))
        write_whole(timeline, dumps(moments, ensure_ascii=False, allow_nan=False))
    began_s = time.process_time()
    result = run_scenario(chosen, setup, lambda name: logger.info("running %s", name))
    logger.info("%.1f s of CPU time", time.process_time() - began_s)
    if json:
        print_json(result)
    else:
        print_result(result)


def print_result(result: dict[str, Any]) -> None:
    """A table of the product and the baselines."""
    settings = result["settings"]
    title = (
        f"{result['answers']} answers, {result['tokens']} tokens, {result['sessions']} sessions; target "
        f"{settings['target_ms']:g} ms, draft {settings['draft_ms']:g} ms, round trip {settings['rtt_ms']:.4g} ms"
    )
    table = Table(
        title=title,
        caption="accel.: accelerator ms per token, drafting on it included",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    table.add_column("", no_wrap=True)
    for heading in ("ms/token", "speed-up", "first", "p95 gap", "passes", "accel."):
        table.add_column(heading, justify="right", no_wrap=True)
    streaming = result["baselines"].get("streaming", {}).get("ms_per_token")
    for name, row in {PRODUCT: result, **result["baselines"]}.items():
        ms = row["ms_per_token"]
        table.add_row(
            _label(name, row),
            _number(ms),
            f"{streaming / ms:.2f}" if streaming and ms else "-",
            _number(row["ttft_ms"]),
            _number(row["gap_ms"]["p95"]),
            _number(row["passes_per_token"], 3),
            _number(row["accelerator_ms_per_token"]),
        )
    Console().print(table)


def _label(name: str, row: dict[str, Any]) -> str:
    settings = row["settings"]
    if name == PRODUCT and settings["drafter"] == "none":
        return name
    if name == PRODUCT and settings["control"] != "fixed":
        cap = "" if settings["gamma"] is None else f", γ {settings['gamma']}"
        return f"{name} ({settings['control']}{cap})"
    return f"{name} (γ {settings['gamma']})" if "gamma" in settings else name


def _number(value: float | None, digits: int = 1) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
