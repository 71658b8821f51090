"""The command-line options that describe a scenario, shared by the commands that run one."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import typer

from outrider.harness.simulation.scenario import BASELINES, SHIPPED_SETS, Scenario, read_scenario
from outrider.shared.errors import OutriderError, Reason

ScenarioArgument = Annotated[
    Path | None, typer.Argument(metavar="[SCENARIO.toml]", help="A scenario; options change single values of it.")
]
"""Type of the parameter that takes the scenario's file."""


@dataclass(frozen=True)
class ScenarioOptions:
    """Values over those of the scenario's file; the names are the file's keys."""

    recordings: Annotated[
        str | None, typer.Option(metavar="SET|DIR", help=f"Recordings: {', '.join(SHIPPED_SETS)} or a folder.")
    ] = None
    category: Annotated[list[str] | None, typer.Option(help="Only prompts of this category; may be repeated.")] = None
    limit: Annotated[int | None, typer.Option(help="Only the first so many prompts.")] = None
    max_tokens: Annotated[int | None, typer.Option(help="Tokens of an answer at most.")] = None
    profiles: Annotated[
        str | None, typer.Option(metavar="DIR", help="Own targets.toml, drafters.toml, links.toml.")
    ] = None
    target: Annotated[str | None, typer.Option(metavar="NAME", help="Profile of the target.")] = None
    target_ms: Annotated[float | None, typer.Option(help="Milliseconds of a small pass.")] = None
    cloud_drafter: Annotated[
        str | None, typer.Option(metavar="NAME", help="Profile of the draft model beside the target.")
    ] = None
    cloud_draft_ms: Annotated[float | None, typer.Option(help="Milliseconds of its draft step.")] = None
    device: Annotated[str | None, typer.Option(metavar="NAME", help="Profile of the device that drafts.")] = None
    draft_ms: Annotated[float | None, typer.Option(help="Milliseconds of a draft step on the device.")] = None
    link: Annotated[str | None, typer.Option(metavar="NAME", help="Profile of the link.")] = None
    rtt_ms: Annotated[float | None, typer.Option(help="Mean round trip of the link in milliseconds.")] = None
    trace: Annotated[
        str | None, typer.Option(metavar="FILE.csv", help="Recorded round trips, time_s,rtt_ms, in place of a mean.")
    ] = None
    sessions: Annotated[int | None, typer.Option(help="Devices that decode at the same time.")] = None
    drafter: Annotated[str | None, typer.Option(help="What guesses: recorded or none.")] = None
    control: Annotated[str | None, typer.Option(help="Policy that decides how far to draft.")] = None
    gamma: Annotated[int | None, typer.Option(help="Tokens to draft before each pass.")] = None
    branch: Annotated[int | None, typer.Option(help="Children of each node that is expanded.")] = None
    pace: Annotated[str | None, typer.Option(help="patient or eager.")] = None
    clock: Annotated[str | None, typer.Option(help="virtual, or wall for real gRPC.")] = None
    seed: Annotated[int | None, typer.Option(help="Seed of jitter and losses.")] = None
    baselines: Annotated[
        str | None,
        typer.Option(metavar="NAME,...", help=f"all, none or of {', '.join(BASELINES)}.", show_default="all"),
    ] = None

    def given(self) -> dict[str, Any]:
        """The options that were given, as keys of a scenario."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        values = {name: value for name, value in values.items() if value not in (None, [])}
        if "baselines" in values:
            names = {"all": BASELINES, "none": ()}
            values["baselines"] = names.get(self.baselines or "", tuple((self.baselines or "").split(",")))
        return values

    def scenario(self, path: Path | None) -> Scenario:
        """The scenario of a file, or the default one, with these options over it; raises USAGE."""
        if path is not None and not path.exists():
            raise OutriderError(Reason.USAGE, f"{path}: no such scenario.")
        return read_scenario(path, self.given())
