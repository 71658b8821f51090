"""A ranking as JSON and as text."""

from __future__ import annotations

from typing import Any

from outrider.harness.drafter_ranking.ranking import Ranked, Ranking, Request, ratio
from outrider.harness.drafter_ranking.rule import WANTED_RATIO, Verdict
from outrider.shared.errors import OutriderError, Reason

HEADINGS = ("", "MB", "file", "weights", "right", "of two", "draft ms", "ms/token", "speed-up", "accel. ms", "flags")


def ranking_json(made: Ranking, request: Request) -> dict[str, Any]:
    """All that was asked for, measured and concluded; with an `error` beside it where no candidate can draft."""
    setup, verdict = made.setup, made.verdict
    sampling = request.seeded[0][1]
    answer: dict[str, Any] = {
        "target": {
            "name": request.target,
            "file_bytes": made.target_size.file_bytes,
            "parameters": made.target_size.parameters,
        },
        "prompts": [prompt.id for prompt, _ in request.seeded],
        "tokens": made.tokens,
        "sampling": sampling.model_dump(mode="json", exclude={"stop"}),
        "scenario": setup
        and {
            "target_ms": setup.target.base_ms,
            "rtt_ms": setup.link.rtt_ms,
            "link": setup.link.model_dump(exclude_defaults=True),
            "sessions": setup.sessions,
            "branch": setup.drafting.branch,
        },
        "streaming": made.streaming,
        "candidates": [_ranked_json(entry, made) for entry in made.ranked],
        "refused": [
            {
                "draft": entry.candidate.draft,
                "name": entry.candidate.name,
                "reason": entry.error.reason.value,
                "message": entry.error.message,
            }
            for entry in made.refused
        ],
        "rule": verdict and _rule_json(verdict),
    }
    if verdict is None:
        error = none_can_draft(request)
        answer["error"] = {"reason": error.reason.value, "message": error.message}
    return answer


def ranking_text(made: Ranking, request: Request) -> list[str]:
    """A table, what was refused, and the verdict on the rule."""
    lines: list[str] = []
    if made.setup is not None and made.streaming is not None:
        lines += [
            f"{len(request.seeded)} prompts, {made.tokens} tokens of {request.target}'s own answers. Played for a "
            f"target of {made.setup.target.base_ms:g} ms a pass at {made.setup.link.rtt_ms:g} ms round trip, where "
            f"plain streaming takes {made.streaming['ms_per_token']:.1f} ms a token and "
            f"{made.streaming['accelerator_ms_per_token']:.1f} ms of the accelerator.",
            "",
            *_table([HEADINGS, *(_row(entry, made) for entry in made.ranked)]),
        ]
    if made.refused:
        lines += ["", "Cannot draft for it:"]
        lines += [
            f"  {entry.candidate.name}: {entry.error.reason.value}: {entry.error.message}" for entry in made.refused
        ]
    if made.verdict is not None:
        lines += ["", made.verdict.sentence]
    return lines


def none_can_draft(request: Request) -> OutriderError:
    """What the command ends with where no candidate is left."""
    return OutriderError(Reason.DRAFTER_UNUSABLE, f"None of the candidates can draft for {request.target}.")


def _ranked_json(entry: Ranked, made: Ranking) -> dict[str, Any]:
    assert made.streaming is not None, "something was ranked"
    best = entry.best
    return {
        "draft": entry.candidate.draft,
        "name": entry.candidate.name,
        "file_bytes": entry.size.file_bytes,
        "file_ratio": _rounded(ratio(made.target_size.file_bytes, entry.size.file_bytes)),
        "parameters": entry.size.parameters,
        "parameter_ratio": _rounded(ratio(made.target_size.parameters, entry.size.parameters)),
        "acceptance": round(entry.acceptance, 4),
        "acceptance_of_two": round(entry.acceptance_of_two, 4),
        "acceptance_by_category": {
            category: {"first": round(first, 4), "of_two": round(two, 4)}
            for category, (first, two) in entry.by_category.items()
        },
        "draft_ms": round(entry.speed.token_ms, 3),
        "prompt_token_ms": round(entry.speed.prompt_token_ms, 3),
        "draft_ms_p95": _rounded(entry.speed.slowest_ms),
        "draft_ms_source": "given" if entry.speed.guesses is None else "measured",
        "guesses_timed": entry.speed.guesses,
        "ms_per_token": entry.ms_per_token,
        "speedup": round(made.streaming["ms_per_token"] / entry.ms_per_token, 4),
        "accelerator_ms_per_token": best.result["accelerator_ms_per_token"],
        "flags": entry.flags,
        "best": {
            "control": best.control,
            "gamma": best.gamma,
            "branch": entry.branch,
            "pace": best.pace,
            **best.result,
        },
    }


def _rule_json(verdict: Verdict) -> dict[str, Any]:
    pick = verdict.pick
    return {
        "wanted_ratio": WANTED_RATIO,
        "pick": None if pick is None else pick.name,
        "pick_ratio": None if pick is None else _rounded(pick.ratio),
        "near": verdict.is_near,
        "fastest": verdict.fastest.name,
        "slower_by": _rounded(verdict.slower_by),
        "held": verdict.held,
        "sentence": verdict.sentence,
    }


def _row(entry: Ranked, made: Ranking) -> tuple[str, ...]:
    assert made.streaming is not None, "something was ranked"
    size, target = entry.size, made.target_size
    given = " given" if entry.speed.guesses is None else ""
    return (
        entry.candidate.name,
        "-" if size.file_bytes is None else f"{size.file_bytes / 1e6:.0f}",
        _one_to(ratio(target.file_bytes, size.file_bytes)),
        _one_to(ratio(target.parameters, size.parameters)),
        f"{entry.acceptance:.3f}",
        f"{entry.acceptance_of_two:.3f}",
        f"{entry.speed.token_ms:.1f}{given}",
        f"{entry.ms_per_token:.1f}",
        f"{made.streaming['ms_per_token'] / entry.ms_per_token:.2f}",
        f"{entry.best.result['accelerator_ms_per_token']:.1f}",
        entry.flags,
    )


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    last = len(HEADINGS) - 1
    return [
        "  ".join(
            cell.rjust(width) if 0 < column < last else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _one_to(value: float | None) -> str:
    return "-" if value is None else f"1:{value:.1f}"


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
