"""Philox4x32-10 against its published answers and against plain integer arithmetic."""

from __future__ import annotations

import numpy as np
import pytest

from outrider.shared.sampling.philox import philox4x32

# From the authors' kat_vectors: counter, key, words.
KNOWN_ANSWERS = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]

Four = tuple[int, int, int, int]


def plain_philox(counter: Four, key: tuple[int, int]) -> Four:
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        p0, p1 = c0 * 0xD2511F53, c2 * 0xCD9E8D57
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & 0xFFFFFFFF, (p0 >> 32) ^ c3 ^ k1, p0 & 0xFFFFFFFF
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c0, c1, c2, c3


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN_ANSWERS)
def test_known_answers_come_out_of_scalar_counters(counter: Four, key: tuple[int, int], words: Four) -> None:
    assert tuple(int(word) for word in philox4x32(counter, key)) == words
    assert plain_philox(counter, key) == words


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN_ANSWERS)
def test_known_answers_come_out_of_arrays(counter: Four, key: tuple[int, int], words: Four) -> None:
    c0, c1, c2, c3 = (np.full(3, word, dtype=np.uint64) for word in counter)
    for lane, word in zip(philox4x32((c0, c1, c2, c3), key), words, strict=True):
        assert lane.tolist() == [word] * 3


@pytest.mark.parametrize("array_slot", range(4))
def test_an_array_in_any_counter_word_equals_plain_arithmetic(array_slot: int) -> None:
    random = np.random.default_rng(array_slot)
    values = random.integers(2**32, size=200, dtype=np.uint64)
    fixed = [int(word) for word in random.integers(2**32, size=4)]
    key = (int(random.integers(2**32)), int(random.integers(2**32)))
    slots: list[np.ndarray[tuple[int], np.dtype[np.uint64]] | int] = list(fixed)
    slots[array_slot] = values
    before = values.copy()
    lanes = philox4x32((slots[0], slots[1], slots[2], slots[3]), key)
    for index, value in enumerate(values.tolist()):
        counter = [*fixed[:array_slot], value, *fixed[array_slot + 1 :]]
        expected = plain_philox((counter[0], counter[1], counter[2], counter[3]), key)
        assert tuple(int(lane[index]) for lane in lanes) == expected
    assert np.array_equal(values, before)  # the caller's counters are not worked on in place
