"""The Gumbel noise that edge and cloud share: a pure function of seed, absolute position and token id.

It also finds the best tokens of a full row of logits under that noise without making the noise of every token. It
knows nothing of penalties, truncation or models.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from outrider.shared.sampling.philox import WORD_MASK, philox4x32

# Fourth counter word. Another use of the same seed takes another tag, so that the two never share a word.
DOMAIN_TOKEN_CHOICE = 0x544F4B31  # "TOK1"
SAMPLE_INDEX = 0
WORDS_PER_BLOCK = 4
UNIFORM_SCALE = 2.0**-32

# No noise is larger: U = 1 - 2**-33 gives 22.873857. The excess covers the rounding of a score.
GUMBEL_MAX = 22.8739

# A temperature below this acts as this: the quotient stays finite, and only exact ties could still be broken.
TEMPERATURE_FLOOR = 1e-30

# Tokens whose noise reaches LUCKY_GUMBEL (0.7% of them) are found once per row, by their words alone.
LUCKY_GUMBEL = 5.0
_LUCKY_WORD = np.uint32(np.exp(-np.exp(-LUCKY_GUMBEL)) * 2.0**32)
# The noise of the others stays below this; the slack covers the rounding of the logarithms.
_UNLUCKY_GUMBEL_MAX = LUCKY_GUMBEL + 1e-5
# Scores to look at first: tokens within this of the best logit / temperature.
_HEAD_DEPTH = 8.0
# Below this many candidates their own blocks are cheaper than those of the whole row.
_DIRECT_LIMIT = 6144
# A head larger than this says that the row is flat: then the lucky tokens find the bound.
_HEAD_LIMIT = 4096

CACHED_ROWS = 32

_FLOAT32_MAX = float(np.finfo(np.float32).max)

Ids = npt.NDArray[np.int64]
Float32s = npt.NDArray[np.float32]
Float64s = npt.NDArray[np.float64]


def words_at(seed: int, position: int, ids: Ids) -> npt.NDArray[np.uint32]:
    """Return the random word of each id: uint32, the shape of `ids`.

    `seed` is below 2**64, `position` below 2**32, ids are not negative. Key: low and high half of the seed. Counter:
    (id >> 2, position, sample index, domain tag); the id takes word `id & 3`.
    """
    ids = np.asarray(ids, dtype=np.int64)
    block = (ids >> 2).astype(np.uint64)
    lanes = philox4x32((block, position, SAMPLE_INDEX, DOMAIN_TOKEN_CHOICE), split_seed(seed))
    return np.choose(ids & 3, lanes).astype(np.uint32)


def words_row(seed: int, position: int, width: int) -> npt.NDArray[np.uint32]:
    """Return the random words of ids 0 to width - 1: uint32 [width]."""
    block_count = -(-width // WORDS_PER_BLOCK)
    block = np.arange(block_count, dtype=np.uint64)
    lanes = philox4x32((block, position, SAMPLE_INDEX, DOMAIN_TOKEN_CHOICE), split_seed(seed))
    words = np.empty((block_count, WORDS_PER_BLOCK), dtype=np.uint32)
    for index, lane in enumerate(lanes):
        words[:, index] = lane
    return words.reshape(-1)[:width]


def uniform_from_words(words: npt.NDArray[np.uint32]) -> Float64s:
    """Return U = (word + 0.5) / 2**32, which is exact in float64 and never 0 or 1."""
    return (words.astype(np.float64) + 0.5) * UNIFORM_SCALE


def gumbel_from_words(words: npt.NDArray[np.uint32]) -> Float32s:
    """Return G = -ln(-ln U) as float32; both logarithms are taken in float64, whose last bits the rounding drops."""
    return (-np.log(-np.log(uniform_from_words(words)))).astype(np.float32)


def gumbel(seed: int, position: int, ids: Ids) -> Float32s:
    """Return the noise of the given ids: float32, the shape of `ids`; see `words_at` for the ranges."""
    return gumbel_from_words(words_at(seed, position, ids))


def gumbel_row(seed: int, position: int, width: int) -> Float32s:
    """Return the noise of ids 0 to width - 1: float32 [width]. Plain and slow (logarithms for every id)."""
    return gumbel_from_words(words_row(seed, position, width))


def split_seed(seed: int) -> tuple[int, int]:
    """Return the two key words of a 64-bit seed: low half first."""
    assert 0 <= seed < 2**64, f"seed {seed} has more than 64 bits"
    return seed & WORD_MASK, seed >> 32


@dataclass(frozen=True, slots=True)
class NoiseRow:
    """The words of one (seed, position) and, ready to use, the ids whose noise is large. Never written to."""

    words: npt.NDArray[np.uint32]
    lucky_ids: Ids
    lucky_gumbel: Float32s


def make_noise_row(seed: int, position: int, width: int) -> NoiseRow:
    """Build the row of ids 0 to width - 1."""
    words = words_row(seed, position, width)
    lucky_ids = np.flatnonzero(words >= _LUCKY_WORD)
    return NoiseRow(words, lucky_ids, gumbel_from_words(words[lucky_ids]))


class NoiseRows:
    """A bounded store of the rows last used, so that all nodes of one depth share one row. Safe between threads.

    A row of 151,936 ids holds 0.6 MB; `capacity` bounds the rows. What is stored never changes a result.
    """

    def __init__(self, capacity: int = CACHED_ROWS) -> None:
        assert capacity >= 1, f"capacity {capacity} is below 1"
        self._capacity = capacity
        self._rows: OrderedDict[tuple[int, int, int], NoiseRow] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._rows)

    def find(self, seed: int, position: int, width: int) -> NoiseRow | None:
        """Return the row if it is stored."""
        with self._lock:
            row = self._rows.get((seed, position, width))
            if row is not None:
                self._rows.move_to_end((seed, position, width))
            return row

    def get(self, seed: int, position: int, width: int) -> NoiseRow:
        """Return the row, made now if it is not stored; the row used longest ago gives way."""
        row = self.find(seed, position, width)
        if row is None:
            row = make_noise_row(seed, position, width)  # outside the lock: twice the work at worst
            with self._lock:
                self._rows[seed, position, width] = row
                while len(self._rows) > self._capacity:
                    self._rows.popitem(last=False)
        return row

    def gumbel(self, seed: int, position: int, width: int, ids: Ids) -> Float32s:
        """Return the noise of `ids` (all below `width`), from the stored row if there is one."""
        row = self.find(seed, position, width)
        return gumbel(seed, position, ids) if row is None else gumbel_from_words(row.words[ids])


# One store for the process: sessions take turns, and each needs a row only while its pass is walked.
SHARED_ROWS = NoiseRows()


def scaled_logits(logits: Float32s, maximum: float, temperature: float) -> Float64s:
    """Return (logit - maximum) / temperature in float64: ln p but for a constant. At most 0, never NaN.

    `maximum` is the finite largest logit and `temperature` is above 0; logits may be -inf.
    """
    return (logits.astype(np.float64) - maximum) / max(temperature, TEMPERATURE_FLOOR)


def logit_floor(depth: float, maximum: float, temperature: float) -> np.float32:
    """Return a float32 that no logit falls below whose scaled logit is at least -depth.

    The slack covers the float64 arithmetic; rounding to float32 cannot pass a float32 logit.
    """
    drop = depth * max(temperature, TEMPERATURE_FLOOR)
    floor = maximum - drop - 1e-12 * (abs(maximum) + abs(drop))
    if not abs(floor) < _FLOAT32_MAX:
        return np.float32(-np.inf)
    return np.float32(floor)


def best_scores(
    logits: Float32s, maximum: float, temperature: float, count: int, *, seed: int, position: int, rows: NoiseRows
) -> tuple[Ids, Float64s]:
    """Return the `count` best ids of a full row and their scores, best first, lowest id first among equals.

    The score is `scaled_logits` + noise in float64, exactly what computing it for every id would give, but computed
    only for ids that can still be among the best. `logits` is float32 [width], without NaN; `maximum` is finite and
    at least the largest. Ids with logit -inf are not returned, so there may be fewer.
    """
    width = len(logits)
    top = np.float32(logits.max())
    if top == -np.inf:
        return np.empty(0, dtype=np.int64), np.empty(0)

    def floor(depth: float) -> np.float32:
        return logit_floor(depth, maximum, temperature)

    def score(ids: Ids, noise: Float32s) -> Float64s:
        return scaled_logits(logits[ids], maximum, temperature) + noise

    row = rows.find(seed, position, width)
    head_floor = logit_floor(_HEAD_DEPTH, float(top), temperature)
    head = np.flatnonzero(logits >= head_floor)
    if row is None and len(head) <= _HEAD_LIMIT:
        scores = score(head, gumbel(seed, position, head))
        bound = _bound(scores, count)
        rivals = np.flatnonzero(logits >= floor(GUMBEL_MAX - bound))
        if len(rivals) <= len(head):
            return _best(head, scores, count)
        if len(rivals) <= _DIRECT_LIMIT:
            return _best(rivals, score(rivals, gumbel(seed, position, rivals)), count)
    if row is None:
        row = rows.get(seed, position, width)

    # Any id outside `lucky` has noise below 5, so once `count` scores reach b only logits of b - 5 or more matter:
    # at most exp(5 + ln Z - b) ids, and b is rarely far below ln Z.
    words = row.words
    lucky_scores = score(row.lucky_ids, row.lucky_gumbel)

    def with_unlucky(least: np.float32) -> tuple[Ids, Float64s]:
        ids = np.flatnonzero(logits >= least)
        ids = ids[words[ids] < _LUCKY_WORD]
        scores = score(ids, gumbel_from_words(words[ids]))
        return np.concatenate((row.lucky_ids, ids)), np.concatenate((lucky_scores, scores))

    bound = _bound(with_unlucky(head_floor if len(head) <= _HEAD_LIMIT else top)[1], count)
    return _best(*with_unlucky(floor(_UNLUCKY_GUMBEL_MAX - bound)), count)


def _bound(scores: Float64s, count: int) -> float:
    """The `count`-th best score, which no id below it can beat; -inf if there are fewer."""
    if len(scores) < count:
        return -np.inf
    return float(np.partition(scores, len(scores) - count)[len(scores) - count])


def _best(ids: Ids, scores: Float64s, count: int) -> tuple[Ids, Float64s]:
    """The `count` best, best first, lowest id first among equals, without scores of -inf."""
    kept = np.flatnonzero((scores >= _bound(scores, count)) & (scores > -np.inf))
    ids, scores = ids[kept], scores[kept]
    order = np.lexsort((ids, -scores))[:count]
    return ids[order], scores[order]
