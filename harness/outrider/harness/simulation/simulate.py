"""A scenario from end to end: the product as it stands, and every baseline, all run and none estimated."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from typing import Any

from outrider.harness.emulator import EmulatorName, choose_emulator
from outrider.harness.links import LinkProfile
from outrider.harness.simulation.colocated import run_colocated
from outrider.harness.simulation.draft_only import run_draft_only
from outrider.harness.simulation.measures import Run, measures
from outrider.harness.simulation.oracle import run_oracle
from outrider.harness.simulation.scenario import BaselineName, Scenario
from outrider.harness.simulation.setup import NO_DRAFTER, RECORDED_DRAFTER, Setup
from outrider.harness.simulation.virtual_run import run_virtual
from outrider.harness.simulation.wall_run import run_wall
from outrider.shared.errors import OutriderError, Reason

# Tried from the left until several in a row are slower than the best so far.
GAMMAS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32, 48)
GIVE_UP_AFTER = 3

Progress = Callable[[str], None]
Result = dict[str, Any]
"""What `simulate --json` prints."""
Clock = Callable[[Setup], Result]
"""Runs a setup; measures and, under `settings`, the clock it ran on."""


def simulate(scenario: Scenario, setup: Setup, progress: Progress = lambda _: None) -> Result:
    """The measures of the product and of the scenario's baselines, on its clock; those that have no edge on a link
    (colocated, draft_only, oracle) on the virtual one.

    `progress` is told what is run next. Raises USAGE for an emulator that cannot be had, MEASUREMENT_INVALID for a run
    on the wall clock that does not count, and what the product raises.
    """
    clock = clock_of(scenario, setup)
    progress("outrider")
    result = clock(setup)
    result["settings"] = settings_of(scenario, setup) | result["settings"]
    result["baselines"] = {}
    for name in scenario.baselines:
        progress(name)
        result["baselines"][name] = _BASELINES[name](setup, clock)
    return result


def measured(run: Run, setup: Setup) -> Result:
    """The measures of a run of `setup`."""
    return measures(run) | {"sessions": setup.sessions}


def on_virtual_clock(setup: Setup) -> Result:
    """The product's measures over links in memory."""
    return measured(run_virtual(setup), setup) | {"settings": {"clock": "virtual"}}


def on_wall_clock(setup: Setup, emulator: EmulatorName) -> Result:
    """The product's measures over real gRPC, beside what link and machine were measured to do; raises
    MEASUREMENT_INVALID where they do not do what the setup says.
    """
    found = run_wall(setup, emulator)
    settings = {
        "clock": "wall",
        "emulator": found.emulator,
        "link_probe": asdict(found.probe),
        "timekeeping": asdict(found.timekeeping),
        "attempts": found.attempts,
    }
    return measured(found.run, setup) | {"settings": settings}


def clock_of(scenario: Scenario, setup: Setup) -> Clock:
    """What runs setups on the scenario's clock; raises USAGE for an emulator that cannot be had."""
    if scenario.clock == "wall":
        emulator = choose_emulator(scenario.emulator, setup.link, setup.sessions)
        return lambda chosen: on_wall_clock(chosen, emulator)
    if scenario.emulator == "netem":
        raise OutriderError(Reason.USAGE, "emulator = 'netem': on the virtual clock nothing is emulated.")
    return on_virtual_clock


def settings_of(scenario: Scenario, setup: Setup) -> Result:
    """Everything that was in effect; numbers in place of the names of profiles, and their names beside them."""
    header = setup.recordings.header
    # What was emulated, the run knows.
    left_out = {"target", "cloud_drafter", "device", "link", "prompts", "emulator"}
    chosen = scenario.model_dump(mode="json", exclude=left_out)
    drafting = setup.drafting.settings()
    return chosen | {
        "control": drafting["control"],
        "gamma": drafting["gamma"],
        "branch": drafting["branch"],
        "target": setup.target.model_dump() | {"name": _name(scenario.target)},
        "cloud_drafter": setup.cloud_drafter.model_dump() | {"name": _name(scenario.cloud_drafter)},
        "device": setup.device.model_dump() | {"name": _name(scenario.device)},
        "link": link_settings(setup.link, scenario.trace) | {"name": _name(scenario.link)},
        "target_ms": setup.target.base_ms,
        "cloud_draft_ms": setup.cloud_drafter.base_ms,
        "draft_ms": setup.device.token_ms,
        "rtt_ms": setup.link.rtt_ms,
        "target_model": header.target.name,
        "draft_model": header.draft.name,
        "sampling": header.sampling.model_dump(mode="json", exclude={"seed", "stop", "max_tokens"}),
        "prompts": [recording.header.id for recording in setup.recordings],
    }


def link_settings(link: LinkProfile, trace_path: str | None) -> Result:
    """The link's values; of a trace its path, how many points it has, and the SHA-256 of these as JSON."""
    values = link.model_dump(exclude_defaults=True)
    if link.trace:
        digest = hashlib.sha256(json.dumps(link.trace).encode()).hexdigest()
        values["trace"] = {"path": trace_path, "points": len(link.trace), "sha256": digest}
    return values


def _name(choice: object) -> str:
    return choice if isinstance(choice, str) else "own"


def _with_settings(result: Result, **settings: object) -> Result:
    return result | {"settings": settings | result["settings"]}


def _streaming(setup: Setup, clock: Clock) -> Result:
    """The target alone with an accelerator to itself, its tokens streamed."""
    return _batched(replace(setup, sessions=1), clock)


def _batched(setup: Setup, clock: Clock) -> Result:
    """The target alone, all sessions in one batch."""
    alone = replace(setup, cloud_lookup=0).with_drafting(drafter=NO_DRAFTER, pace="eager")
    return _with_settings(clock(alone), pace="eager")


def _stop_and_wait(setup: Setup, clock: Clock) -> Result:
    """Split speculation that drafts γ tokens, sends their ids and waits, with the γ that is fastest here on the virtual
    clock.
    """

    def result(gamma: int, clock: Clock = on_virtual_clock) -> Result:
        drafting = {"drafter": RECORDED_DRAFTER, "control": "fixed", "gamma": gamma, "branch": 1, "pace": "patient"}
        waiting = replace(setup, cloud_lookup=0).with_drafting(**drafting)
        return _with_settings(clock(waiting), gamma=gamma, pace="patient")

    best = _fastest(result, GAMMAS)
    return best if clock is on_virtual_clock else result(best["settings"]["gamma"], clock)


def _colocated(setup: Setup, _: Clock) -> Result:
    """Speculation within the data centre, all sessions in one batch, with the γ that is fastest here."""

    def result(gamma: int) -> Result:
        settings = {"gamma": gamma, "clock": "virtual"}
        return measured(run_colocated(setup, gamma), setup) | {"settings": settings}

    # 0: an engine may leave its drafter out.
    return _fastest(result, (0, *GAMMAS))


def _draft_only(setup: Setup, _: Clock) -> Result:
    settings = {"text": "the draft model's", "clock": "virtual"}
    return measured(run_draft_only(setup), replace(setup, sessions=1)) | {"settings": settings}


def _rtt_zero(setup: Setup, clock: Clock) -> Result:
    """The product over a link without delay, bound or fault."""
    near = replace(setup, link=LinkProfile(overhead_bytes=setup.link.overhead_bytes))
    return _with_settings(clock(near), rtt_ms=0.0)


def _oracle(setup: Setup, _: Clock) -> Result:
    settings = {"rtt_ms": setup.link.steady().rtt_ms, "clock": "virtual"}
    alone = replace(setup, sessions=1)
    return measured(run_oracle(alone), alone) | {"settings": settings}


def _fastest(result_of: Callable[[int], Result], gammas: Iterable[int]) -> Result:
    """The result with the γ of least ms/token."""
    best, best_ms, worse = None, float("inf"), 0
    for gamma in gammas:
        result = result_of(gamma)
        ms = result["ms_per_token"]
        if best is None or (ms is not None and ms < best_ms):
            best, best_ms, worse = result, float("inf") if ms is None else ms, 0
        else:
            worse += 1
        if worse == GIVE_UP_AFTER:
            break
    assert best is not None, "there are values to try"
    return best


_BASELINES: dict[BaselineName, Callable[[Setup, Clock], Result]] = {
    "streaming": _streaming,
    "colocated": _colocated,
    "batched": _batched,
    "stop_and_wait": _stop_and_wait,
    "draft_only": _draft_only,
    "rtt_zero": _rtt_zero,
    "oracle": _oracle,
}
