"""Made-up results of plausible size for the report: streaming takes the target's time whatever the round trip, waiting
grows with it. No simulation: a closed form.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

Json = dict[str, Any]

ALPHA = 0.8


def expected_tokens(gamma: int) -> float:
    return float((1 - ALPHA ** (gamma + 1)) / (1 - ALPHA))


def figures(ms_per_token: float | None, accelerator: float, tokens_per_pass: float | None, **more: Any) -> Json:
    settings = {"seed": 7, "clock": "virtual", "control": "ratio", "gamma": 5, "recordings": "greedy"}
    passes = 1 / tokens_per_pass if tokens_per_pass else 0.0
    gap = None if ms_per_token is None else ms_per_token * (tokens_per_pass or 1)
    return {
        "ms_per_token": ms_per_token,
        "ttft_ms": 130.25,
        "gap_ms": {"p50": gap, "p95": gap and gap * 1.4, "p99": gap and gap * 2.1},
        "passes_per_token": passes,
        "tokens_per_pass": tokens_per_pass,
        "target_ms_per_token": accelerator,
        "accelerator_ms_per_token": accelerator,
        "draft_ms_wasted_per_token": 2.375,
        "bytes_up_per_token": 6.5,
        "bytes_down_per_token": 11.25,
        "alpha": ALPHA,
        "accepted_histogram": [120, 90, 75, 60, 51, 204],
        "sessions": 1,
        "answers": 16,
        "tokens": 2000,
        "settings": settings,
        **more,
    }


def result(rtt_ms: float, draft_ms: float, target_ms: float, gamma: int = 5, sessions: int = 1) -> Json:
    load = 1 + 0.04 * (sessions - 1)
    step = target_ms * load
    waiting = {g: (g * draft_ms + rtt_ms + step) / expected_tokens(g) for g in (1, 2, 3, 4, 5, 6, 8)}
    best = min(waiting, key=waiting.__getitem__)
    per_pass = expected_tokens(gamma)
    # Half of the round trip is hidden behind drafting.
    own = max(draft_ms * 1.25, (step + 0.5 * rtt_ms + draft_ms) / per_pass)
    at_zero = max(draft_ms * 1.25, (step + draft_ms) / per_pass)
    settings = {"rtt_ms": rtt_ms, "draft_ms": draft_ms, "target_ms": target_ms, "control": "ratio", "gamma": gamma}
    settings |= {"pace": "eager", "link": "custom", "category": "code", "recordings": "greedy", "seed": 7}
    settings |= {"clock": "virtual"}
    share = step / sessions
    count = {"sessions": sessions}
    baselines = {
        "streaming": figures(step, share, 1.0, bytes_up_per_token=0.0, bytes_down_per_token=9.5, **count),
        "colocated": figures(
            (step + 4 * 3.0) / expected_tokens(4),
            (share + 4 * 3.0) / expected_tokens(4),
            expected_tokens(4),
            **count,
            settings={**settings, "gamma": 4},
        ),
        "batched": figures(step * 1.1, share * 0.9, 1.0, **count),
        "stop_and_wait": figures(
            waiting[best],
            share / expected_tokens(best),
            expected_tokens(best),
            **count,
            settings={**settings, "gamma": best},
            accepted_histogram=[200, 140, 110, 90][: best + 1],
        ),
        "draft_only": figures(draft_ms, 0.0, None, passes_per_token=0.0, accepted_histogram=[], **count),
        "rtt_zero": figures(at_zero, share / per_pass, per_pass, **count),
        "oracle": figures(own * 0.8, share / (per_pass * 1.2), per_pass * 1.2, **count),
    }
    return {**figures(own, share / per_pass, per_pass, **count, settings=settings), "baselines": baselines}


def grid(**axes: Sequence[float]) -> list[Json]:
    """Lines of a sweep over these axes: rtt_ms, draft_ms, target_ms, gamma, sessions."""
    base: dict[str, float] = {"rtt_ms": 20.0, "draft_ms": 8.0, "target_ms": 40.0}
    lines = []
    for values in product(*axes.values()):
        cell = dict(zip(axes, values, strict=True))
        lines.append({"cell": cell, "result": result(**{**base, **cell})})  # type: ignore[arg-type]
    return lines


HEADER: Json = {
    "format": "outrider-sweep",
    "version": 1,
    "scenario": {"rtt_ms": 20.0, "draft_ms": 8.0, "target_ms": 40.0, "gamma": 5, "sessions": 1, "link": "custom"},
}


def write_sweep(path: Path, lines: Sequence[Json], header: Json = HEADER) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in (header, *lines)), "utf-8")
    return path


def timeline(answer_ms: float = 4000.0) -> Json:
    """An answer of rounds of 80 ms: three guesses of 8 ms, up, a pass, down, and a commit."""
    rounds = [80.0 * index for index in range(int(answer_ms / 80))]
    words = [" def", " merge", "(left", ",", " right", "):\n"]
    return {
        "format": "outrider-timeline",
        "version": 1,
        "prompt_id": "code-merge",
        "settings": {"rtt_ms": 20.0, "draft_ms": 8.0, "target_ms": 40.0},
        "drafts": [{"start_ms": at + 8 * i, "end_ms": at + 8 * i + 8} for at in rounds for i in range(9)],
        "flights": [
            flight
            for at in rounds
            for flight in (
                {"direction": "up", "bytes": 14, "sent_ms": at + 8, "arrives_ms": at + 18},
                {"direction": "up", "bytes": 9, "sent_ms": at + 16, "arrives_ms": at + 26},
                {"direction": "up", "bytes": 9, "sent_ms": at + 24, "arrives_ms": at + 34},
                {"direction": "down", "bytes": 21, "sent_ms": at + 70, "arrives_ms": at + 80},
            )
        ],
        "passes": [
            {"start_ms": at + 30, "end_ms": at + 70, "rows": 4, "accepted": index % 4}
            for index, at in enumerate(rounds)
        ],
        "commits": [{"at_ms": at + 80, "tokens": words[: index % 4 + 1]} for index, at in enumerate(rounds)],
    }
