"""The processed distribution of one row of logits: penalties, bias, temperature, top-k, top-p, min-p.

Every function is pure. Rows are float32 and hold real ids only: the caller cuts a padded tail off first. Probabilities
are float64. Equal logits rank by id, lowest first, also where a truncation cuts between them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from outrider.shared.errors import OutriderError, Reason
from outrider.shared.sampling.noise import (
    TEMPERATURE_FLOOR,
    Float32s,
    Float64s,
    Ids,
    logit_floor,
    scaled_logits,
)
from outrider.shared.sampling.options import Sampling

_FLOAT32_MAX = float(np.finfo(np.float32).max)
# Rows of logits per block of `top_k_ids`: the k largest of the block maxima bound the k-th largest logit.
_BLOCK = 128
# Scaled logits looked at first for top-p, how many times deeper each next look goes, and from where it takes all.
_NUCLEUS_DEPTH = 6.0
_NUCLEUS_DEEPER = 4.0
_NUCLEUS_DEEPEST = 100.0
# Bound on the relative error of `estimate_mass`, with much room: 4e-7 is the most that was found.
MASS_ERROR = 1e-4


@dataclass(frozen=True, slots=True)
class Distribution:
    """What may be chosen: `ids` ascending (int64 [n], n at least 1) and their ln p (float64 [n])."""

    ids: Ids
    log_p: Float64s


def process(logits: npt.ArrayLike, size: int, sampling: Sampling, prompt_ids: Ids, output_ids: Ids) -> Distribution:
    """Return the target's processed distribution for one row of logits [width], of which `size` entries are real.

    Order: penalties, bias, temperature, top-k, top-p on what top-k left, min-p on what is left, renormalise. At
    temperature 0 the whole mass is on the largest logit (lowest id). Raises INTERNAL for a row that holds NaN or +inf,
    or nothing but -inf.
    """
    row = adjust(logits, size, sampling, prompt_ids, output_ids)
    maximum = checked_maximum(row)
    if sampling.temperature == 0:
        return Distribution(np.array([row.argmax()], dtype=np.int64), np.zeros(1))
    ids = support(row, maximum, sampling)
    if ids is None:
        ids = np.flatnonzero(row > -np.inf)
    scaled = scaled_logits(row[ids], maximum, sampling.temperature)
    return Distribution(ids, scaled - np.log(np.exp(scaled).sum()))


def adjust(logits: npt.ArrayLike, size: int, sampling: Sampling, prompt_ids: Ids, output_ids: Ids) -> Float32s:
    """Return float32 [size]: logits after the repetition, frequency and presence penalties and then the bias.

    `prompt_ids` may hold each id once; `output_ids` holds them as often as they occur. Each of these three steps is
    computed in float64 on the ids it touches, then rounded to float32 and kept finite; a logit of -inf stays -inf, a
    NaN stays NaN. Without penalties
    and bias the result may be a view of `logits`; it is never written to. Raises TOKEN_OUT_OF_RANGE for an id
    outside 0 to size - 1.
    """
    row = np.asarray(logits, dtype=np.float32)[:size]
    if row.shape != (size,):
        raise OutriderError(Reason.INTERNAL, f"Expected a row of at least {size} logits, got {row.shape}.")
    if not sampling.has_penalties and not sampling.logit_bias:
        return row
    adjusted = row.copy()
    if sampling.has_penalties:
        _penalise(adjusted, sampling, prompt_ids, output_ids)
    if sampling.logit_bias:
        ids = np.fromiter(sampling.logit_bias.keys(), dtype=np.int64)
        bias = np.fromiter(sampling.logit_bias.values(), dtype=np.float64)
        check_ids(ids, size)
        _write(adjusted, ids, adjusted[ids].astype(np.float64) + bias)
    return adjusted


def check_ids(ids: Ids, size: int) -> None:
    """Raise TOKEN_OUT_OF_RANGE unless all ids are in 0 to size - 1."""
    if len(ids) and (ids.min() < 0 or ids.max() >= size):
        wrong = ids[(ids < 0) | (ids >= size)][0]
        raise OutriderError(Reason.TOKEN_OUT_OF_RANGE, f"Expected an id from 0 to {size - 1}, got {wrong}.")


def checked_maximum(row: Float32s) -> float:
    """Return the largest logit, which is finite; raise INTERNAL for NaN, +inf, or a row of -inf.

    Such a row means a broken model, and guessing what it wanted to say would break the promise of the same text.
    """
    maximum = float(row.max())  # NaN if there is one anywhere
    if not np.isfinite(maximum):
        raise OutriderError(Reason.INTERNAL, f"Expected a finite largest logit, got {maximum}.")
    return maximum


def support(row: Float32s, maximum: float, sampling: Sampling) -> Ids | None:
    """Return the ids that top-k, top-p and min-p leave (ascending, int64), or None if none of them is on.

    The temperature must be above 0. Ids with logit -inf are not part of a support.
    """
    ids: Ids | None = None
    if 0 < sampling.top_k < len(row):
        ids = top_k_ids(row, sampling.top_k)
    if sampling.top_p < 1:
        kept = top_p_ids(row if ids is None else row[ids], maximum, sampling.temperature, sampling.top_p)
        ids = kept if ids is None else ids[kept]
    if sampling.min_p > 0:
        kept = min_p_ids(row if ids is None else row[ids], maximum, sampling.temperature, sampling.min_p)
        ids = kept if ids is None else ids[kept]
    return ids


def top_k_ids(row: Float32s, count: int) -> Ids:
    """Return the ids of the `count` largest logits above -inf, ascending (int64)."""
    columns = len(row) // _BLOCK
    candidates: Ids | None = None
    if count <= columns // 2:
        block_maxima = row[: columns * _BLOCK].reshape(_BLOCK, columns).max(axis=0)
        candidates = np.flatnonzero(row >= np.partition(block_maxima, columns - count)[columns - count])
    values = row if candidates is None else row[candidates]
    if len(values) > count:
        kept = _largest(values, np.partition(values, len(values) - count)[len(values) - count], count)
    else:
        kept = np.arange(len(values), dtype=np.int64)
    kept = kept[values[kept] > -np.inf]
    return kept if candidates is None else candidates[kept]


def top_p_ids(row: Float32s, maximum: float, temperature: float, top_p: float) -> Ids:
    """Return the indices of the smallest set of largest logits with at least `top_p` of the mass, ascending (int64).

    Sums run in float64 from the largest logit down; the set holds at least one index.
    """
    estimate = estimate_mass(row, maximum, temperature) * top_p
    lower, upper = estimate * (1 - MASS_ERROR), estimate * (1 + MASS_ERROR)
    depth = _NUCLEUS_DEPTH
    while True:
        least = logit_floor(depth, maximum, temperature)
        values = np.sort(row[row >= least])[::-1]
        cumulative = np.cumsum(np.exp(scaled_logits(values, maximum, temperature)))
        if cumulative[-1] >= upper or len(values) == len(row):
            break
        depth = depth * _NUCLEUS_DEEPER if depth < _NUCLEUS_DEEPEST else np.inf
    index = int(np.searchsorted(cumulative, lower))
    if index != int(np.searchsorted(cumulative, upper)):  # too close to call: the estimate does not decide
        mass = np.exp(scaled_logits(row, maximum, temperature)).sum()
        index = int(np.searchsorted(cumulative, top_p * mass))
    count = min(index + 1, int(np.count_nonzero(values > -np.inf)))
    return _largest(row, values[count - 1], count)


def estimate_mass(row: Float32s, maximum: float, temperature: float) -> float:
    """Return the sum of exp(scaled logit) within a relative MASS_ERROR, in float32: several times faster."""
    with np.errstate(over="ignore"):
        scaled = (row - np.float32(maximum)) * np.float32(1 / max(temperature, TEMPERATURE_FLOOR))
    return float(np.exp(scaled, out=scaled).sum(dtype=np.float64))


def min_p_ids(row: Float32s, maximum: float, temperature: float, min_p: float) -> Ids:
    """Return the indices whose probability is at least `min_p` times the largest one, ascending (int64)."""
    candidates = np.flatnonzero(row >= logit_floor(-np.log(min_p), maximum, temperature))
    return candidates[np.exp(scaled_logits(row[candidates], maximum, temperature)) >= min_p]


def _largest(row: Float32s, boundary: np.float32, count: int) -> Ids:
    """Indices of the `count` largest entries, ascending, where `boundary` is the count-th largest value."""
    kept = np.flatnonzero(row >= boundary)
    surplus = len(kept) - count
    if surplus > 0:
        equal = np.flatnonzero(row[kept] == boundary)
        kept = np.delete(kept, equal[len(equal) - surplus :])
    return kept


def _penalise(row: Float32s, sampling: Sampling, prompt_ids: Ids, output_ids: Ids) -> None:
    """Apply the three penalties to `row` in place."""
    check_ids(prompt_ids, len(row))
    check_ids(output_ids, len(row))
    output_unique, counts = np.unique(output_ids, return_counts=True)
    if sampling.repetition_penalty != 1.0:
        # As in "CTRL" (Keskar et al., 2019) and Hugging Face: once per id, however often it occurred.
        ids = np.union1d(prompt_ids, output_unique)
        values = row[ids].astype(np.float64)
        penalty = sampling.repetition_penalty
        _write(row, ids, np.where(values > 0, values / penalty, values * penalty))
    penalties = sampling.frequency_penalty * counts + sampling.presence_penalty
    _write(row, output_unique, row[output_unique].astype(np.float64) - penalties)


def _write(row: Float32s, ids: Ids, values: Float64s) -> None:
    """Store `values` rounded to float32; what was finite stays finite, so that no later step can make a NaN."""
    finite = np.isfinite(row[ids])
    row[ids[finite]] = np.clip(values[finite], -_FLOAT32_MAX, _FLOAT32_MAX)
