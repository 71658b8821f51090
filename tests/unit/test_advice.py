"""The sentence of advice: one case for each, and what it must name."""

from __future__ import annotations

import pytest

from outrider.edge.advice import Measured, advise
from outrider.edge.profile import Split

FAST = Split(draft_only_s=1.5, draft_and_wait_s=2.0, pass_only_s=5.0, queue_only_s=0.2, link_only_s=1.0, idle_s=0.3)


def measured(split: Split = FAST, **changes: object) -> Measured:
    """An answer of 100 tokens in 11 s that would have taken 21 s without guesses, with `changes`."""
    known: dict[str, object] = {
        "seconds": split.whole_s + 1, "prompt_s": 1.0, "tokens": 100, "passes": 25, "drafted": 125, "alpha": 0.8,
        "guess_ms": 30.0, "pass_ms": 200.0, "streaming_ms": 200.0, "has_drafter": True, "is_eager": False,
    }  # fmt: skip
    return Measured(split, **(known | changes))  # type: ignore[arg-type]


LINK = Split(draft_only_s=2.0, pass_only_s=3.0, link_only_s=5.0)
QUEUE = Split(draft_only_s=1.0, pass_only_s=4.0, queue_only_s=4.0, link_only_s=1.0)
DRAFT = Split(draft_only_s=6.0, pass_only_s=3.0, link_only_s=1.0)
PASS = Split(draft_only_s=1.0, draft_and_wait_s=2.0, pass_only_s=6.0, link_only_s=1.0)


def says(given: Measured, *named: str) -> tuple[Measured, tuple[str, ...]]:
    return given, named


CASES = {
    "fine": says(measured(), "1.91 times as fast", "11.00 s against an estimated 21.00 s", "4.0 tokens a pass"),
    "far, patient": says(measured(LINK), "1.91 times", "50% of the time is waiting for the link", "--pace eager"),
    "far, eager": says(measured(LINK, is_eager=True), "50%", "only a nearer verifier"),
    "full, eager": says(measured(QUEUE, is_eager=True), "40% of the time is the verifier's queue", "--pace patient"),
    "full, patient": says(measured(QUEUE), "queue", "larger verifier"),
    "slow drafter": says(
        measured(DRAFT, guess_ms=90.0, streaming_ms=90.0),
        "No faster than", "60% of the time is drafting", "0.45 of a pass, too slow", "smaller --drafter or lookup",
    ),
    "dear drafter with a gain": says(measured(DRAFT, guess_ms=90.0), "1.91 times", "drafting", "smaller --drafter"),
    "cheap drafter with a gain": says(measured(DRAFT, guess_ms=30.0), "1.91 times", "0.15 of a pass; the guesses"),
    "wrong guesses": says(measured(alpha=0.31, streaming_ms=100.0), "No faster than", "only 31%", "another --drafter"),
    "wrong guesses that help": says(measured(alpha=0.31), "1.91 times", "4.0 tokens a pass"),
    "dear rows": says(
        measured(PASS, pass_ms=300.0, streaming_ms=60.0), "No faster than", "5.0 times as long", "accelerator",
    ),
    "no faster for passes": says(
        measured(PASS, streaming_ms=100.0, pass_ms=100.0), "No faster", "60% of the time is", "target allows",
    ),
    "no faster, nothing stands out": says(
        measured(Split(3.0, 0.0, 3.0, 1.0, 3.0, 0.0), streaming_ms=100.0, pass_ms=100.0), "No faster", "stands out",
    ),
    "streaming not known": says(measured(streaming_ms=None), "50% of the time is the target's passes"),
    "short": says(measured(passes=3), "Too short to tell: 3 passes"),
    "no drafter": says(measured(drafted=0, has_drafter=False), "Nothing was guessed", "50% of it", "target allows"),
    "no drafter, far, patient": says(measured(LINK, drafted=0, has_drafter=False), "50%", "--pace eager"),
    "no drafter, far, eager": says(
        measured(LINK, drafted=0, has_drafter=False, is_eager=True), "50% for the link", "target allows",
    ),
    "drafter never in time": says(measured(drafted=0, guess_ms=None), "No guess was sent", "smaller --drafter"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_the_advice_names_the_cause_and_what_to_do(case: str) -> None:
    given, named = CASES[case]
    text = advise(given)
    for words in named:
        assert words in text, text
    assert not text[0].islower()
    assert text.endswith(".")
    assert text.count(". ") == 0, "one sentence"


def test_a_gain_is_only_claimed_where_there_is_one() -> None:
    for streaming_ms in range(20, 300, 7):
        given = measured(streaming_ms=float(streaming_ms))
        assert given.gain is not None
        assert ("times as fast" in advise(given)) == (given.gain >= 1.03)
        assert ("No faster than" in advise(given)) == (given.gain < 1.03)


def test_every_cause_names_a_part_that_is_there() -> None:
    """An answer of passes alone gets no advice on link, queue or drafter's speed, gain or not."""
    passes_only = Split(pass_only_s=10.0)
    for streaming_ms in (50.0, 100.0, 300.0):
        text = advise(measured(passes_only, streaming_ms=streaming_ms, pass_ms=100.0))
        assert "link;" not in text
        assert "smaller" not in text


def test_the_ratio_is_of_a_guess_over_a_pass() -> None:
    assert measured(guess_ms=30.0, pass_ms=200.0).draft_verify_ratio == pytest.approx(0.15)
    assert measured(guess_ms=None).draft_verify_ratio is None
    assert measured(pass_ms=None).draft_verify_ratio is None
