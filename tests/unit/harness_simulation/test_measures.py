"""Measures of runs written down by hand."""

from __future__ import annotations

from collections import Counter

import pytest

from outrider.edge.stats import AnswerStats
from outrider.harness.simulation.measures import AnswerTrace, Run, measures
from outrider.harness.usage import DraftRecord, PassRecord


def stats(passes: int, walked: int, checked: int, histogram: dict[int, int], up: int, down: int) -> AnswerStats:
    made = AnswerStats(passes=passes, walked=walked, checked=checked, uplink_bytes=up, downlink_bytes=down)
    made.accepted_histogram = Counter(histogram)
    return made


RUN = Run(
    answers=(
        AnswerTrace("a", 1.0, ((1.1, 2), (1.3, 3), (1.4, 1)), 4, stats(3, 4, 5, {0: 1, 2: 2}, 60, 30)),
        AnswerTrace("b", 2.0, ((2.3, 1), (2.5, 3)), 2, stats(2, 2, 5, {0: 1, 2: 1}, 20, 30)),
    ),
    passes=(PassRecord(0, 0.05, 9, 1, 0), PassRecord(1, 1.04, 4, 2, 2, draft_s=0.02)),
    guesses=(DraftRecord(0, 0.5, reads_prompt=True), *(DraftRecord(1, 1.01),) * 7),
    other_tokens=2,
    other_accepted=1,
)


def test_ratios_are_of_sums_over_answers() -> None:
    result = measures(RUN)
    assert result["answers"] == 2
    assert result["tokens"] == 10
    # 300 ms for the 4 tokens after the first update, and 200 ms for 3.
    assert result["ms_per_token"] == pytest.approx(500 / 7)
    assert result["ttft_ms"] == pytest.approx(200)
    assert result["passes_per_token"] == 0.5
    assert result["tokens_per_pass"] == 2.0
    assert result["bytes_up_per_token"] == 8.0
    assert result["bytes_down_per_token"] == 6.0
    assert result["alpha"] == 0.6
    assert result["accepted_histogram"] == [2, 0, 3]


def test_hardware_time_is_shared_by_all_tokens_also_of_answers_that_only_keep_the_load_up() -> None:
    result = measures(RUN)
    assert result["target_ms_per_token"] == pytest.approx(90 / 12)
    assert result["accelerator_ms_per_token"] == pytest.approx(110 / 12)
    # Eight guesses of 10 ms, one of which also read a prompt; seven became text.
    assert result["draft_ms_wasted_per_token"] == pytest.approx(10 / 12, abs=1e-6)


def test_gaps_are_between_visible_updates() -> None:
    result = measures(RUN)
    assert result["gap_ms"]["p50"] == pytest.approx(200)
    assert result["gap_ms"]["p99"] == pytest.approx(200)


def test_what_there_is_nothing_of_is_null() -> None:
    result = measures(Run((AnswerTrace("a", 0.0, ((0.1, 1),)),), (), ()))
    assert result["ms_per_token"] is None
    assert result["gap_ms"] == {"p50": None, "p95": None, "p99": None}
    assert result["alpha"] is None
    assert result["tokens_per_pass"] is None
    assert result["accepted_histogram"] == []
