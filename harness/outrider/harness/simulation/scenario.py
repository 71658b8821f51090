"""What a user writes to describe a scenario: a TOML file, with command-line options over it. Checked here, once, and
resolved into a `Setup`.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationError, field_validator

from outrider.edge.drafting import LOOKUP, Drafting
from outrider.edge.guesses.draft_temperature import AUTO
from outrider.harness.emulator import EmulatorChoice
from outrider.harness.links import LinkProfile, Milliseconds, PositiveMilliseconds, describe_problems, load_trace
from outrider.harness.profiles import (
    DrafterProfile,
    TargetProfile,
    load_drafters,
    load_links,
    load_targets,
    parse_toml,
    pick,
)
from outrider.harness.recording.library import RecordingSet
from outrider.harness.simulation.setup import RECORDED_DRAFTER, Setup
from outrider.shared.errors import OutriderError, Reason

BaselineName = Literal["streaming", "colocated", "batched", "stop_and_wait", "draft_only", "rtt_zero", "oracle"]
BASELINES: tuple[BaselineName, ...] = get_args(BaselineName)
SHIPPED_SETS = ("greedy", "greedy-q2", "nucleus", "full", "long", "other")
DrafterChoice = Literal["recorded", "recorded+lookup", "recorded+ngrams", "recorded+lookup+ngrams", "lookup", "none"]
STEADY_LINK = "steady"
MAX_SESSIONS = 1000
NAME, TABLE = "name", "table"
# What decides which recordings are read.
RECORDING_KEYS = {"recordings", "category", "prompts", "limit", "target_model", "draft_model"}


def _form(value: object) -> str:
    return NAME if isinstance(value, str) else TABLE


TargetChoice = Annotated[Annotated[str, Tag(NAME)] | Annotated[TargetProfile, Tag(TABLE)], Discriminator(_form)]
DeviceChoice = Annotated[Annotated[str, Tag(NAME)] | Annotated[DrafterProfile, Tag(TABLE)], Discriminator(_form)]
LinkChoice = Annotated[Annotated[str, Tag(NAME)] | Annotated[LinkProfile, Tag(TABLE)], Discriminator(_form)]


class Scenario(BaseModel):
    """A scenario, as its TOML file says it. `target`, `cloud_drafter`, `device` and `link` are profiles by name or
    tables of their own; `target_ms`, `cloud_draft_ms`, `draft_ms` and `rtt_ms` put another time into them (a device's
    prompt time changes with its `draft_ms`). `profiles` is a folder whose targets.toml, drafters.toml and links.toml
    stand in for the shipped ones. `recordings` is a shipped set or a folder; relative paths start at the file.
    `emulator` is what delays messages on the wall clock; `auto` is netem where it can be had.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    recordings: str = "greedy"
    category: tuple[str, ...] = ()
    prompts: tuple[str, ...] = ()
    limit: Annotated[int, Field(ge=1, strict=True)] | None = None
    max_tokens: Annotated[int, Field(ge=1, strict=True)] | None = None
    target_model: str | None = None
    draft_model: str | None = None
    profiles: str | None = None
    target: TargetChoice = "70b-4xa100-40ms"
    target_ms: PositiveMilliseconds | None = None
    cloud_drafter: TargetChoice = "1.5b-on-4xa100"
    cloud_draft_ms: PositiveMilliseconds | None = None
    device: DeviceChoice = "laptop-1.5b"
    draft_ms: Milliseconds | None = None
    link: LinkChoice = STEADY_LINK
    rtt_ms: Milliseconds | None = None
    trace: str | None = None
    sessions: Annotated[int, Field(ge=1, le=MAX_SESSIONS, strict=True)] = 1
    drafter: DrafterChoice = RECORDED_DRAFTER
    further_recordings: tuple[str, ...] = ()
    cloud_lookup: Annotated[int, Field(ge=0, le=64, strict=True)] = 0
    control: str | None = None
    gamma: Annotated[int, Field(ge=1, le=256, strict=True)] | None = None
    branch: Annotated[int, Field(ge=1, le=64, strict=True)] | None = None
    pace: Literal["patient", "eager"] = "patient"
    draft_temperature: float | str = AUTO
    clock: Literal["virtual", "wall"] = "virtual"
    emulator: EmulatorChoice = "proxy"
    seed: Annotated[int, Field(ge=0, lt=2**63, strict=True)] = 1
    baselines: tuple[BaselineName, ...] = BASELINES

    @field_validator("category", "prompts", "further_recordings", mode="before")
    @classmethod
    def _one_is_a_list(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value


def read_scenario(path: Path | None, overrides: Mapping[str, Any]) -> Scenario:
    """The scenario in `path` (None: all defaults) with `overrides`, keys of a scenario, over it.

    Raises USAGE that names the file or the option, the key, its value and what was expected.
    """
    values: dict[str, Any] = {}
    if path is not None:
        try:
            values = parse_toml(path.read_bytes())
        except (OSError, ValueError) as error:
            raise OutriderError(Reason.USAGE, f"{path}: {error}.") from None
        link = values.get("link")
        if isinstance(link, dict) and isinstance(link.get("trace"), str):
            link["trace"] = load_trace(path.parent / link["trace"])
        _validate(values, str(path))
        values |= {key: _beside(path, values[key]) for key in ("profiles", "trace") if key in values}
        if values.get("recordings") not in {None, *SHIPPED_SETS}:
            values["recordings"] = _beside(path, values["recordings"])
        if "further_recordings" in values:
            further = Scenario.model_validate(values).further_recordings
            values["further_recordings"] = [n if n in SHIPPED_SETS else _beside(path, n) for n in further]
    # Alone first, so that what is wrong with an option is not said of the file.
    _validate(dict(overrides), "option")
    return _validate(values | dict(overrides), str(path or "options"))


def changed(scenario: Scenario, values: Mapping[str, Any]) -> Scenario:
    """The scenario with some keys changed, checked again; raises USAGE."""
    return _validate(scenario.model_dump(exclude_unset=True) | dict(values), "option")


def resolve(scenario: Scenario) -> Setup:
    """Look profiles up and read recordings; raises USAGE and FILE_UNREADABLE."""
    return resolve_with(scenario, read_recordings(scenario))


def resolve_with(scenario: Scenario, recordings: RecordingSet) -> Setup:
    """Look profiles up, with recordings that have been read; raises USAGE."""
    drafting = Drafting(
        drafter=scenario.drafter,
        control=scenario.control,
        gamma=scenario.gamma,
        branch=scenario.branch,
        pace=scenario.pace,
        draft_temperature=scenario.draft_temperature,
    )
    # Refuses a policy that there is none of.
    drafting.make_control()
    return Setup(
        recordings=recordings,
        target=_with_time(_target(scenario, scenario.target), scenario.target_ms),
        cloud_drafter=_with_time(_target(scenario, scenario.cloud_drafter), scenario.cloud_draft_ms),
        device=_device(scenario),
        link=_link(scenario),
        drafting=drafting,
        further_recordings=tuple(_read_further(scenario, name, recordings) for name in scenario.further_recordings),
        cloud_lookup=scenario.cloud_lookup,
        sessions=scenario.sessions,
        seed=scenario.seed,
        max_tokens=scenario.max_tokens,
    )


def shipped_recordings(name: str) -> Path:
    """The folder of a shipped set."""
    return Path(str(resources.files("outrider.harness").joinpath("recordings", name)))


def _validate(values: Mapping[str, Any], origin: str) -> Scenario:
    try:
        return Scenario.model_validate(values)
    except ValidationError as error:
        raise OutriderError(Reason.USAGE, f"{origin}: {describe_problems(error, (NAME, TABLE))}") from None


def _beside(path: Path, name: str) -> str:
    return str(path.parent / name)


def recordings_folder(name: str) -> Path:
    """Where the recordings of a shipped set or a folder stand."""
    return shipped_recordings(name) if name in SHIPPED_SETS else Path(name)


def read_recordings(scenario: Scenario) -> RecordingSet:
    """The scenario's recordings; raises FILE_UNREADABLE."""
    folder = recordings_folder(scenario.recordings)
    found = RecordingSet.read(folder, categories=scenario.category, ids=scenario.prompts, limit=scenario.limit)
    for role, wanted in (("target", scenario.target_model), ("draft", scenario.draft_model)):
        recorded = getattr(found.header, role).name
        if wanted is not None and wanted != recorded:
            raise OutriderError(Reason.FILE_UNREADABLE, f"{folder}: {role} model {recorded}, expected {wanted}.")
    return found


def _read_further(scenario: Scenario, name: str, recordings: RecordingSet) -> RecordingSet:
    """Recordings of another draft model for the answers of `recordings`."""
    folder = recordings_folder(name)
    found = RecordingSet.read(folder, ids=tuple(recording.header.id for recording in recordings))
    if found.header.draft.name == recordings.header.draft.name:
        raise OutriderError(Reason.FILE_UNREADABLE, f"{folder}: recorded with the same draft model.")
    for recording in recordings:
        if found.find(recording.prompt_ids).answer_ids != recording.answer_ids:
            raise OutriderError(Reason.FILE_UNREADABLE, f"{folder}: {recording.header.id} is another answer.")
    return found


def _profile_file(scenario: Scenario, name: str) -> Path | None:
    """The scenario's own file of profiles, if it has one of this kind."""
    if scenario.profiles is None:
        return None
    folder = Path(scenario.profiles)
    if not folder.is_dir():
        raise OutriderError(Reason.USAGE, f"profiles = {scenario.profiles!r}: no such folder.")
    return folder / name if (folder / name).exists() else None


def _target(scenario: Scenario, choice: str | TargetProfile) -> TargetProfile:
    if isinstance(choice, TargetProfile):
        return choice
    return pick(load_targets() | load_targets(_profile_file(scenario, "targets.toml")), choice).values


def _with_time(target: TargetProfile, base_ms: float | None) -> TargetProfile:
    return target if base_ms is None else target.model_copy(update={"base_ms": base_ms})


def _device(scenario: Scenario) -> DrafterProfile:
    device = scenario.device
    if device == LOOKUP and RECORDED_DRAFTER in scenario.drafter and scenario.draft_ms is None:
        raise OutriderError(
            Reason.USAGE,
            f"device = {device!r} has no model for drafter = {scenario.drafter!r}; set drafter = {LOOKUP!r}.",
        )
    if isinstance(device, str):
        device = pick(load_drafters() | load_drafters(_profile_file(scenario, "drafters.toml")), device).values
    if scenario.draft_ms is None:
        return device
    scale = scenario.draft_ms / device.token_ms if device.token_ms else 1.0
    changes = {"token_ms": scenario.draft_ms, "prompt_token_ms": device.prompt_token_ms * scale}
    return device.model_copy(update=changes)


def _link(scenario: Scenario) -> LinkProfile:
    link = scenario.link
    if isinstance(link, str):
        link = pick(load_links() | load_links(_profile_file(scenario, "links.toml")), link).values
    if scenario.trace is not None:
        link = _changed(link, {"trace": load_trace(Path(scenario.trace))}, f"trace = {scenario.trace!r}")
    if scenario.rtt_ms is not None:
        if link.trace:
            raise OutriderError(Reason.USAGE, "rtt_ms beside a trace: give one of them.")
        share = link.up_ms / (link.up_ms + link.down_ms) if link.up_ms + link.down_ms else 0.5
        delays = {"up_ms": scenario.rtt_ms * share, "down_ms": scenario.rtt_ms * (1 - share)}
        link = _changed(link, delays, f"rtt_ms = {scenario.rtt_ms:g}")
    return link


def _changed(link: LinkProfile, changes: Mapping[str, Any], origin: str) -> LinkProfile:
    """The link with some values changed, checked as a whole again."""
    try:
        return LinkProfile.model_validate(link.model_dump() | dict(changes))
    except ValidationError as error:
        raise OutriderError(Reason.USAGE, f"{origin}: {describe_problems(error)}") from None
