"""`--profile`: where the time of an answer went, as a table for people and as JSON, with one sentence of advice."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.box import ROUNDED
from rich.console import Console
from rich.table import Table

from outrider.edge.advice import CHEAP_RATIO, DEAR_RATIO, Measured, advise
from outrider.edge.agent import Agent, AnswerOptions
from outrider.edge.chunks import Result
from outrider.edge.drafting import NO_DRAFTER
from outrider.edge.profile import Split
from outrider.shared.errors import OutriderError
from outrider.shared.sampling.options import Sampling

logger = logging.getLogger(__name__)

# Tokens that are decoded once more, without guesses, to see how fast the verifier alone is.
PROBE_TOKENS = 16
LEAST_PROBE_TOKENS = 4


@dataclass(frozen=True, slots=True)
class ProfileReport:
    """What `--profile` says of one answer. `split` is of all of it; `totals_ms` are the busy times of draft, pass,
    queue and link.
    """

    measured: Measured
    split: Split
    totals_ms: dict[str, float]
    step_s: float | None

    def json(self) -> dict[str, Any]:
        """Milliseconds, but where a key says otherwise."""
        split, measured = self.split, self.measured
        return {
            "parts_ms": {
                "draft_only": _milliseconds(split.draft_only_s),
                "draft_and_wait": _milliseconds(split.draft_and_wait_s),
                "pass_only": _milliseconds(split.pass_only_s),
                "queue_only": _milliseconds(split.queue_only_s),
                "link_only": _milliseconds(split.link_only_s),
                "idle": _milliseconds(split.idle_s),
            },
            **self.totals_ms,
            "draft_step_ms": None if self.step_s is None else _milliseconds(self.step_s),
            "draft_ms_per_guess": _rounded(measured.guess_ms),
            "mean_pass_ms": _rounded(measured.pass_ms),
            "draft_verify_ratio": _rounded(measured.draft_verify_ratio),
            "streaming_ms_per_token": _rounded(measured.streaming_ms),
            "streaming_seconds": _rounded(measured.streaming_s),
            "gain": _rounded(measured.gain),
            "advice": advise(measured),
        }

    def print(self, console: Console) -> None:
        """As a table, plain where the console is no terminal."""
        table = Table(box=ROUNDED if console.is_terminal else None, pad_edge=console.is_terminal)
        for heading in ("where the time went", "ms", "share", "in all, ms"):
            table.add_column(heading, justify="left" if heading == "where the time went" else "right")
        split, wall_s = self.split, self.measured.seconds
        for name, part_s, total in (
            ("drafting only", split.draft_only_s, "draft_ms"),
            ("drafting while waiting", split.draft_and_wait_s, None),
            ("waiting for a pass", split.pass_only_s, "pass_ms"),
            ("waiting in the queue", split.queue_only_s, "queue_ms"),
            ("waiting for the link", split.link_only_s, "link_ms"),
            ("idle", split.idle_s, None),
            ("the answer", wall_s, None),
        ):
            share = part_s / wall_s if wall_s else 0.0
            in_all = "" if total is None else f"{self.totals_ms[total]:.1f}"
            table.add_row(name, f"{part_s * 1000:.1f}", f"{share:.0%}", in_all)
        console.print(table)
        for line in (self._ratio_line(), advise(self.measured)):
            console.print(line, highlight=False, soft_wrap=not console.is_terminal)

    def _ratio_line(self) -> str:
        measured = self.measured
        if measured.guess_ms is None or measured.pass_ms is None or measured.draft_verify_ratio is None:
            return "Draft over verify: not known, as no model drafted."
        return (
            f"Draft over verify: {measured.guess_ms:.1f} ms a guess / {measured.pass_ms:.1f} ms a pass ="
            f" {measured.draft_verify_ratio:.2f} (below {CHEAP_RATIO} drafting is cheap, above {DEAR_RATIO} too slow to"
            " wait for)"
        )


async def profile_report(agent: Agent, prompt_ids: Sequence[int], sampling: Sampling, result: Result) -> ProfileReport:
    """What there is to say of `result`. Asks the verifier for the answer's first tokens once more, without guesses."""
    stats, profile = result.stats, result.profile
    drafted = stats["drafted"]
    streaming_ms = await _streaming_ms(agent, prompt_ids, sampling, result) if drafted else None
    step_s, pass_s = profile.step_s, profile.pass_s
    measured = Measured(
        split=profile.split_after_first(),
        seconds=profile.wall_s,
        prompt_s=profile.prompt_s,
        tokens=len(result.committed_ids),
        passes=stats["passes"],
        drafted=drafted,
        alpha=stats["alpha"],
        guess_ms=1000 * step_s * profile.steps / drafted if drafted and step_s is not None else None,
        pass_ms=None if pass_s is None else 1000 * pass_s,
        streaming_ms=streaming_ms,
        has_drafter=stats["draft_model"] != NO_DRAFTER,
        is_eager=stats["settings"]["pace"] == "eager",
    )
    totals_ms = {key: stats[key] for key in ("draft_ms", "pass_ms", "queue_ms", "link_ms")}
    return ProfileReport(measured, profile.split(), totals_ms, step_s)


async def _streaming_ms(agent: Agent, prompt_ids: Sequence[int], sampling: Sampling, result: Result) -> float | None:
    """Milliseconds a token takes without guesses; None if that cannot be found out."""
    count = min(PROBE_TOKENS, len(result.committed_ids))
    if count < LEAST_PROBE_TOKENS:
        return None
    # The same seed gives the same tokens: none of the first ones ends the answer.
    again = sampling.model_copy(update={"max_tokens": count, "seed": result.stats["seed"], "stop": ()})
    try:
        probe: Result | None = None
        async for chunk in agent.streaming().stream_ids(prompt_ids, again, AnswerOptions(prefix_of=result.session_id)):
            probe = chunk.result
    except OutriderError as error:
        logger.warning("cannot compare with streaming: %s", error.message)
        return None
    if probe is None or len(probe.committed_ids) < count:
        return None
    return 1000 * probe.profile.split_after_first().whole_s / (count - 1)


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 3)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
