"""From what happened in a run to the measures it is judged by. It knows nothing of how the run was made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from outrider.edge.stats import AnswerStats
from outrider.harness.usage import DraftRecord, PassRecord

DIGITS = 6


@dataclass(frozen=True, slots=True)
class AnswerTrace:
    """One answer as its reader saw it: when it was asked for, and the time and number of tokens of each visible
    update, stop id included; times in seconds of the loop's clock. `accepted` counts tokens that had been sent as
    guesses.
    """

    prompt_id: str
    asked_s: float
    updates: tuple[tuple[float, int], ...]
    accepted: int = 0
    stats: AnswerStats = field(default_factory=AnswerStats)

    @property
    def token_count(self) -> int:
        """Tokens of the answer."""
        return sum(count for _, count in self.updates)


@dataclass(frozen=True, slots=True)
class Run:
    """What a run left behind. `answers` are those to be judged. Passes and guesses are all that happened, also for
    `other_tokens`: tokens of answers that only kept the load up.
    """

    answers: tuple[AnswerTrace, ...]
    passes: Sequence[PassRecord]
    guesses: Sequence[DraftRecord]
    other_tokens: int = 0
    other_accepted: int = 0


def measures(run: Run) -> dict[str, Any]:
    """The keys of the contract for one run; see docs/harness.md for what each counts.

    Ratios are of sums over the answers; milliseconds and bytes. None where there is nothing to divide by.
    """
    answers = run.answers
    tokens = sum(answer.token_count for answer in answers)
    # What comes with the first update is there when the clock of this measure starts.
    spans = [(a.updates[-1][0] - a.updates[0][0], a.token_count - a.updates[0][1]) for a in answers]
    all_tokens = tokens + run.other_tokens
    target_s = sum(record.ended_s - record.began_s for record in run.passes)
    cloud_draft_s = sum(record.draft_s for record in run.passes)
    stats = [answer.stats for answer in answers]
    passes = sum(entry.passes for entry in stats)
    histogram = sum((entry.accepted_histogram for entry in stats), Counter[int]())
    return {
        "ms_per_token": _ratio(1000 * sum(span for span, _ in spans), sum(count for _, count in spans)),
        "ttft_ms": _ratio(1000 * sum(answer.updates[0][0] - answer.asked_s for answer in answers), len(answers)),
        "gap_ms": _percentiles(_gaps_ms(answers)),
        "passes_per_token": _ratio(passes, tokens),
        "tokens_per_pass": _ratio(tokens, passes),
        "target_ms_per_token": _ratio(1000 * target_s, all_tokens),
        "accelerator_ms_per_token": _ratio(1000 * (target_s + cloud_draft_s), all_tokens),
        "draft_ms_wasted_per_token": _ratio(1000 * _wasted_s(run), all_tokens),
        "bytes_up_per_token": _ratio(sum(entry.uplink_bytes for entry in stats), tokens),
        "bytes_down_per_token": _ratio(sum(entry.downlink_bytes for entry in stats), tokens),
        "alpha": _ratio(sum(entry.walked for entry in stats), sum(entry.checked for entry in stats)),
        "accepted_histogram": [histogram[count] for count in range(max(histogram, default=-1) + 1)],
        "answers": len(answers),
        "tokens": tokens,
    }


def _gaps_ms(answers: Iterable[AnswerTrace]) -> list[float]:
    """Milliseconds between one visible update and the next."""
    times = ([time_s for time_s, _ in answer.updates] for answer in answers)
    return [1000 * (after - before) for series in times for before, after in pairwise(series)]


def _percentiles(gaps_ms: Sequence[float]) -> dict[str, float | None]:
    values = np.percentile(gaps_ms, (50, 95, 99)).tolist() if gaps_ms else (None, None, None)
    return {
        name: None if value is None else round(value, DIGITS)
        for name, value in zip(("p50", "p95", "p99"), values, strict=True)
    }


def _wasted_s(run: Run) -> float:
    """Drafting time of guesses that did not become text; one guess makes at most one token. Reading a prompt is no
    waste, so what a guess takes is told by those that did not.
    """
    times_s = [record.ended_s - record.began_s for record in run.guesses if not record.reads_prompt]
    if not times_s:
        return 0.0
    useful = sum(answer.accepted for answer in run.answers) + run.other_accepted
    return sum(times_s) / len(times_s) * max(0, len(run.guesses) - useful)


def _ratio(part: float, whole: float) -> float | None:
    return round(part / whole, DIGITS) if whole else None
