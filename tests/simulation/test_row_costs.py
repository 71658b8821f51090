"""Where rows cost the verifier time the ratio policy sends what is worth its row: many sessions need less of the
accelerator, and no answer at eager pace is slower than streaming.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from outrider.edge.control.row_price import RowPrice
from outrider.harness.links import LinkProfile
from outrider.harness.profiles import TargetProfile, load_drafters
from outrider.harness.recording.misled import always_wrong
from outrider.harness.simulation.measures import measures
from outrider.harness.simulation.scenario import Scenario, resolve
from outrider.harness.simulation.setup import Setup
from outrider.harness.simulation.virtual_run import run_virtual

# As crowded with four sessions as the shipped 70B target is with forty.
CROWDED = TargetProfile(base_ms=25, row_ms=1.9, free_rows=9, session_ms=0.04)
ROWS_ARE_DEAR = TargetProfile(base_ms=40, row_ms=10, free_rows=1, session_ms=0)
ROWS_ARE_FREE = TargetProfile(base_ms=40, row_ms=0.19, free_rows=90, session_ms=0.04)


def ms_per_token(setup: Setup, **drafting: object) -> float:
    return float(measures(run_virtual(setup.with_drafting(**drafting)))["ms_per_token"])


def test_with_many_sessions_only_guesses_that_are_worth_their_row_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    setup = resolve(Scenario(recordings="long", sessions=4, max_tokens=96, draft_ms=8.0, rtt_ms=20.0))
    setup = replace(setup, target=CROWDED)

    def accelerator_ms(**drafting: object) -> float:
        return float(measures(run_virtual(setup.with_drafting(**drafting)))["accelerator_ms_per_token"])

    with_price = accelerator_ms(control="ratio")
    assert with_price < 1.02 * min(accelerator_ms(control="fixed", gamma=gamma) for gamma in (1, 2, 3))
    monkeypatch.setattr(RowPrice, "least_probability", 0.0)
    assert with_price < 0.5 * accelerator_ms(control="ratio")


CELLS = [
    (0, "chat", "desktop-1.5b"),
    (0, "code", "laptop-1.5b"),
    (10, "zh", "phone-1.5b"),
    (20, "zh", "desktop-1.5b"),
    (60, "chat", "desktop-1.5b"),
    (300, "math", "desktop-1.5b"),
]


@pytest.mark.parametrize("target", [ROWS_ARE_DEAR, ROWS_ARE_FREE], ids=["dear", "free"])
@pytest.mark.parametrize(("rtt_ms", "category", "device"), CELLS)
def test_an_eager_answer_is_no_slower_than_streaming_whatever_rows_cost(
    target: TargetProfile, rtt_ms: float, category: str, device: str
) -> None:
    """With the recorded drafter, and with one that is as sure of itself and always wrong."""
    setup = resolve(Scenario(category=(category,), limit=2, max_tokens=96, pace="eager"))
    device_profile = load_drafters()[device].values
    setup = replace(setup, target=target, link=LinkProfile.of_rtt(rtt_ms), device=device_profile)
    streaming = ms_per_token(setup, drafter="none")
    for recordings in (setup.recordings, always_wrong(setup.recordings)):
        assert ms_per_token(replace(setup, recordings=recordings)) <= 1.03 * streaming


def test_a_drafter_that_is_always_wrong_is_never_right() -> None:
    setup = resolve(Scenario(category=("code",), limit=2, max_tokens=48))
    result = measures(run_virtual(replace(setup, recordings=always_wrong(setup.recordings))))
    assert result["alpha"] == 0.0
    assert result["passes_per_token"] == 1.0


def test_dear_rows_hold_few_wrong_guesses() -> None:
    """A drafter that is right and then wrong costs rows; how many a pass holds follows from what they bring."""
    setup = resolve(Scenario(category=("chat",), limit=3, draft_ms=2.0, rtt_ms=0.0, pace="eager"))
    dear, free = (run_virtual(replace(setup, target=target)) for target in (ROWS_ARE_DEAR, ROWS_ARE_FREE))
    rows = [sum(record.rows for record in run.passes) / len(run.passes) for run in (dear, free)]
    assert rows[0] < 0.4 * rows[1]
    assert measures(dear)["ms_per_token"] < ms_per_token(replace(setup, target=ROWS_ARE_DEAR), drafter="none")
