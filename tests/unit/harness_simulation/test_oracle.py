"""The oracle against an exhaustive search that shares none of its code, and against the product."""

from __future__ import annotations

from itertools import product

import pytest

from outrider.harness.simulation.measures import measures
from outrider.harness.simulation.oracle import best_schedule, run_oracle
from outrider.harness.simulation.setup import Setup
from outrider.harness.simulation.virtual_run import run_virtual
from unit.harness_simulation.setups import PASS_MS, STEP_MS, make_setup


def finish_ms(setup: Setup, takes: tuple[int, ...], *, prompt_apart: bool) -> float | None:
    """When the last token is visible if the passes take so many guesses each; None if they cannot. The prompt is read
    by a pass of its own or by the first of them.

    Plays the device step by step: it drafts the next true token it can know of, as soon as it can.
    """
    recording = setup.recordings.recordings[0]
    answer = recording.answer_ids
    known = [answer[t] in recording.draft.ids[t, :2].tolist() for t in range(len(answer))]
    up = down = setup.link.up_ms
    unread = len(recording.prompt_ids) - 1
    free = up
    if prompt_apart:
        free, unread = up + setup.target.pass_ms(unread), 0
    heard: dict[int, float] = {0: 0.0}  # committed length -> when the device knows it
    ready: dict[int, float] = {}  # position -> when its guess is drafted

    def drafted(position: int) -> float:
        if not known[position]:
            return float("inf")
        if position not in ready:
            after_commit = min((time for length, time in heard.items() if length >= position), default=float("inf"))
            after_guess = drafted(position - 1) if position and known[position - 1] else float("inf")
            ready[position] = min(after_commit, after_guess) + STEP_MS
        return ready[position]

    position = 0
    for take in takes:
        if position + take > len(answer) - 1:
            return None
        began = free
        if take:
            if not all(known[position : position + take]):
                return None
            began = max(free, drafted(position + take - 1) + up)
        free, unread = began + setup.target.pass_ms(take + 1 + unread), 0
        position += take + 1
        # What is drafted meanwhile was drafted with what was known; only later guesses profit from this commit.
        if position < len(answer) and known[position]:
            by_itself = drafted(position - 1) + STEP_MS if take < 99 and known[position - 1] else float("inf")
            ready[position] = min(by_itself, free + down + STEP_MS)
        heard[position] = free + down
    return free + down if position == len(answer) else None


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("rtt_ms", [0.0, 20.0, 90.0])
def test_no_choice_of_passes_is_faster(seed: int, rtt_ms: float) -> None:
    setup = make_setup(0.6, seed=seed, rtt_ms=rtt_ms, tokens=7, answers=1, row_ms=0.5)
    found = best_schedule(setup, setup.recordings.recordings[0]).trace.updates[-1][0] * 1000
    times = [
        time
        for count in range(1, 8)
        for takes in product(range(7), repeat=count)
        for prompt_apart in (False, True)
        if sum(takes) + count == 7 and (time := finish_ms(setup, takes, prompt_apart=prompt_apart)) is not None
    ]
    assert found == pytest.approx(min(times))


def test_with_a_perfect_drafter_the_oracle_drafts_while_passes_run_and_checks_the_rest_in_one() -> None:
    run = run_oracle(make_setup(1.0, rtt_ms=0.0, tokens=100, answers=1))
    # 99 steps, one after the other, and the pass that checks the last of them and adds the hundredth token.
    assert run.answers[0].updates[-1][0] * 1000 == pytest.approx(99 * STEP_MS + PASS_MS)


def test_an_always_wrong_drafter_leaves_the_oracle_with_streaming() -> None:
    setup = make_setup(0.0, tokens=30, answers=1)
    recording = setup.recordings.recordings[0]
    # Second choices are right at times: without those too, nothing can be drafted.
    recording.draft.ids[:, 1] = recording.draft.ids[:, 0] + 7
    result = measures(run_oracle(setup))
    assert result["ms_per_token"] == PASS_MS


@pytest.mark.parametrize("pace", ["patient", "eager"])
@pytest.mark.parametrize("rtt_ms", [0.0, 20.0, 150.0])
@pytest.mark.parametrize("acceptance", [0.3, 0.8, 0.95])
def test_the_product_never_beats_the_oracle(acceptance: float, rtt_ms: float, pace: str) -> None:
    for gamma in (1, 3, 8):
        setup = make_setup(acceptance, rtt_ms=rtt_ms, gamma=gamma, pace=pace, answers=1, tokens=60)
        product_end = run_virtual(setup).answers[0].updates[-1][0]
        oracle_end = run_oracle(setup).answers[0].updates[-1][0]
        assert oracle_end <= product_end + 1e-9
