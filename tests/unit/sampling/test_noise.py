"""The shared noise: pinned vectors, NumPy equal to torch, and the fast search equal to the plain one."""

from __future__ import annotations

import math
import struct
import threading

import numpy as np
import numpy.typing as npt
import pytest

from outrider.shared.sampling.noise import (
    DOMAIN_TOKEN_CHOICE,
    GUMBEL_MAX,
    NoiseRows,
    best_scores,
    gumbel,
    gumbel_from_words,
    gumbel_row,
    logit_floor,
    scaled_logits,
    uniform_from_words,
    words_at,
    words_row,
)

SIZE = 151_936
Row = npt.NDArray[np.float32]

# Seed, position, id → word, U, G as float32 bits. The same table stands in the protocol document.
VECTORS = [
    (0x0000000000000000, 0, 0, 0x3AB44F2B, "0x1.d5a2795c00000p-3", 0xBEC62E6D),
    (0x0000000000000000, 0, 1, 0xAFE41180, "0x1.5fc8230100000p-1", 0x3F7AE0D9),
    (0x0000000000000000, 0, 2, 0xDFDDE8DD, "0x1.bfbbd1bb00000p-1", 0x4000930D),
    (0x0000000000000000, 0, 3, 0xA96A57F4, "0x1.52d4afe900000p-1", 0x3F627DF7),
    (0x0000000000000000, 0, 4, 0x606866DA, "0x1.81a19b6a00000p-2", 0x3CC20DD3),
    (0x0000000000000000, 1, 0, 0x9549C579, "0x1.2a938af300000p-1", 0x3F1E1382),
    (0x0000000000000001, 0, 0, 0x9DC6DFC9, "0x1.3b8dbf9300000p-1", 0x3F39C61C),
    (0x0000000100000000, 0, 0, 0x03DAF640, "0x1.ed7b204000000p-7", 0xBFB78F78),
    (0x000000000000002A, 17, 151645, 0x8770F38D, "0x1.0ee1e71b00000p-1", 0x3EE731BD),
    (0x000000000000002A, 17, 151935, 0x6E0DF0A9, "0x1.b837c2a600000p-2", 0x3E2D6D91),
    (0x000000000134D8DF, 4096, 100000, 0x7CCA111D, "0x1.f328447600000p-2", 0x3EA939D1),
    (0x0123456789ABCDEF, 131071, 77777, 0x4D16EC57, "0x1.345bb15e00000p-2", 0xBE3AE054),
    (0x8000000000000000, 5, 13, 0xBED1DE72, "0x1.7da3bce500000p-1", 0x3F9CC2BD),
    (0x8000000000003039, 2147483648, 65535, 0x1B5B1B9A, "0x1.b5b1b9a800000p-4", 0xBF4E0744),
    (0xFFFFFFFFFFFFFFFF, 4294967295, 151935, 0xD1193103, "0x1.a232620700000p-1", 0x3FCC7FA5),
]


@pytest.mark.parametrize(("seed", "position", "token", "word", "uniform", "bits"), VECTORS)
def test_pinned_vectors(seed: int, position: int, token: int, word: int, uniform: str, bits: int) -> None:
    ids = np.array([token])
    words = words_at(seed, position, ids)
    assert words.dtype == np.uint32
    assert int(words[0]) == word
    assert float(uniform_from_words(words)[0]) == float.fromhex(uniform)
    noise = gumbel(seed, position, ids)
    assert noise.dtype == np.float32
    assert int(noise.view(np.uint32)[0]) == bits


def test_vectors_follow_from_the_definition_with_the_plain_library() -> None:
    for _, _, _, word, uniform, bits in VECTORS:
        u = (word + 0.5) / 2**32
        assert u == float.fromhex(uniform)
        assert struct.unpack("<I", struct.pack("<f", -math.log(-math.log(u))))[0] == bits


def test_domain_tag_is_pinned() -> None:
    assert DOMAIN_TOKEN_CHOICE.to_bytes(4, "big") == b"TOK1"


def test_a_row_equals_its_ids_one_by_one_at_any_width() -> None:
    for width in (1, 3, 4, 5, 1023):
        words = words_row(2**63 + 5, 77, width)
        assert words.shape == (width,)
        assert np.array_equal(words, words_at(2**63 + 5, 77, np.arange(width)))
        assert np.array_equal(gumbel_row(2**63 + 5, 77, width), gumbel(2**63 + 5, 77, np.arange(width)))


def test_numpy_equals_torch_bit_for_bit() -> None:
    torch = pytest.importorskip("torch")
    from outrider.shared.sampling import noise_torch

    cases = [(0, 0), (1, 1), (2**32, 4095), (2**63, 131_071), (2**63 + 12_345, 7), (2**64 - 1, 2**31), (99, 2**32 - 1)]
    cases += [(17 * n, n) for n in range(8)]
    for seed, position in cases:
        words = words_row(seed, position, SIZE)
        other_words = noise_torch.words_at(seed, position, torch.arange(SIZE))
        assert np.array_equal(words.astype(np.int64), other_words.numpy())
        uniform = noise_torch.uniform_from_words(other_words).numpy()
        assert uniform.dtype == np.float64
        assert np.array_equal(uniform_from_words(words).view(np.uint64), uniform.view(np.uint64))
        noise = noise_torch.gumbel_row(seed, position, SIZE).numpy()
        assert noise.dtype == np.float32
        assert np.array_equal(gumbel_from_words(words).view(np.uint32), noise.view(np.uint32))
    ids = np.array([SIZE - 1, 0, 5, 5])
    assert np.array_equal(gumbel(3, 4, ids), noise_torch.gumbel(3, 4, torch.from_numpy(ids)).numpy())


def test_extreme_words_give_finite_noise_within_the_bound() -> None:
    torch = pytest.importorskip("torch")
    from outrider.shared.sampling import noise_torch

    words = np.array([0, 1, 2**31, 2**32 - 2, 2**32 - 1], dtype=np.uint32)
    noise = gumbel_from_words(words)
    assert np.isfinite(noise).all()
    assert np.all(np.diff(noise) > 0)
    assert 22.87 < noise[-1] < GUMBEL_MAX
    assert noise[0] == np.float32(-math.log(33 * math.log(2)))
    assert np.array_equal(noise, noise_torch.gumbel_from_words(torch.from_numpy(words.astype(np.int64))).numpy())


def test_each_seed_position_and_id_has_other_noise() -> None:
    seen = [words_row(seed, position, 64) for seed in (0, 1, 2**32, 2**63) for position in (0, 1, 2, 4096)]
    everything = np.concatenate(seen)
    # 1024 words: a chance collision has odds of 1.2e-4, and the inputs are fixed.
    assert len(np.unique(everything)) == len(everything)


def test_uniforms_fill_the_unit_interval_evenly() -> None:
    counts = np.bincount((uniform_from_words(words_row(42, 3, SIZE)) * 100).astype(np.int64), minlength=100)
    expected = SIZE / 100
    # Chi-square with 99 degrees of freedom: above 190 with odds of 1e-7.
    assert float(((counts - expected) ** 2 / expected).sum()) < 190


def make_rows() -> dict[str, Row]:
    random = np.random.default_rng(7)
    body = (random.normal(size=SIZE) * 3).astype(np.float32)
    peaked = body.copy()
    peaked[random.integers(SIZE, size=20)] += 15
    spike = np.full(SIZE, -300, dtype=np.float32)
    spike[[5, 77_777, SIZE - 1]] = [40, 40, 39]
    few = np.full(SIZE, -np.inf, dtype=np.float32)
    few[[3, 9, 150_000]] = [1, 2, 3]
    plateau = np.full(SIZE, -np.inf, dtype=np.float32)
    plateau[20_000:25_000] = 1.5
    grid = np.round(body).astype(np.float32)
    deep = np.full(SIZE, -1e20, dtype=np.float32)  # noise is lost in the rounding: every other score is equal
    deep[12] = 0
    shifted = body + np.float32(20_000)
    return {
        "body": body,
        "peaked": peaked,
        "spike": spike,
        "few": few,
        "plateau": plateau,
        "grid": grid,
        "flat": np.zeros(SIZE, dtype=np.float32),
        "deep": deep,
        "shifted": shifted,
        "huge": np.where(body > 0, 3e38, -3e38).astype(np.float32),
    }


ROWS = make_rows()


@pytest.mark.parametrize("name", ROWS)
def test_fast_search_equals_scoring_every_id(name: str) -> None:
    logits = ROWS[name]
    maximum = float(logits.max())
    for position, temperature in enumerate((1e-6, 0.1, 0.7, 1.0, 1.5, 8.0, 100.0)):
        scores = scaled_logits(logits, maximum, temperature) + gumbel_row(11, position, SIZE)
        order = np.lexsort((np.arange(SIZE), -scores))[:200]
        order = order[scores[order] > -np.inf]
        stored = NoiseRows()
        stored.get(11, position, SIZE)
        for count in (1, 2, 5, 200):
            for rows in (NoiseRows(), stored):
                ids, found = best_scores(logits, maximum, temperature, count, seed=11, position=position, rows=rows)
                assert ids.tolist() == order[:count].tolist()
                assert found.tolist() == scores[order[:count]].tolist()


def test_fast_search_equals_scoring_every_id_on_many_rows() -> None:
    random = np.random.default_rng(1)
    width = 20_000
    for position in range(300):
        logits = (random.normal(size=width) * random.uniform(0, 6)).astype(np.float32)
        logits[random.integers(width, size=5)] += np.float32(random.uniform(0, 20))
        temperature = float(10 ** random.uniform(-1.5, 1.5))
        maximum = float(logits.max())
        scores = scaled_logits(logits, maximum, temperature) + gumbel_row(5, position, width)
        rows = NoiseRows(1)
        for _ in range(2):
            ids, _ = best_scores(logits, maximum, temperature, 2, seed=5, position=position, rows=rows)
            assert ids.tolist() == np.argsort(-scores, kind="stable")[:2].tolist()
            rows.get(5, position, width)


def test_search_without_a_finite_logit_finds_nothing() -> None:
    logits = np.full(100, -np.inf, dtype=np.float32)
    ids, scores = best_scores(logits, 0.0, 1.0, 3, seed=1, position=1, rows=NoiseRows())
    assert len(ids) == len(scores) == 0


def test_logit_floor_never_cuts_what_it_must_keep() -> None:
    random = np.random.default_rng(3)
    for number in range(20_000):
        maximum = np.float32(random.normal() * 10 ** random.uniform(-3, 5))
        logit = np.float32(maximum - np.float32(10 ** random.uniform(-6, 3)))
        if number % 2:  # a logit near 0 below a large one: float32 is finer there than the float64 difference
            maximum, logit = abs(maximum), np.float32(-(10 ** random.uniform(-20, -3)))
        temperature = float(10 ** random.uniform(-6, 2))
        depth = -float(scaled_logits(np.array([logit]), float(maximum), temperature)[0])
        assert logit >= logit_floor(depth, float(maximum), temperature)


def test_store_is_bounded_and_drops_the_row_used_longest_ago() -> None:
    rows = NoiseRows(2)
    first = rows.get(1, 0, 64)
    rows.get(1, 1, 64)
    assert rows.get(1, 0, 64) is first
    rows.get(1, 2, 64)
    assert len(rows) == 2
    assert rows.find(1, 0, 64) is first
    assert rows.find(1, 1, 64) is None


def test_store_keeps_rows_of_other_seeds_and_widths_apart() -> None:
    rows = NoiseRows()
    assert len(rows.get(1, 0, 64).words) == 64
    assert len(rows.get(1, 0, 32).words) == 32
    assert not np.array_equal(rows.get(1, 0, 64).words, rows.get(2, 0, 64).words)
    ids = np.array([1, 31])
    assert np.array_equal(rows.gumbel(2, 0, 64, ids), gumbel(2, 0, ids))
    assert np.array_equal(rows.gumbel(9, 9, 64, ids), gumbel(9, 9, ids))


def test_store_serves_threads_with_the_same_rows() -> None:
    rows = NoiseRows(3)
    wrong: list[int] = []

    def work(start: int) -> None:
        for step in range(60):
            position = (start + step) % 6
            if not np.array_equal(rows.get(1, position, 256).words, words_row(1, position, 256)):
                wrong.append(position)

    threads = [threading.Thread(target=work, args=(start,)) for start in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert not wrong
    assert len(rows) <= 3
