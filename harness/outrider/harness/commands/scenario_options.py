"""The command-line options that describe a scenario, shared by the commands that run one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import typer

from outrider.harness.links import shown
from outrider.harness.simulation.scenario import BASELINES, SHIPPED_SETS, Scenario, read_scenario
from outrider.shared.errors import OutriderError, Reason

ScenarioArgument = Annotated[
    Path | None, typer.Argument(metavar="[SCENARIO.toml]", help="A scenario; options change single values of it.")
]
"""Type of the parameter that takes the scenario's file."""


@dataclass(frozen=True)
class ScenarioOptions:
    """Values over those of the scenario's file that one run has one of; the names are the file's keys."""

    recordings: Annotated[
        str | None, typer.Option(metavar="SET|DIR", help=f"Recordings: {', '.join(SHIPPED_SETS)} or a folder.")
    ] = None
    limit: Annotated[int | None, typer.Option(help="Only the first so many prompts.")] = None
    max_tokens: Annotated[int | None, typer.Option(help="Tokens of an answer at most.")] = None
    profiles: Annotated[
        str | None, typer.Option(metavar="DIR", help="Own targets.toml, drafters.toml, links.toml.")
    ] = None
    cloud_drafter: Annotated[
        str | None, typer.Option(metavar="NAME", help="Profile of the draft model beside the target.")
    ] = None
    cloud_draft_ms: Annotated[float | None, typer.Option(help="Milliseconds of its draft step.")] = None
    trace: Annotated[
        str | None, typer.Option(metavar="FILE.csv", help="Recorded round trips, time_s,rtt_ms, in place of a mean.")
    ] = None
    drafter: Annotated[
        str | None, typer.Option(help="What guesses: recorded, with +lookup, +ngrams or both; lookup; none.")
    ] = None
    further_recordings: Annotated[
        list[str] | None,
        typer.Option(metavar="SET|DIR", help="Of another draft model that drafts too; may be repeated."),
    ] = None
    draft_temperature: Annotated[str | None, typer.Option(help="Over the answers' own: auto, kl or a number.")] = None
    cloud_lookup: Annotated[int | None, typer.Option(help="Guesses a pass that the verifier looks up itself.")] = None
    branch: Annotated[int | None, typer.Option(help="Children of each node that is expanded.")] = None
    clock: Annotated[str | None, typer.Option(help="virtual, or wall for real gRPC.")] = None
    emulator: Annotated[
        str | None, typer.Option(help="What delays messages on the wall clock: proxy, netem or auto.")
    ] = None
    seed: Annotated[int | None, typer.Option(help="Seed of jitter and losses.")] = None
    baselines: Annotated[
        str | None,
        typer.Option(metavar="NAME,...", help=f"all, none or of {', '.join(BASELINES)}.", show_default="all"),
    ] = None

    def given(self) -> dict[str, Any]:
        """The options that were given, as keys of a scenario."""
        values = given_fields(self)
        if self.baselines is not None:
            names = {"all": BASELINES, "none": ()}
            values["baselines"] = names.get(self.baselines, tuple(self.baselines.split(",")))
        return values


@dataclass(frozen=True)
class SingleOptions:
    """Values over those of the scenario's file that a sweep has lists of."""

    category: Annotated[list[str] | None, typer.Option(help="Only prompts of this category; may be repeated.")] = None
    target: Annotated[str | None, typer.Option(metavar="NAME", help="Profile of the target.")] = None
    target_ms: Annotated[float | None, typer.Option(help="Milliseconds of a small pass.")] = None
    device: Annotated[str | None, typer.Option(metavar="NAME", help="Profile of the device that drafts.")] = None
    draft_ms: Annotated[float | None, typer.Option(help="Milliseconds of a draft step on the device.")] = None
    link: Annotated[str | None, typer.Option(metavar="NAME", help="Profile of the link.")] = None
    rtt_ms: Annotated[float | None, typer.Option(help="Mean round trip of the link in milliseconds.")] = None
    sessions: Annotated[int | None, typer.Option(help="Devices that decode at the same time.")] = None
    control: Annotated[str | None, typer.Option(help="Policy that decides how far to draft.")] = None
    gamma: Annotated[int | None, typer.Option(help="Tokens to draft before each pass.")] = None
    pace: Annotated[str | None, typer.Option(help="patient or eager.")] = None


@dataclass(frozen=True)
class GridOptions:
    """Lists of values, of which a sweep tries every combination; names and meaning are those of `SingleOptions`."""

    category: Annotated[str | None, typer.Option(metavar="NAME,...", help="Categories of prompts.")] = None
    target: Annotated[str | None, typer.Option(metavar="NAME,...", help="Profiles of the target.")] = None
    target_ms: Annotated[str | None, typer.Option(metavar="MS,...", help="Milliseconds of a small pass.")] = None
    device: Annotated[str | None, typer.Option(metavar="NAME,...", help="Profiles of the device.")] = None
    draft_ms: Annotated[str | None, typer.Option(metavar="MS,...", help="Milliseconds of a draft step.")] = None
    link: Annotated[str | None, typer.Option(metavar="NAME,...", help="Profiles of the link.")] = None
    rtt_ms: Annotated[str | None, typer.Option(metavar="MS,...", help="Mean round trips of the link.")] = None
    sessions: Annotated[str | None, typer.Option(metavar="N,...", help="Devices at the same time.")] = None
    control: Annotated[str | None, typer.Option(metavar="NAME,...", help="Policies.")] = None
    gamma: Annotated[str | None, typer.Option(metavar="N,...", help="Tokens to draft before each pass.")] = None
    pace: Annotated[str | None, typer.Option(metavar="NAME,...", help="patient, eager.")] = None

    def axes(self) -> dict[str, list[Any]]:
        """The values of each axis that was given; raises USAGE for an empty or repeated one."""
        return {name: _values(name, text) for name, text in given_fields(self).items()}


def given_fields(options: Any) -> dict[str, Any]:
    """The options of a group that were given."""
    values = {field.name: getattr(options, field.name) for field in fields(options)}
    return {name: value for name, value in values.items() if value not in (None, [])}


def scenario_of(path: Path | None, *groups: Mapping[str, Any]) -> Scenario:
    """The scenario of a file, or the default one, with options over it; raises USAGE."""
    overrides: dict[str, Any] = {}
    for group in groups:
        overrides.update(group)
    return read_scenario(path, overrides)


def _values(name: str, text: str) -> list[Any]:
    words = [word.strip() for word in text.split(",")]
    values = [_value(word) for word in words]
    # 1, 1.0 and 01 are one value.
    if not all(words) or len(set(values)) != len(values):
        text = f"{name} = {shown(text)}: expected different values with commas between them."
        raise OutriderError(Reason.USAGE, text)
    return values


def _value(word: str) -> str | int | float:
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word
