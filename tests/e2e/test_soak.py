"""A short soak: churn on a verifier process leaves it as small as it was, and a soak of one that leaks says so. The
long one is `scripts/soak`.
"""

from __future__ import annotations

import sys

from outrider.harness.soak.run import SoakConfig, soak


async def test_churn_changes_no_answer_and_leaves_nothing_behind() -> None:
    verdict = await soak(SoakConfig(seconds=120))
    print(f"\n{verdict}", file=sys.stderr)
    assert not verdict.failures
    # Each kind of thing has really happened, in the middle of answers where that is meant.
    few = [word for word in ("cuts", "half-open cuts", "resumed", "vanished", "cancelled") if verdict.counts[word] < 5]
    assert not few, verdict.counts
    assert verdict.counts["further streams"] >= 5
    assert verdict.most.parked_slots > 0


async def test_a_verifier_that_lets_no_session_go_is_found_out() -> None:
    verdict = await soak(SoakConfig(seconds=3, workers=4, parked_s=1, quiet_s=2, leak="parked"))
    assert any(text.startswith("the verifier is not empty 3 s after") for text in verdict.failures), verdict.failures
