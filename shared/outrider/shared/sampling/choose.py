"""The one rule: the token at a position is the argmax of ln p + shared noise, plain argmax at temperature 0.

The cloud chooses with it and the drafter ranks its guesses with it; neither knows here which side it is on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from outrider.shared.sampling.noise import (
    SHARED_ROWS,
    Float32s,
    Float64s,
    Ids,
    NoiseRows,
    best_scores,
    scaled_logits,
)
from outrider.shared.sampling.options import Sampling
from outrider.shared.sampling.processors import adjust, check_ids, checked_maximum, estimate_mass, support, top_k_ids

# A support larger than this is searched as a full row.
_SMALL_SUPPORT = 2048


@dataclass(frozen=True, slots=True)
class Choice:
    """The chosen token and how clearly it won: best minus second-best score, inf if nothing else could be chosen.

    Scores are ln p + noise, or processed logits at temperature 0.
    """

    token: int
    gap: float


@dataclass(frozen=True, slots=True)
class Candidate:
    """A token that the rule ranks high.

    `probability` is q under the processed distribution, without noise, within a relative MASS_ERROR; 0 outside its
    support; at temperature 0 the softmax of the processed logits at temperature 1. `margin` is the token's score minus
    the best other candidate's: for the first the distance to the runner-up (`Choice.gap`), for the others to the
    first, and there it is at most 0 inside the support. A token outside the support can have a positive margin:
    without truncation it would have won.
    """

    token: int
    probability: float
    margin: float


class Chooser:
    """The rule for one answer: sampling options, seed and prompt are fixed, logits and output vary.

    A pure function of its arguments: it remembers nothing but noise that it could make again, so going back to an
    earlier position costs nothing. Safe between threads.
    """

    def __init__(
        self,
        sampling: Sampling,
        seed: int,
        prompt_ids: Sequence[int],
        size: int,
        rows: NoiseRows = SHARED_ROWS,
    ) -> None:
        """`seed` is below 2**64 (`sampling.seed` is not read), `size` the real vocabulary size, `rows` a noise store.

        Raises TOKEN_OUT_OF_RANGE for a prompt or bias id outside 0 to size - 1.
        """
        self._sampling = sampling
        self._seed = seed
        self._size = size
        self._rows = rows
        prompt = np.asarray(prompt_ids, dtype=np.int64)
        check_ids(prompt, size)
        check_ids(np.fromiter(sampling.logit_bias.keys(), dtype=np.int64), size)
        self._prompt_length = len(prompt)
        self._prompt_unique = np.unique(prompt)

    def choose(self, logits: npt.ArrayLike, output_ids: Sequence[int]) -> Choice:
        """Return the token at position len(prompt) + len(output), given its logits (float32 [width >= size]).

        Raises INTERNAL if the row holds NaN or +inf below `size`, or only -inf; TOKEN_OUT_OF_RANGE as `adjust`.
        """
        row = self._adjust(logits, output_ids)
        if self._sampling.temperature == 0:
            return _greedy(row)
        maximum = checked_maximum(row)
        ids = support(row, maximum, self._sampling)
        tokens, scores = self._best(row, maximum, ids, self._prompt_length + len(output_ids), 2)
        gap = float(scores[0] - scores[1]) if len(scores) > 1 else np.inf
        return Choice(int(tokens[0]), gap)

    def rank(self, logits: npt.ArrayLike, output_ids: Sequence[int], count: int) -> list[Candidate]:
        """Return the `count` best candidates, distinct and best first; the first is what `choose` returns.

        First come tokens of the processed support by score. If those run out, tokens outside follow, by the score they
        have before truncation (penalties, bias and temperature applied). Fewer come back if fewer ids have a finite
        logit. Raises as `choose` does.
        """
        assert count >= 1, f"count {count} is below 1"
        row = self._adjust(logits, output_ids)
        maximum = checked_maximum(row)
        temperature = self._sampling.temperature
        if temperature == 0:
            tokens, scores = _largest_logits(row, max(count, 2))
            probabilities = _probabilities(row, maximum, 1.0, row[tokens])
            return _candidates(tokens, scores, probabilities, len(tokens))[:count]
        position = self._prompt_length + len(output_ids)
        ids = support(row, maximum, self._sampling)
        tokens, scores = self._best(row, maximum, ids, position, max(count, 2))
        probabilities = _probabilities(row if ids is None else row[ids], maximum, temperature, row[tokens])
        inside_count = len(tokens)
        if ids is not None and inside_count < count:
            outside = row.copy()
            outside[ids] = -np.inf
            more, more_scores = best_scores(
                outside,
                maximum,
                temperature,
                count - inside_count,
                seed=self._seed,
                position=position,
                rows=self._rows,
            )
            tokens = np.concatenate((tokens, more))
            scores = np.concatenate((scores, more_scores))
            probabilities = np.concatenate((probabilities, np.zeros(len(more))))
        return _candidates(tokens, scores, probabilities, inside_count)[:count]

    def _adjust(self, logits: npt.ArrayLike, output_ids: Sequence[int]) -> Float32s:
        output: Sequence[int] = output_ids if self._sampling.has_penalties else ()
        output_array = np.asarray(output, dtype=np.int64)
        return adjust(logits, self._size, self._sampling, self._prompt_unique, output_array)

    def _best(self, row: Float32s, maximum: float, ids: Ids | None, position: int, count: int) -> tuple[Ids, Float64s]:
        """The `count` best ids of the support and their scores (all of it if it is smaller), best first."""
        temperature = self._sampling.temperature
        if ids is not None and len(ids) <= _SMALL_SUPPORT:
            noise = self._rows.gumbel(self._seed, position, self._size, ids)
            scores = scaled_logits(row[ids], maximum, temperature) + noise
            order = np.lexsort((ids, -scores))[:count]
            return ids[order], scores[order]
        if ids is not None:
            inside = np.full_like(row, -np.inf)
            inside[ids] = row[ids]
            row = inside
        return best_scores(row, maximum, temperature, count, seed=self._seed, position=position, rows=self._rows)


def _greedy(row: Float32s) -> Choice:
    """Argmax, lowest id first; the runner-up is the larger maximum of the two sides of it, so nothing is copied."""
    token = int(row.argmax())  # the first NaN if there is one
    best = float(row[token])
    if not np.isfinite(best):
        checked_maximum(row)
    sides = (side for side in (row[:token], row[token + 1 :]) if len(side))
    return Choice(token, best - max((float(side.max()) for side in sides), default=-np.inf))


def _largest_logits(row: Float32s, count: int) -> tuple[Ids, Float64s]:
    ids = top_k_ids(row, count)
    logits = row[ids].astype(np.float64)
    order = np.lexsort((ids, -logits))
    return ids[order], logits[order]


def _probabilities(row: Float32s, maximum: float, temperature: float, logits: Float32s) -> Float64s:
    """The softmax of `row` at the entries that have the given logits, within a relative MASS_ERROR."""
    probabilities: Float64s = np.exp(scaled_logits(logits, maximum, temperature))
    return np.minimum(probabilities / estimate_mass(row, maximum, temperature), 1.0)


def _candidates(tokens: Ids, scores: Float64s, probabilities: Float64s, inside_count: int) -> list[Candidate]:
    """Join the columns; only the first `inside_count` can be the runner-up that the first one's margin is to."""
    margins = scores - scores[0]
    margins[0] = scores[0] - scores[1] if inside_count > 1 else np.inf
    return [
        Candidate(token, probability, margin)
        for token, probability, margin in zip(tokens.tolist(), probabilities.tolist(), margins.tolist(), strict=True)
    ]
