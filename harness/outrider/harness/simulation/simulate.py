"""A scenario from end to end: the product as it stands, and every baseline, all run and none estimated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from outrider.harness.links import LinkProfile
from outrider.harness.simulation.colocated import run_colocated
from outrider.harness.simulation.draft_only import run_draft_only
from outrider.harness.simulation.measures import Run, measures
from outrider.harness.simulation.oracle import run_oracle
from outrider.harness.simulation.scenario import BaselineName, Scenario
from outrider.harness.simulation.setup import NO_DRAFTER, RECORDED_DRAFTER, Setup
from outrider.harness.simulation.virtual_run import run_virtual

# Tried from the left until several in a row are slower than the best so far.
GAMMAS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32, 48)
GIVE_UP_AFTER = 3

Progress = Callable[[str], None]
Result = dict[str, Any]
"""What `simulate --json` prints."""


def simulate(scenario: Scenario, setup: Setup, progress: Progress = lambda _: None) -> Result:
    """The measures of the product and of the scenario's baselines, on the virtual clock.

    `progress` is told what is run next. Raises what the product raises.
    """
    progress("outrider")
    result = measured(run_virtual(setup), setup) | {"settings": settings_of(scenario, setup)}
    result["baselines"] = {}
    for name in scenario.baselines:
        progress(name)
        result["baselines"][name] = _BASELINES[name](setup)
    return result


def measured(run: Run, setup: Setup) -> Result:
    """The measures of a run of `setup`."""
    return measures(run) | {"sessions": setup.sessions}


def settings_of(scenario: Scenario, setup: Setup) -> Result:
    """Everything that was in effect; numbers in place of the names of profiles, and their names beside them."""
    header = setup.recordings.header
    chosen = scenario.model_dump(mode="json", exclude={"target", "cloud_drafter", "device", "link", "prompts"})
    return chosen | {
        "target": setup.target.model_dump() | {"name": _name(scenario.target)},
        "cloud_drafter": setup.cloud_drafter.model_dump() | {"name": _name(scenario.cloud_drafter)},
        "device": setup.device.model_dump() | {"name": _name(scenario.device)},
        "link": setup.link.model_dump(exclude_defaults=True) | {"name": _name(scenario.link)},
        "target_ms": setup.target.base_ms,
        "cloud_draft_ms": setup.cloud_drafter.base_ms,
        "draft_ms": setup.device.token_ms,
        "rtt_ms": setup.link.rtt_ms,
        "target_model": header.target.name,
        "draft_model": header.draft.name,
        "sampling": header.sampling.model_dump(mode="json", exclude={"seed", "stop", "max_tokens"}),
        "prompts": [recording.header.id for recording in setup.recordings],
    }


def _name(choice: object) -> str:
    return choice if isinstance(choice, str) else "own"


def _streaming(setup: Setup) -> Result:
    """The target alone with an accelerator to itself, its tokens streamed."""
    return _batched(replace(setup, sessions=1))


def _batched(setup: Setup) -> Result:
    """The target alone, all sessions in one batch."""
    alone = setup.with_drafting(drafter=NO_DRAFTER, pace="eager")
    return measured(run_virtual(alone), alone) | {"settings": {"pace": "eager"}}


def _stop_and_wait(setup: Setup) -> Result:
    """Split speculation that drafts γ tokens, sends their ids and waits, with the γ that is fastest here."""

    def result(gamma: int) -> Result:
        waiting = setup.with_drafting(drafter=RECORDED_DRAFTER, control="fixed", gamma=gamma, branch=1, pace="patient")
        return measured(run_virtual(waiting), waiting) | {"settings": {"gamma": gamma, "pace": "patient"}}

    return _fastest(result)


def _colocated(setup: Setup) -> Result:
    """Speculation within the data centre, all sessions in one batch, with the γ that is fastest here."""

    def result(gamma: int) -> Result:
        return measured(run_colocated(setup, gamma), setup) | {"settings": {"gamma": gamma}}

    return _fastest(result)


def _draft_only(setup: Setup) -> Result:
    return measured(run_draft_only(setup), replace(setup, sessions=1)) | {"settings": {"text": "the draft model's"}}


def _rtt_zero(setup: Setup) -> Result:
    """The product over a link without delay, bound or fault."""
    near = replace(setup, link=LinkProfile(overhead_bytes=setup.link.overhead_bytes))
    return measured(run_virtual(near), near) | {"settings": {"rtt_ms": 0.0}}


def _oracle(setup: Setup) -> Result:
    link = setup.link.steady()
    alone = replace(setup, sessions=1)
    return measured(run_oracle(alone), alone) | {"settings": {"rtt_ms": link.rtt_ms}}


def _fastest(result_of: Callable[[int], Result]) -> Result:
    """The result with the γ of least ms/token."""
    best, best_ms, worse = None, float("inf"), 0
    for gamma in GAMMAS:
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


_BASELINES: dict[BaselineName, Callable[[Setup], Result]] = {
    "streaming": _streaming,
    "colocated": _colocated,
    "batched": _batched,
    "stop_and_wait": _stop_and_wait,
    "draft_only": _draft_only,
    "rtt_zero": _rtt_zero,
    "oracle": _oracle,
}
