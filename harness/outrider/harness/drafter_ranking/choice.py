"""The drafting flags that are fastest for a setup, found by running the product on the virtual clock."""

from __future__ import annotations

from outrider.harness.simulation.planning import Choice, choices
from outrider.harness.simulation.scenario import Scenario
from outrider.harness.simulation.setup import Setup
from outrider.harness.simulation.simulate import Result, simulate


def fastest_choice(setup: Setup) -> Choice:
    """The choice of least ms/token among those that a plan tries. Some answer must have two tokens."""
    return min(choices(setup), key=lambda choice: choice.result["ms_per_token"] or float("inf"))


def plain_streaming(setup: Setup) -> Result:
    """The target alone, its tokens streamed."""
    result: Result = simulate(Scenario(baselines=("streaming",)), setup)["baselines"]["streaming"]
    return result
