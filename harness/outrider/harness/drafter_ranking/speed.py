"""How fast a draft model is on this machine, through the product's own drafter: one guess at a time along answers that
are known, as while decoding.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from outrider.edge.drafters.base import Drafter, propose_one
from outrider.edge.drafters.tiny import TinyDrafter
from outrider.harness.recording.format import Recording
from outrider.harness.recording.recording_target import TINY
from outrider.shared.models.store import default_store
from outrider.shared.sampling.choose import Chooser

# One stream of the drafter's four warms up; an answer in a stream of its own has its whole prompt read.
ANSWERS = 3
STEPS = 48
WARM_UP_STEPS = 4


@dataclass(frozen=True, slots=True)
class Speed:
    """Median milliseconds of a guess, and of each further token of a prompt. `guesses` is how many were timed, None
    where the times were given, and `slowest_ms` their 95th percentile.
    """

    token_ms: float
    prompt_token_ms: float
    guesses: int | None = None
    slowest_ms: float | None = None


def measure_speed(draft: str, recordings: Sequence[Recording], context_length: int) -> Speed:
    """Time the draft model along the first recorded answers; raises what loading raises."""
    return asyncio.run(_measure(_load(draft, context_length), recordings[:ANSWERS]))


async def _measure(drafter: Drafter, recordings: Sequence[Recording]) -> Speed:
    try:
        warm_up = recordings[0]
        await _open(drafter, warm_up, warm_up.prompt_ids[::-1], WARM_UP_STEPS)
        steps_ms: list[float] = []
        prompts: list[tuple[int, float]] = []
        for recording in recordings:
            times = await _open(drafter, recording, recording.prompt_ids, STEPS)
            prompts.append((len(recording.prompt_ids), times[0]))
            steps_ms += times[1:]
        # An answer of one token has no step after its prompt.
        token_ms = median(steps_ms or [ms / count for count, ms in prompts])
        per_token = [max(0.0, ms - token_ms) / (count - 1) for count, ms in prompts if count > 1]
        return Speed(token_ms, median(per_token or [token_ms]), len(steps_ms), _percentile(steps_ms, 0.95))
    finally:
        await drafter.close()


async def _open(drafter: Drafter, recording: Recording, prompt_ids: Sequence[int], steps: int) -> list[float]:
    """Milliseconds of the first guesses along an answer. The session stays open: the next one gets a fresh stream."""
    header = recording.header
    session = drafter.open(prompt_ids, Chooser(header.sampling, recording.seed, prompt_ids, header.vocabulary.size))
    times: list[float] = []
    for length in range(min(len(recording.answer_ids), steps)):
        began = time.perf_counter()
        await propose_one(session, recording.answer_ids[:length], 1)
        times.append(1000 * (time.perf_counter() - began))
    return times


def _load(draft: str, context_length: int) -> Drafter:
    kind, _, rest = draft.partition(":")
    if kind == TINY:
        return TinyDrafter(float(rest))
    from outrider.edge.drafters.llama_cpp import LlamaDrafter  # noqa: PLC0415 - an extra brings llama.cpp

    return LlamaDrafter(default_store().resolve(draft), name=draft, context_length=context_length)


def _percentile(values: Sequence[float], share: float) -> float | None:
    return sorted(values)[int(share * (len(values) - 1))] if values else None
