"""A short experiment at load: are a row's logits the same bits whatever shares its pass? Kernels differ by processor
and build, so what an engine declares about itself is measured, not assumed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from outrider.shared.llama.runtime import LlamaContext, Row

PROBE_PREFIX = 4
# Ways to cut the probed rows into passes: between them, every width up to 7 and one past it.
PROBE_CUTS = ((2, 3, 5), (4, 6), (7, 3), (10,))
PROBE_ROWS = 10
_SEED = 7


def rows_are_width_exact(context: LlamaContext, vocabulary_size: int) -> bool:
    """Whether the logits of 10 random tokens, one row a pass, come back bit-equal however the rows are cut into
    passes, after rollbacks, and beside a neighbouring stream. Leaves the context empty.
    """
    generator = np.random.default_rng(_SEED)
    prefix = generator.integers(0, vocabulary_size, PROBE_PREFIX).tolist()
    tokens = generator.integers(0, vocabulary_size, PROBE_ROWS).tolist()
    try:
        _feed(context, prefix, 0)
        alone = _feed_in(context, tokens, (1,) * PROBE_ROWS)
        cuts_agree = all(np.array_equal(alone, _feed_in(context, tokens, cut)) for cut in PROBE_CUTS)
        return cuts_agree and np.array_equal(alone, _feed_beside_neighbours(context, tokens))
    finally:
        for sequence in (0, 1):
            context.truncate(sequence, 0)


def _feed_in(context: LlamaContext, tokens: list[int], cut: tuple[int, ...]) -> NDArray[np.float32]:
    """Logits of `tokens` after the prefix, fed in passes of the widths in `cut`; shape [len(tokens), width]."""
    context.truncate(0, PROBE_PREFIX)
    rows, start = [], 0
    for width in cut:
        rows.append(_feed(context, tokens[start : start + width], PROBE_PREFIX + start))
        start += width
    return np.concatenate(rows)


def _feed_beside_neighbours(context: LlamaContext, tokens: list[int]) -> NDArray[np.float32]:
    """The same in threes, each time beside two rows of another stream."""
    context.truncate(0, PROBE_PREFIX)
    rows = []
    for step, start in enumerate(range(0, PROBE_ROWS, 3)):
        part = tokens[start : start + 3]
        mine = [Row(token, PROBE_PREFIX + start + i, 0, True) for i, token in enumerate(part)]
        others = [Row(token, 2 * step + i, 1, True) for i, token in enumerate(tokens[:2])]
        context.decode([*mine, *others])
        rows.append(np.stack([context.logits(i) for i in range(len(mine))]))
    return np.concatenate(rows)


def _feed(context: LlamaContext, tokens: list[int], position: int) -> NDArray[np.float32]:
    """Logits of `tokens` fed in one pass at `position` of stream 0; shape [len(tokens), width]."""
    context.decode([Row(token, position + i, 0, True) for i, token in enumerate(tokens)])
    return np.stack([context.logits(i) for i in range(len(tokens))])
