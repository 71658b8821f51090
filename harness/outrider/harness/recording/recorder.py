"""Records one answer: the target decodes it alone, one row a pass, then the drafter is led along it and off it. It
knows engines and the choice rule, nothing of files or of which models these are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from outrider.cloud.targets.base import ROOT_PARENT, Engine, SlotRows
from outrider.cloud.walk import WalkRules, walk
from outrider.harness.recording.draft_rows import LANES, Detour, DraftRows
from outrider.harness.recording.format import (
    BRANCH_RANKS,
    BRANCH_WIDTH,
    DEPTH,
    WIDTH,
    Branches,
    Ranking,
    make_ranking,
)
from outrider.shared.errors import OutriderError, Reason
from outrider.shared.messages import FinishReason
from outrider.shared.sampling.choose import Candidate, Chooser
from outrider.shared.sampling.noise import NoiseRows
from outrider.shared.sampling.options import Sampling

SLOT = 0
PREFILL_CHUNK = 256
# Rows of noise that target and drafter share over an answer of usual length; 0.6 MB each.
NOISE_ROWS = 160


@dataclass(frozen=True, slots=True)
class TargetAnswer:
    """The target's own answer and what it thought at each position; the same for every draft model."""

    ids: tuple[int, ...]
    finish_reason: FinishReason
    ranking: Ranking


@dataclass(frozen=True, slots=True)
class Recorded:
    """What one answer gave; see `outrider.harness.recording.format`."""

    answer_ids: tuple[int, ...]
    finish_reason: FinishReason
    draft: Ranking
    target: Ranking
    branches: Branches


def record_answer(
    engine: Engine,
    draft: DraftRows,
    prompt_ids: Sequence[int],
    sampling: Sampling,
    known: TargetAnswer | None = None,
) -> Recorded:
    """Record the target's answer to `prompt_ids`; `sampling` has its seed. Takes slot 0 of the engine, unless the
    answer is `known` from an earlier recording with these arguments: then the target computes nothing.

    Raises PROMPT_TOO_LONG where the engine's context has no room for an answer.
    """
    assert sampling.seed is not None, "the caller decides the seed"
    room = engine.spec.context_length - len(prompt_ids)
    if room < 1:
        raise OutriderError(
            Reason.PROMPT_TOO_LONG, f"{len(prompt_ids)} prompt tokens, context {engine.spec.context_length}."
        )
    chooser = Chooser(sampling, sampling.seed, prompt_ids, engine.vocabulary.size, NoiseRows(NOISE_ROWS))
    rules = WalkRules(chooser, engine.vocabulary.stop_ids, min(sampling.max_tokens, room))
    target = known or _decode(engine, prompt_ids, rules)
    answer = list(target.ids)
    along = [chooser.rank(row, answer[:length], WIDTH) for length, row in enumerate(draft.along(prompt_ids, answer))]
    ranking = make_ranking(along, WIDTH)
    branches = _lead_off(draft, chooser, answer, ranking, rules.stop_ids)
    return Recorded(target.ids, target.finish_reason, ranking, target.ranking, branches)


def _decode(engine: Engine, prompt_ids: Sequence[int], rules: WalkRules) -> TargetAnswer:
    """The answer as a session without guesses commits it."""
    engine.rewind(SLOT, 0)
    for start in range(0, len(prompt_ids) - 1, PREFILL_CHUNK):
        chunk = prompt_ids[start : min(start + PREFILL_CHUNK, len(prompt_ids) - 1)]
        engine.forward([SlotRows(SLOT, chunk, want_logits=False)])
        engine.keep(SLOT, ())
    answer: list[int] = []
    ranked: list[list[Candidate]] = []
    token = prompt_ids[-1]
    while True:
        (rows,) = engine.forward([SlotRows(SLOT, [token])])
        result = walk((), (), rows.row, answer, rules)
        ranked.append(rules.chooser.rank(rows.row(ROOT_PARENT), answer, WIDTH))
        engine.keep(SLOT, ())
        assert result.correction is not None, "no node was offered"
        token = result.correction
        answer.append(token)
        if result.finish is not None:
            return TargetAnswer(tuple(answer), result.finish, make_ranking(ranked, WIDTH))


def _lead_off(
    draft: DraftRows, chooser: Chooser, answer: list[int], along: Ranking, stop_ids: frozenset[int]
) -> Branches:
    """What the drafter says after its own wrong first and second choices, from the answer's end backwards."""
    starts = [
        (position, rank, token)
        for position, row in enumerate(along.ids[:, :BRANCH_RANKS].tolist())
        for rank, token in enumerate(row)
        if token != answer[position] and token not in stop_ids
    ]
    found: list[list[list[Candidate]]] = []
    backwards = [(position, token) for position, _, token in reversed(starts)]
    for begin in range(0, len(backwards), LANES):
        found.extend(_continue(draft, chooser, answer, backwards[begin : begin + LANES], stop_ids))
    found.reverse()
    flat = make_ranking([step for branch in found for step in branch], BRANCH_WIDTH)
    shape = (len(starts), DEPTH, BRANCH_WIDTH)
    return Branches(
        np.array([position for position, _, _ in starts], np.uint32),
        np.array([rank for _, rank, _ in starts], np.uint8),
        Ranking(flat.ids.reshape(shape), flat.log_probability.reshape(shape), flat.margin.reshape(shape)),
    )


def _continue(
    draft: DraftRows,
    chooser: Chooser,
    answer: list[int],
    starts: Sequence[tuple[int, int]],
    stop_ids: frozenset[int],
) -> list[list[list[Candidate]]]:
    """For each (position, wrong token) the candidates at `DEPTH` steps; none below a stop id."""
    tails = [[token] for _, token in starts]
    steps: list[list[list[Candidate]]] = [[] for _ in starts]
    for _ in range(DEPTH):
        rows = draft.beside([Detour(position, tail) for (position, _), tail in zip(starts, tails, strict=True)])
        for (position, _), tail, step, row in zip(starts, tails, steps, rows, strict=True):
            ranked = chooser.rank(row, [*answer[:position], *tail], BRANCH_WIDTH)
            # A lane that has met a stop id goes on with the others, but nothing of it is kept.
            step.append([] if stop_ids.intersection(tail) else ranked)
            tail.append(ranked[0].token)
    return steps
