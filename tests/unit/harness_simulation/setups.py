"""Setups for tests: a pair that exists as numbers, round times, and a link of nothing but delay."""

from __future__ import annotations

from outrider.edge.drafting import Drafting
from outrider.harness.links import LinkProfile
from outrider.harness.profiles import DrafterProfile, TargetProfile
from outrider.harness.simulation.setup import Setup
from outrider.harness.simulation.synthetic import synthetic_recordings

PASS_MS = 40.0
STEP_MS = 8.0


def make_setup(
    acceptance: float = 0.8,
    *,
    rtt_ms: float = 20.0,
    answers: int = 2,
    tokens: int = 40,
    seed: int = 1,
    sessions: int = 1,
    gamma: int = 4,
    pace: str = "patient",
    drafter: str = "recorded",
    session_ms: float = 0.0,
    row_ms: float = 0.0,
) -> Setup:
    """Passes of 40 ms whatever they hold (unless said otherwise), draft steps of 8 ms, prompts for nothing, and the
    fixed policy.
    """
    return Setup(
        recordings=synthetic_recordings(acceptance, answers=answers, tokens=tokens, seed=seed),
        target=TargetProfile(base_ms=PASS_MS, row_ms=row_ms, free_rows=0, session_ms=session_ms),
        cloud_drafter=TargetProfile(base_ms=2.5, row_ms=0, free_rows=0, session_ms=0),
        device=DrafterProfile(token_ms=STEP_MS, prompt_token_ms=0),
        link=LinkProfile.of_rtt(rtt_ms),
        drafting=Drafting(drafter=drafter, control="fixed", gamma=gamma, pace=pace),
        sessions=sessions,
        seed=seed,
    )
