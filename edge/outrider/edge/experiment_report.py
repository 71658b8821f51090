"""What an experiment's log says: each arm's metrics, arm b against arm a, and a verdict in words. It reads no files."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from outrider.edge.experiment_log import LogLine
from outrider.edge.experiment_stats import LEAST_ANSWERS, Comparison, Interval, Sample, compare, compare_shares
from outrider.shared.messages import FinishReason

ARMS = ("a", "b")
MANY_MORE = 1_000_000


@dataclass(frozen=True, slots=True)
class Metric:
    """A ratio of sums over answers: `terms` gives an answer's part and whole, None where it does not count."""

    key: str
    title: str
    terms: Callable[[LogLine], tuple[float, float] | None]

    def sample(self, lines: Sequence[LogLine]) -> Sample:
        """The metric of these answers."""
        terms = [term for line in lines if (term := self.terms(line)) is not None]
        parts, wholes = np.array(terms, np.float64).reshape(-1, 2).T
        return Sample(parts, wholes)


def _decoding(line: LogLine) -> tuple[float, float] | None:
    if line.ttft_ms is None or line.tokens < 2:
        return None
    return max(0.0, 1000 * line.seconds - line.ttft_ms), line.tokens - 1


SPEED = Metric("ms_per_token", "ms per token", _decoding)
METRICS = (
    SPEED,
    Metric("ttft_ms", "ms to first token", lambda line: None if line.ttft_ms is None else (line.ttft_ms, 1)),
    Metric("tokens_per_pass", "tokens per pass", lambda line: (line.tokens, line.passes)),
    Metric("bytes_per_token", "bytes per token", lambda line: (line.uplink_bytes + line.downlink_bytes, line.tokens)),
)


def report(name: str, lines: Sequence[LogLine], confidence: float) -> dict[str, Any]:
    """The report on the experiment `name`, whose answers are `lines`, as it is printed with --json."""
    arms = {arm: [line for line in lines if line.arm == arm] for arm in ARMS}
    compared = {
        metric.key: compare(metric.sample(arms["a"]), metric.sample(arms["b"]), confidence) for metric in METRICS
    }
    failures = compare_shares(*_failures(arms["a"]), *_failures(arms["b"]), confidence)
    speed = compared[SPEED.key]
    return {
        "experiment": name,
        "confidence": confidence,
        "arms": {arm: _arm(arms[arm]) for arm in ARMS},
        "comparison": {
            **{key: _comparison(comparison) for key, comparison in compared.items()},
            "failure_share": None if failures is None else {"difference": _interval(failures, 4)},
        },
        "distinguishable": None if speed is None else speed.is_distinguishable,
        "more_answers": None if speed is None else speed.more_answers(),
        "verdict": _too_few(arms) if speed is None else _verdict(speed, confidence),
        "notes": _notes(arms, failures),
    }


def _arm(lines: Sequence[LogLine]) -> dict[str, Any]:
    times = [line.ttft_ms for line in lines if line.ttft_ms is not None]
    values = {metric.key: _rounded(metric.sample(lines).value) for metric in METRICS}
    middle, late = (_rounded(float(np.percentile(times, q))) if times else None for q in (50, 95))
    return {
        "answers": len(lines),
        "failures": _failures(lines)[0],
        "cancelled": sum(line.finish_reason == FinishReason.CANCELLED for line in lines),
        "tokens": sum(line.tokens for line in lines),
        **values,
        "ttft_ms": {"mean": values["ttft_ms"], "p50": middle, "p95": late},
        "models": sorted({line.model for line in lines}),
        "draft_models": sorted({line.draft_model for line in lines}),
        "settings": _distinct_settings(lines),
    }


def _failures(lines: Sequence[LogLine]) -> tuple[int, int]:
    return sum(line.error is not None for line in lines), len(lines)


def _distinct_settings(lines: Sequence[LogLine]) -> list[dict[str, Any]]:
    return [dict(settings) for settings in dict.fromkeys(tuple(sorted(line.settings.items())) for line in lines)]


def _comparison(comparison: Comparison | None) -> dict[str, Any] | None:
    if comparison is None:
        return None
    return {"ratio": _interval(comparison.ratio, 4), "difference": _interval(comparison.difference, 4)}


def _interval(interval: Interval, digits: int) -> dict[str, float]:
    values = dataclasses.asdict(interval)
    return {key: round(values[key], digits) for key in ("estimate", "low", "high")}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def _verdict(speed: Comparison, confidence: float) -> str:
    ratio = speed.ratio
    seen = (
        f"arm b takes {ratio.estimate:.3f} times arm a's time per token"
        f" ({100 * confidence:.4g}% interval {ratio.low:.3f} to {ratio.high:.3f})"
    )
    more = speed.more_answers()
    if more == 0:
        return f"{seen}: the arms are distinguishable."
    if more is None:
        return f"{seen}: no difference is seen."
    about = "more than a million" if more > MANY_MORE else f"about {_two_digits(more)}"
    return f"{seen}: not distinguishable. If the difference is as large as seen, {about} more answers would show it."


def _two_digits(count: int) -> int:
    """The count rounded to two leading digits: it is an estimate."""
    return int(float(f"{count:.1e}"))


def _too_few(arms: dict[str, list[LogLine]]) -> str:
    counts = " and ".join(f"arm {arm} has {SPEED.sample(lines).count}" for arm, lines in arms.items())
    return f"no interval: it needs {LEAST_ANSWERS} answers of more than one token in each arm; {counts}."


def _notes(arms: dict[str, list[LogLine]], failures: Interval | None) -> list[str]:
    """What a reader has to know before believing the numbers."""
    notes: list[str] = []
    if failures is not None and not failures.low <= 0.0 <= failures.high:
        which = "b" if failures.estimate > 0 else "a"
        notes.append(f"arm {which} fails more often: weigh that before its speed.")
    for arm, lines in arms.items():
        count = len({(line.draft_model, *sorted(line.settings.items())) for line in lines})
        if count > 1:
            notes.append(f"arm {arm} changed during the experiment: {count} different settings under one name.")
    models = {line.model for lines in arms.values() for line in lines}
    if len(models) > 1:
        notes.append(f"answers come from different target models: {', '.join(sorted(models))}.")
    return notes
