"""Rank draft models for a target by acceptance, speed and expected time a token, and test the 1:10 rule on them."""

from __future__ import annotations

import math
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from outrider.edge.commands.compare import read_prompts
from outrider.edge.commands.options import SamplingOptions, with_option_groups
from outrider.harness.commands.scenario_options import ScenarioArgument, given_fields, scenario_of
from outrider.harness.drafter_ranking.candidates import Candidate, candidates_of
from outrider.harness.drafter_ranking.prompts import DEFAULT_LIMIT, shipped_prompts
from outrider.harness.drafter_ranking.ranking import Request, rank
from outrider.harness.drafter_ranking.report import none_can_draft, ranking_json, ranking_text
from outrider.harness.recording.session import PROMPT_ROOM, seeded_prompts
from outrider.harness.simulation.scenario import Scenario
from outrider.shared.cli import JsonOption, LogLevelOption, print_json
from outrider.shared.errors import OutriderError, Reason

# Of a scenario's file; recordings and drafting are what this command finds out.
_HARDWARE_KEYS = {"target", "target_ms", "device", "link", "rtt_ms", "trace", "sessions", "branch", "profiles", "seed"}


@dataclass(frozen=True)
class AnswerOptions(SamplingOptions):
    """As everywhere, with answers that are long enough for an estimate."""

    max_tokens: Annotated[int, typer.Option(min=2, help="Length of the answer at most.")] = 64


@dataclass(frozen=True)
class HardwareOptions:
    """Values over those of the scenario's file; the names are its keys but for `target_profile`."""

    target_profile: Annotated[
        str | None, typer.Option(metavar="NAME", help="Profile of the target's hardware (a scenario's target).")
    ] = None
    target_ms: Annotated[float | None, typer.Option(help="Milliseconds of a small pass.")] = None
    device: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Profile of the device; its throttling counts, its time does not."),
    ] = None
    link: Annotated[str | None, typer.Option(metavar="NAME", help="Profile of the link.")] = None
    rtt_ms: Annotated[float | None, typer.Option(help="Mean round trip of the link in milliseconds.")] = None
    trace: Annotated[
        str | None, typer.Option(metavar="FILE.csv", help="Recorded round trips, time_s,rtt_ms, in place of a mean.")
    ] = None
    sessions: Annotated[int | None, typer.Option(help="Devices that decode at the same time.")] = None
    branch: Annotated[int | None, typer.Option(help="Children of each node that is expanded.")] = None
    profiles: Annotated[
        str | None, typer.Option(metavar="DIR", help="Own targets.toml, drafters.toml, links.toml.")
    ] = None

    def given(self) -> dict[str, Any]:
        """The options that were given, as keys of a scenario."""
        values = given_fields(self)
        if "target_profile" in values:
            values["target"] = values.pop("target_profile")
        return values


@with_option_groups
def drafters(
    sampling: AnswerOptions,
    hardware: HardwareOptions,
    scenario: ScenarioArgument = None,
    target: Annotated[str, typer.Option(metavar="NAME", help="Target model: name, path or tiny.")] = (
        "qwen2.5-coder-1.5b"
    ),
    draft: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A candidate: name, path or tiny:DEVIATION; may be repeated.",
            show_default="all models that are ready",
        ),
    ] = None,
    prompts: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.jsonl", help="A file with id, category and prompt a line.", show_default="a shipped mix"
        ),
    ] = None,
    category: Annotated[list[str] | None, typer.Option(help="Only prompts of this category; may be repeated.")] = None,
    limit: Annotated[
        int | None,
        typer.Option(min=1, help="Only the first so many prompts.", show_default=f"{DEFAULT_LIMIT} of the shipped mix"),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where recordings are kept, so that an interrupted run goes on."),
    ] = None,
    draft_ms: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=MS", help="A candidate's milliseconds a token on a device that is not this one."),
    ] = None,
    context: Annotated[
        int | None, typer.Option(min=2, help=f"Tokens of prompt and answer together; default: {PROMPT_ROOM} + answer.")
    ] = None,
    json: JsonOption = False,
    log_level: LogLevelOption = None,
) -> int:
    """Record each candidate along the target's own answers, time it here, and play it under a scenario with the
    drafting flags that suit it best. Of a scenario's file only hardware, link, sessions and branch count.
    """
    pool = shipped_prompts() if prompts is None else read_prompts([], prompts)
    most = DEFAULT_LIMIT if prompts is None and limit is None else limit
    seeded = seeded_prompts(pool, sampling.make(), category or (), most, str(prompts or "the shipped prompts"))
    candidates = candidates_of(draft or (), target)
    with nullcontext(out) if out else tempfile.TemporaryDirectory(prefix="outrider-drafters-") as folder:
        request = Request(
            target=target,
            candidates=candidates,
            seeded=seeded,
            folder=Path(folder),
            scenario=_scenario(scenario, hardware),
            context_length=context or sampling.max_tokens + PROMPT_ROOM,
            given_ms=_given_ms(draft_ms or (), candidates),
        )
        made = rank(request, _print_progress)
    if json:
        print_json(ranking_json(made, request))
        return none_can_draft(request).exit_code if made.verdict is None else 0
    print("\n".join(ranking_text(made, request)))
    if made.verdict is None:
        raise none_can_draft(request)
    return 0


def _scenario(path: Path | None, hardware: HardwareOptions) -> Scenario:
    """The scenario's hardware; raises USAGE for what is wrong in it."""
    whole = scenario_of(path, hardware.given())
    if whole.clock == "wall":
        raise OutriderError(Reason.USAGE, "clock = 'wall': candidates are compared on the virtual clock.")
    values = whole.model_dump(exclude_unset=True)
    unused = [key for key in values if key not in _HARDWARE_KEYS]
    if unused:
        _print_progress(f"{path}: not used here: {', '.join(unused)}")
    return Scenario.model_validate({key: value for key, value in values.items() if key in _HARDWARE_KEYS})


def _given_ms(texts: Sequence[str], candidates: Sequence[Candidate]) -> Mapping[Candidate, float]:
    """Times a token by candidate; raises USAGE."""
    by_name = {name: candidate for candidate in candidates for name in (candidate.draft, candidate.name)}
    given: dict[Candidate, float] = {}
    for text in texts:
        name, _, value = text.rpartition("=")
        if name not in by_name:
            raise OutriderError(
                Reason.USAGE, f"--draft-ms {text!r}: expected NAME=MS with NAME of {', '.join(by_name)}."
            )
        try:
            given[by_name[name]] = milliseconds = float(value)
        except ValueError:
            milliseconds = math.nan
        if not 0 <= milliseconds < math.inf:
            raise OutriderError(Reason.USAGE, f"--draft-ms {text!r}: expected milliseconds, 0 or more.")
    return given


def _print_progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
