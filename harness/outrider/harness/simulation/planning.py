"""Whether splitting helps at given times and acceptance, with which settings, up to which round trip and at what cost;
found by running the product, not by formula.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from outrider.harness.recording.library import RecordingSet
from outrider.harness.simulation.measures import measures
from outrider.harness.simulation.scenario import Scenario
from outrider.harness.simulation.setup import Setup
from outrider.harness.simulation.simulate import simulate
from outrider.harness.simulation.virtual_run import run_virtual
from outrider.shared.errors import OutriderError, Reason

GAMMAS = (1, 2, 3, 4, 5, 6, 8, 12, 16)
PACES = ("patient", "eager")
# A gain below this is not worth a second model on the device.
LEAST_GAIN = 1.03
MAX_RTT_MS = 2_000.0
RTT_PRECISION = 0.04

Result = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Choice:
    """Drafting flags (no `gamma` where the policy needs none), and what the product measured with them."""

    control: str
    gamma: int | None
    pace: str
    result: Result

    @property
    def flags(self) -> str:
        """As the command line takes them."""
        gamma = "" if self.gamma is None else f" --gamma {self.gamma}"
        return f"--control {self.control}{gamma} --pace {self.pace}"

    @property
    def label(self) -> str:
        """For people."""
        return f"{self.control}, {self.pace}" if self.gamma is None else f"γ {self.gamma}, {self.pace}"


@dataclass(frozen=True, slots=True)
class Plan:
    """`acceptance` is how often the drafter's first choice is right. `best` is the fastest choice found, `cheapest` the
    one with the least accelerator time that saves some and is no slower than streaming (None if there is none). Up to
    `break_even_rtt_ms` the best choice at that round trip, on a steady link, beats streaming: 0 if none ever does, None
    if all do. Costs compare with `batched`: streaming to as many sessions at once.
    """

    acceptance: float
    streaming: Result
    batched: Result
    colocated: Result
    oracle: Result
    best: Choice
    cheapest: Choice | None
    break_even_rtt_ms: float | None

    @property
    def speedup(self) -> float:
        """Of the best choice over streaming."""
        return float(self.streaming["ms_per_token"] / self.best.result["ms_per_token"])

    @property
    def helps(self) -> bool:
        """Whether splitting is worth while for speed."""
        return self.speedup >= LEAST_GAIN


def make_plan(setup: Setup) -> Plan:
    """Try the drafting flags over `setup` on the virtual clock."""
    rivals = simulate(Scenario(baselines=("streaming", "batched", "colocated", "oracle")), setup)["baselines"]
    alone = rivals["streaming"]
    if alone["ms_per_token"] is None:
        raise OutriderError(Reason.USAGE, "the answers are too short to plan by; --max-tokens 32 or more is sensible.")
    tried = list(choices(setup))
    saves = rivals["batched"]["accelerator_ms_per_token"] / LEAST_GAIN
    no_slower = [
        choice
        for choice in tried
        if _ms(choice) <= alone["ms_per_token"] and choice.result["accelerator_ms_per_token"] <= saves
    ]
    return Plan(
        acceptance=_acceptance(setup.recordings),
        streaming=alone,
        batched=rivals["batched"],
        colocated=rivals["colocated"],
        oracle=rivals["oracle"],
        best=min(tried, key=_ms),
        cheapest=min(no_slower, key=lambda choice: choice.result["accelerator_ms_per_token"], default=None),
        break_even_rtt_ms=_break_even_rtt_ms(setup, alone["ms_per_token"]),
    )


def _ms(choice: Choice) -> float:
    ms = choice.result["ms_per_token"]
    return float("inf") if ms is None else float(ms)


def _acceptance(recordings: RecordingSet) -> float:
    """Share of positions on the true text at which the drafter's first choice is right."""
    hits = [recording.draft.ids[:, 0] == np.array(recording.answer_ids) for recording in recordings]
    return float(np.concatenate(hits).mean())


def choices(setup: Setup, gammas: Iterable[int] = GAMMAS) -> Iterable[Choice]:
    """The drafting flags worth trying, run on the virtual clock one by one."""
    for pace in PACES:
        grown = setup.with_drafting(control="ratio", gamma=None, pace=pace)
        yield Choice("ratio", None, pace, measures(run_virtual(grown)))
        for gamma in gammas:
            changed = setup.with_drafting(control="fixed", gamma=gamma, pace=pace)
            yield Choice("fixed", gamma, pace, measures(run_virtual(changed)))


def _break_even_rtt_ms(setup: Setup, streaming_ms: float) -> float | None:
    """By bisection; streaming's time a token does not depend on the round trip."""

    def beats(rtt_ms: float) -> bool:
        steady = setup.link.steady()
        link = steady.model_copy(update={"up_ms": rtt_ms / 2, "down_ms": rtt_ms / 2})
        times = (_ms(choice) for choice in choices(replace(setup, link=link), GAMMAS[1::2]))
        return any(streaming_ms >= LEAST_GAIN * ms for ms in times)

    if not beats(0.0):
        return 0.0
    if beats(MAX_RTT_MS):
        return None
    low, high = 0.0, MAX_RTT_MS
    while high - low > max(1.0, RTT_PRECISION * high):
        middle = (low + high) / 2
        low, high = (middle, high) if beats(middle) else (low, middle)
    return low
