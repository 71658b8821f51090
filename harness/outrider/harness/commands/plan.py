"""Say in plain words whether splitting helps at given times and acceptance, what to set and what it costs."""

from __future__ import annotations

import dataclasses
import math
from typing import Annotated, Any

import typer

from outrider.edge.commands.options import with_option_groups
from outrider.harness.commands.scenario_options import (
    ScenarioArgument,
    ScenarioOptions,
    SingleOptions,
    given_fields,
    scenario_of,
)
from outrider.harness.simulation.planning import LEAST_GAIN, MAX_RTT_MS, Plan, make_plan
from outrider.harness.simulation.scenario import Scenario, resolve
from outrider.harness.simulation.setup import Setup
from outrider.harness.simulation.synthetic import synthetic_recordings
from outrider.shared.cli import JsonOption, LogLevelOption, print_json
from outrider.shared.errors import OutriderError, Reason

SYNTHETIC_ANSWERS = 8
SYNTHETIC_TOKENS = 128
MOST_SYNTHETIC_TOKENS = 65_536
MS_PER_HOUR = 3_600_000


@with_option_groups
def plan(
    options: ScenarioOptions,
    single: SingleOptions,
    scenario: ScenarioArgument = None,
    acceptance: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="How often a guess is right; without it the recordings are taken."),
    ] = None,
    price_per_hour: Annotated[
        float | None, typer.Option(min=0, help="Price of the target's accelerators an hour, for the cost of tokens.")
    ] = None,
    json: JsonOption = False,
    log_level: LogLevelOption = None,
) -> None:
    """Try the drafting flags on the virtual clock and say what is best."""
    if price_per_hour is not None and not math.isfinite(price_per_hour):
        raise OutriderError(Reason.USAGE, f"--price-per-hour {price_per_hour}: expected a number.")
    chosen = scenario_of(scenario, options.given(), given_fields(single))
    setup = _setup(chosen, acceptance)
    made = make_plan(setup)
    if json:
        print_json(plan_json(made, setup, price_per_hour))
    else:
        print("\n".join(plan_text(made, setup, price_per_hour)))


def _setup(scenario: Scenario, acceptance: float | None) -> Setup:
    if scenario.clock == "wall":
        raise OutriderError(Reason.USAGE, "clock = 'wall': a plan is made on the virtual clock.")
    asked_for = sorted({"control", "gamma", "branch", "pace", "baselines"} & scenario.model_fields_set)
    if asked_for:
        raise OutriderError(Reason.USAGE, f"{asked_for[0]}: a plan tries the drafting flags and baselines itself.")
    setup = resolve(scenario)
    if acceptance is None:
        return setup
    if scenario.category:
        raise OutriderError(Reason.USAGE, "--acceptance and --category: guesses come from numbers or from recordings.")
    answers, tokens = scenario.limit or SYNTHETIC_ANSWERS, scenario.max_tokens or SYNTHETIC_TOKENS
    if answers * tokens > MOST_SYNTHETIC_TOKENS:
        text = (
            f"{answers} answers of {tokens} tokens: with --acceptance at most {MOST_SYNTHETIC_TOKENS} tokens together."
        )
        raise OutriderError(Reason.USAGE, text)
    made = synthetic_recordings(
        acceptance,
        answers=answers,
        tokens=tokens,
        seed=scenario.seed,
    )
    return dataclasses.replace(setup, recordings=made)


def plan_json(made: Plan, setup: Setup, price_per_hour: float | None) -> dict[str, Any]:
    """The plan with its numbers."""
    best = made.best
    return {
        "helps": made.helps,
        "acceptance": round(made.acceptance, 4),
        "speedup": round(made.speedup, 4),
        "best": {"control": best.control, "gamma": best.gamma, "pace": best.pace, **best.result},
        "cheapest": made.cheapest
        and {
            "control": made.cheapest.control,
            "gamma": made.cheapest.gamma,
            "pace": made.cheapest.pace,
            **made.cheapest.result,
        },
        "break_even_rtt_ms": made.break_even_rtt_ms,
        "price_per_million_tokens": None
        if price_per_hour is None
        else {
            name: _price(result, price_per_hour)
            for name, result in (
                ("streaming", made.batched),
                ("best", best.result),
                ("colocated", made.colocated),
            )
        },
        "baselines": {
            "streaming": made.streaming,
            "batched": made.batched,
            "colocated": made.colocated,
            "oracle": made.oracle,
        },
        "target_ms": setup.target.base_ms,
        "draft_ms": setup.device.token_ms,
        "rtt_ms": setup.link.rtt_ms,
    }


def plan_text(made: Plan, setup: Setup, price_per_hour: float | None) -> list[str]:
    """The plan in sentences."""
    best, alone, together = made.best.result, made.streaming, made.colocated
    lines = [
        f"Target {setup.target.base_ms:g} ms a pass, draft model {setup.device.token_ms:g} ms a token, round trip "
        f"{setup.link.rtt_ms:g} ms, {_sessions(setup)}; guesses are right {made.acceptance:.0%} of the time.",
        "",
        _verdict(made),
    ]
    if made.helps:
        lines.append(f"Set: {made.best.flags}")
    elif made.cheapest is not None and made.cheapest.result["passes_per_token"] < 1:
        lines.append(f"For cost alone, at streaming's speed or better, set: {made.cheapest.flags}")
    lines += [
        "",
        f"  {'':<28}{'ms/token':>10}{'first ms':>10}{'passes/token':>14}{'accelerator ms/token':>22}",
        _row("plain streaming", alone),
        *([_row(f"streaming to {setup.sessions} at once", made.batched)] if setup.sessions > 1 else []),
        _row(f"outrider, {made.best.label}", best),
        _row(f"co-located, γ {together['settings']['gamma']}", together),
        _row("oracle (a bound)", made.oracle),
        "",
        _break_even(made),
        _colocated(made),
        f"It costs the device {best['draft_ms_wasted_per_token']:.1f} ms a token of drafting in vain, and "
        f"{best['bytes_up_per_token']:.0f} bytes up and {best['bytes_down_per_token']:.0f} down a token.",
    ]
    if price_per_hour is not None:
        lines.append(
            f"At {price_per_hour:g} an hour, a million tokens cost {_price(made.batched, price_per_hour):.2f} by plain "
            f"streaming to as many at once and {_price(best, price_per_hour):.2f} so (accelerator time only)."
        )
    return lines


def _verdict(made: Plan) -> str:
    best, alone = made.best.result["ms_per_token"], made.streaming["ms_per_token"]
    if made.helps:
        return (
            f"Splitting helps: {made.speedup:.2f} times the speed of plain streaming ({best:.1f} for {alone:.1f} ms)."
        )
    if made.speedup >= 1 / LEAST_GAIN:
        return f"Splitting is no faster than plain streaming here ({best:.1f} for {alone:.1f} ms a token)."
    return f"Splitting does not help: {best:.1f} ms a token at best, plain streaming takes {alone:.1f}. Stream plainly."


def _break_even(made: Plan) -> str:
    rtt_ms = made.break_even_rtt_ms
    if rtt_ms is None:
        return f"It beats streaming at any round trip up to {MAX_RTT_MS:.0f} ms."
    if rtt_ms == 0:
        return "It beats streaming at no round trip, not even at 0 ms: the draft model is too slow or too often wrong."
    return f"It beats streaming up to a round trip of about {rtt_ms:.0f} ms."


def _colocated(made: Plan) -> str:
    ratio = made.best.result["ms_per_token"] / made.colocated["ms_per_token"]
    cost = made.best.result["accelerator_ms_per_token"] / made.colocated["accelerator_ms_per_token"]
    speed = f"{ratio:.2f} times as long" if ratio >= 1 else f"{1 / ratio:.2f} times as fast"
    return (
        f"With a draft model in the data centre instead, a token takes {made.colocated['ms_per_token']:.1f} ms: "
        f"splitting is {speed} and takes {cost:.2f} times its accelerator time."
    )


def _row(name: str, result: dict[str, Any]) -> str:
    return (
        f"  {name:<28}{result['ms_per_token']:>10.1f}{result['ttft_ms']:>10.0f}{result['passes_per_token']:>14.3f}"
        f"{result['accelerator_ms_per_token']:>22.1f}"
    )


def _sessions(setup: Setup) -> str:
    return "one session" if setup.sessions == 1 else f"{setup.sessions} sessions"


def _price(result: dict[str, Any], price_per_hour: float) -> float:
    """Of a million tokens."""
    return round(float(result["accelerator_ms_per_token"]) * 1e6 / MS_PER_HOUR * price_per_hour, 4)
