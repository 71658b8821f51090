"""Compare the arms of an experiment from its log: speed, passes and bytes with confidence intervals."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from outrider.edge.experiment_log import LogLine, read_logs
from outrider.edge.experiment_report import ARMS, METRICS, report
from outrider.shared.cli import JsonOption, LogLevelOption, print_json
from outrider.shared.errors import OutriderError, Reason


def experiment(
    logs: Annotated[list[Path], typer.Argument(metavar="LOG...", help="Files that --experiment-log wrote.")],
    name: Annotated[str | None, typer.Option(help="Only this experiment; by default each in the logs.")] = None,
    confidence: Annotated[float, typer.Option(help="Share of intervals that hold the truth, 0 to 1.")] = 0.95,
    json: JsonOption = False,
    log_level: LogLevelOption = None,
) -> None:
    """Compare arm b with arm a. Answers are the unit: jackknife standard errors, Welch's t intervals; of failures
    Newcombe's. With --json one object an experiment.
    """
    if not 0 < confidence < 1:
        raise OutriderError(Reason.USAGE, f"--confidence {confidence}: expected a number between 0 and 1.")
    experiments = _by_name(read_logs(logs))
    if not experiments:
        raise OutriderError(Reason.FILE_UNREADABLE, f"{', '.join(map(str, logs))}: no answer is logged there.")
    if name is not None and name not in experiments:
        raise OutriderError(Reason.USAGE, f"--name {name!r}: expected one of {', '.join(map(repr, experiments))}.")
    for each in experiments if name is None else [name]:
        said = report(each, experiments[each], confidence)
        if json:
            print_json(said)
        else:
            _print(said)


def _by_name(lines: list[LogLine]) -> dict[str, list[LogLine]]:
    found: dict[str, list[LogLine]] = {}
    for line in lines:
        found.setdefault(line.experiment, []).append(line)
    return found


def _print(said: dict[str, Any]) -> None:
    table = Table(title=f"experiment {escape(said['experiment'])}", title_justify="left")
    for heading in ("", "arm a", "arm b", "b / a", "b - a"):
        table.add_column(heading, justify="right" if heading else "left")
    arms = [said["arms"][arm] for arm in ARMS]
    for key in ("answers", "failures", "cancelled", "tokens"):
        difference = said["comparison"]["failure_share"] if key == "failures" else None
        percent = _spread(difference["difference"], 100, "%") if difference else ""
        table.add_row(key, *(str(arm[key]) for arm in arms), "", percent)
    for metric in METRICS:
        compared = said["comparison"][metric.key] or {}
        values = [arm[metric.key] for arm in arms]
        if metric.key == "ttft_ms":
            values = [value["mean"] for value in values]
        spreads = [_spread(compared[which]) if compared else "-" for which in ("ratio", "difference")]
        table.add_row(metric.title, *map(_number, values), *spreads)
        if metric.key == "ttft_ms":
            for part in ("p50", "p95"):
                table.add_row(f"  {part}", *(_number(arm["ttft_ms"][part]) for arm in arms), "", "")
    console = Console(highlight=False)
    console.print(table)
    for arm in ARMS:
        for settings in said["arms"][arm]["settings"]:
            text = ", ".join(f"{key} {value}" for key, value in settings.items())
            console.print(f"arm {arm}: {escape(text)}", soft_wrap=True)
    for sentence in (said["verdict"], *said["notes"]):
        console.print(escape(sentence[:1].upper() + sentence[1:]), soft_wrap=True)
    console.print()


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _spread(interval: dict[str, float], scale: float = 1, unit: str = "") -> str:
    """An estimate and below it its interval."""
    estimate, low, high = (f"{scale * interval[key]:.3g}" for key in ("estimate", "low", "high"))
    return f"{estimate}{unit}\n{low} to {high}"
