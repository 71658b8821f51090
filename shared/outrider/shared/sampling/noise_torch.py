"""The shared noise in torch, bit for bit the NumPy one, on whatever device the ids or the caller name.

The only module of the package that imports torch.
"""

from __future__ import annotations

import torch

from outrider.shared.sampling.noise import (
    DOMAIN_TOKEN_CHOICE,
    SAMPLE_INDEX,
    UNIFORM_SCALE,
    split_seed,
)
from outrider.shared.sampling.philox import (
    KEY_STEP_0,
    KEY_STEP_1,
    MULTIPLIER_0,
    MULTIPLIER_1,
    ROUNDS,
    WORD_MASK,
)


def words_at(seed: int, position: int, ids: torch.Tensor) -> torch.Tensor:
    """Return the random word of each id as int64 below 2**32, on the device of `ids`, in its shape.

    `ids` is an int64 tensor; ranges as in `noise.words_at`.
    """
    assert 0 <= position <= WORD_MASK, f"position {position} has more than 32 bits"
    key = split_seed(seed)
    c0 = ids >> 2
    c1 = torch.full_like(c0, position)
    c2 = torch.full_like(c0, SAMPLE_INDEX)
    c3 = torch.full_like(c0, DOMAIN_TOKEN_CHOICE)
    for index in range(ROUNDS):
        k0 = (key[0] + index * KEY_STEP_0) & WORD_MASK
        k1 = (key[1] + index * KEY_STEP_1) & WORD_MASK
        # A product of two 32-bit words wraps in int64, but its bits are right: the mask undoes the signed shift.
        product_0 = c0 * MULTIPLIER_0
        product_1 = c2 * MULTIPLIER_1
        c0 = ((product_1 >> 32) & WORD_MASK) ^ c1 ^ k0
        c2 = ((product_0 >> 32) & WORD_MASK) ^ c3 ^ k1
        c1 = product_1 & WORD_MASK
        c3 = product_0 & WORD_MASK
    lane = ids & 3
    return torch.where(lane < 2, torch.where(lane == 0, c0, c1), torch.where(lane == 2, c2, c3))


def uniform_from_words(words: torch.Tensor) -> torch.Tensor:
    """Return U = (word + 0.5) / 2**32 in float64."""
    return (words.to(torch.float64) + 0.5) * UNIFORM_SCALE


def gumbel_from_words(words: torch.Tensor) -> torch.Tensor:
    """Return G = -ln(-ln U), computed in float64 and rounded to float32. The device needs float64."""
    return (-torch.log(-torch.log(uniform_from_words(words)))).to(torch.float32)


def gumbel(seed: int, position: int, ids: torch.Tensor) -> torch.Tensor:
    """Return the noise of the given ids (int64): float32 in their shape, on their device."""
    return gumbel_from_words(words_at(seed, position, ids))


def gumbel_row(seed: int, position: int, width: int, device: torch.device | str | None = None) -> torch.Tensor:
    """Return the noise of ids 0 to width - 1: float32 [width] on `device`."""
    return gumbel(seed, position, torch.arange(width, dtype=torch.int64, device=device))
