"""Philox4x32-10, the counter-based random generator, in NumPy. It knows nothing of tokens or seeds."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

# Multipliers and key increments (golden ratio, square root of three) of Salmon, Moraes, Dror and Shaw,
# "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
MULTIPLIER_0 = 0xD2511F53
MULTIPLIER_1 = 0xCD9E8D57
KEY_STEP_0 = 0x9E3779B9
KEY_STEP_1 = 0xBB67AE85
ROUNDS = 10
WORD_MASK = 0xFFFFFFFF

Words = npt.NDArray[np.uint64]
# Scalars stay NumPy scalars: what is constant over a row is then computed once and broadcast.
_Word = Any

_M0 = np.uint64(MULTIPLIER_0)
_M1 = np.uint64(MULTIPLIER_1)
_MASK = np.uint64(WORD_MASK)
_HALF = np.uint64(32)


def philox4x32(
    counter: tuple[Words | int, Words | int, Words | int, Words | int], key: tuple[int, int]
) -> tuple[Words, Words, Words, Words]:
    """Return the four output words of every counter.

    Each counter word is an int or a uint64 array of values below 2**32; arrays have one common shape, which the
    four results share (uint64, each value below 2**32). `key` is two words below 2**32. Pure integer arithmetic:
    the same on every machine.
    """
    shape = np.broadcast_shapes(*(np.shape(word) for word in counter))
    c0, c1, c2, c3 = (_as_word(word) for word in counter)
    k0, k1 = key
    for _ in range(ROUNDS):
        # Factors are below 2**32, so a product never overflows its 64 bits. The lower words keep garbage above
        # bit 31 until they are masked as upper words: one mask per word and round instead of two.
        product_0 = c0 * _M0
        product_1 = c2 * _M1
        c0 = _mix(product_1, c1, k0)
        c2 = _mix(product_0, c3, k1)
        c1, c3 = product_1, product_0
        k0 = (k0 + KEY_STEP_0) & WORD_MASK
        k1 = (k1 + KEY_STEP_1) & WORD_MASK
    words = (c0, c1 & _MASK, c2, c3 & _MASK)
    full = [np.broadcast_to(np.asarray(word, dtype=np.uint64), shape) for word in words]
    return full[0], full[1], full[2], full[3]


def _as_word(word: Words | int) -> _Word:
    if isinstance(word, np.ndarray):
        return word.astype(np.uint64, copy=False)
    assert 0 <= word <= WORD_MASK, f"counter word {word} has more than 32 bits"
    return np.uint64(word)


def _mix(product: _Word, lower: _Word, key: int) -> _Word:
    """Upper half of `product` xor `lower` xor `key`, cut to 32 bits; a new value, so it may be worked on in place."""
    mixed = product >> _HALF
    word = np.uint64(key)
    if isinstance(mixed, np.ndarray):
        mixed ^= lower
        mixed ^= word
        mixed &= _MASK
        return mixed
    return (mixed ^ lower ^ word) & _MASK
