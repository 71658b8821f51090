"""Recordings of a pair that exists only as numbers: how often its drafter is right. For planning where nothing has been
recorded; real text has easy and hard stretches, these have not.

The drafter's confidence is drawn first (a beta distribution with the acceptance as its mean, spread as the shipped
recordings' are) and its guess is right with just that probability, so confidences are as honest as calibrated ones.
"""

from __future__ import annotations

import numpy as np

from outrider.harness.recording.format import (
    BRANCH_WIDTH,
    DEPTH,
    WIDTH,
    Branches,
    Header,
    ModelIdentity,
    Ranking,
    RecordedIds,
    Recording,
    TargetSettings,
)
from outrider.harness.recording.library import RecordingSet
from outrider.shared.messages import FinishReason
from outrider.shared.sampling.options import Sampling
from outrider.shared.vocabulary import Fingerprint

SIZE = 151_936
STOP_ID = SIZE - 1
PROMPT_LENGTH = 64
# Measured on the shipped greedy recordings: the spread of confidences (the sum of the beta distribution's parameters),
# how often the second choice is right where the first is wrong, and how confidence falls with each wrong guess.
CONCENTRATION = 1.8
SECOND_RIGHT = 0.53
OFF_PATH_DECAY = 0.9
STRATUM = 32
LEAST_PROBABILITY = 1e-30


def synthetic_recordings(acceptance: float, *, answers: int, tokens: int, seed: int) -> RecordingSet:
    """`answers` answers of `tokens` tokens, in each of which a guess is right with probability `acceptance` (0..1)."""
    draws = np.random.default_rng(seed)
    return RecordingSet([_recording(acceptance, number, tokens, draws) for number in range(answers)], "synthetic")


def _recording(acceptance: float, number: int, tokens: int, draws: np.random.Generator) -> Recording:
    answer = draws.integers(0, STOP_ID, tokens)
    confidence = _confidences(acceptance, tokens, draws)
    second = np.where(draws.random(tokens) < SECOND_RIGHT, 1, BRANCH_WIDTH)
    rank = np.where(_hits(confidence, draws), 0, second)
    ids = _candidates(answer, rank, WIDTH)
    starts = [(t, r) for t in range(tokens) for r in (0, 1) if ids[t, r] != answer[t]]
    return Recording(
        header=_header(number, tokens),
        prompt_ids=tuple(draws.integers(0, STOP_ID, PROMPT_LENGTH).tolist()),
        answer_ids=tuple(answer.tolist()),
        draft=_ranking(ids, confidence),
        target=_ranking(_candidates(answer, np.zeros(tokens, int), WIDTH), np.full(tokens, 0.9)),
        branches=_branches(acceptance, starts, draws),
    )


def _confidences(mean: float, count: int, draws: np.random.Generator) -> np.ndarray:
    """`count` draws, one from each of as many equal parts of the distribution, in random order."""
    if mean in {0.0, 1.0}:
        return np.full(count, mean)
    fine = np.sort(draws.beta(mean * CONCENTRATION, (1 - mean) * CONCENTRATION, count * STRATUM))
    return draws.permutation(fine[STRATUM // 2 :: STRATUM])


def _hits(probability: np.ndarray, draws: np.random.Generator) -> np.ndarray:
    """Which of the events happen; together as many as expected, so that a short recording has the acceptance asked for.

    Systematic sampling in random order.
    """
    order = draws.permutation(len(probability))
    steps = np.floor(np.cumsum(probability[order]) + draws.random())
    hits = np.empty(len(probability), bool)
    hits[order] = np.diff(steps, prepend=0.0) > 0
    return hits


def _candidates(true: np.ndarray, rank: np.ndarray, width: int) -> np.ndarray:
    """Ids [n, width], all different in a row, with the true one at its rank."""
    order = np.arange(width)[None, :]
    offset = np.where(order == rank[:, None], 0, np.where(order < rank[:, None], order + 1, order))
    return ((true[:, None] + offset) % STOP_ID).astype(np.uint32)


def _ranking(ids: np.ndarray, confidence: np.ndarray) -> Ranking:
    """`ids` [..., width] whose first ones have `confidence` [...]; what is left halves from one to the next."""
    width = ids.shape[-1]
    rest = (1 - confidence)[..., None] * 0.5 ** np.arange(1, width)
    logs = np.log(np.maximum(np.concatenate([confidence[..., None], rest], axis=-1), LEAST_PROBABILITY))
    to_runner_up = np.broadcast_to(np.abs(logs[..., :1] - logs[..., 1:2]), (*logs.shape[:-1], 1))
    margin = np.concatenate([to_runner_up, np.abs(logs[..., :1] - logs[..., 1:])], axis=-1)
    return Ranking(ids, logs.astype(np.float16), margin.astype(np.float16))


def _branches(acceptance: float, starts: list[tuple[int, int]], draws: np.random.Generator) -> Branches:
    shape = (len(starts), DEPTH)
    depth_means = [acceptance * OFF_PATH_DECAY ** (depth + 1) for depth in range(DEPTH)]
    confidence = np.stack([_confidences(mean, len(starts), draws) for mean in depth_means], axis=1)
    guesses = draws.integers(0, STOP_ID, shape)
    ids = _candidates(guesses.reshape(-1), np.zeros(guesses.size, int), BRANCH_WIDTH).reshape(*shape, BRANCH_WIDTH)
    return Branches(
        np.array([position for position, _ in starts], np.uint32),
        np.array([rank for _, rank in starts], np.uint8),
        _ranking(ids, confidence),
    )


def _header(number: int, tokens: int) -> Header:
    nobody = ModelIdentity(name="synthetic", sha256="0" * 64)
    unknown = Fingerprint("", "", "", "", "", "", real_width=SIZE, padded_width=SIZE)
    return Header(
        id=f"synthetic-{number + 1}",
        category="synthetic",
        prompt="",
        sampling=Sampling(seed=0, max_tokens=tokens),
        finish_reason=FinishReason.LENGTH,
        draft=nobody,
        target=nobody,
        target_settings=TargetSettings(engine="synthetic", numerics="exact", near_tie_gap=0.0, settings={}),
        vocabulary=RecordedIds(size=SIZE, padded_width=SIZE, stop_ids=(STOP_ID,), fingerprint=unknown, pieces={}),
        software_version="",
    )
