"""A deterministic pseudo language model over bytes, in NumPy and without files, for tests and overhead benchmarks.

Its logits depend on the whole path through a rolling hash, so any wrong cache, rollback or position shows. It knows
nothing of engines or drafters.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from outrider.shared.byte_level import byte_of_character
from outrider.shared.vocabulary import Vocabulary

END, USER, ASSISTANT, SYSTEM = 256, 257, 258, 259
TINY_SIZE = 260
TINY_PADDED_WIDTH = 264
HASH_START = 0x243F6A8885A308D3

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_MIX_1, _MIX_2 = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
# An answer ends where the state's top bits say so: one state in 128.
_END_ONE_IN = 128

TINY_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message.role == 'system' %}<|system|>{% elif message.role == 'user' %}<|user|>"
    "{% else %}<|assistant|>{% endif %}"
    "{{ message.content }}<|end|>"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def _letters_bias() -> NDArray[np.float32]:
    """Additive preference per token: mostly lower-case letters and the space, hardly ever a control token."""
    bias = np.full(TINY_PADDED_WIDTH, -17.0, np.float32)
    bias[0x21:0x7F] = -8.0
    bias[ord("a") : ord("z") + 1] = 0.0
    bias[[ord(c) for c in "etaoin"]] = 1.0
    bias[ord(" ")] = 5.0
    bias[ord("\n")] = -2.0
    bias[END:TINY_SIZE] = -30.0
    # Padding scores above everything, as untrained rows of a real head may.
    bias[TINY_SIZE:] = 30.0
    return bias


_BIAS = _letters_bias()
_COUNTERS = (np.arange(1, TINY_PADDED_WIDTH + 1, dtype=np.uint64)) * np.uint64(_GOLDEN)
_S30, _S27, _S31 = np.uint64(30), np.uint64(27), np.uint64(31)
_M1, _M2 = np.uint64(_MIX_1), np.uint64(_MIX_2)


def hash_push(state: int, token: int) -> int:
    """State after `token` follows the path that `state` stands for; start from `HASH_START`. O(1)."""
    z = (state * 0x2545F4914F6CDD1D + token + 1) & _MASK
    z = ((z ^ (z >> 30)) * _MIX_1) & _MASK
    return z ^ (z >> 29)


def state_logits(state: int, perturbation: float = 0.0) -> NDArray[np.float32]:
    """Logits after the path whose hash is `state`: float32 [264], a fresh array; the last four are garbage.

    `perturbation` ≥ 0 adds that much of an independent noise, as a draft model's error; the target is 0.
    Integer arithmetic, division and square root only, so every machine gives the same bits.
    """
    # splitmix64 over a counter: 64 fresh bits a token, the low half for the model, the high for the perturbation.
    z = _COUNTERS + np.uint64(state)
    z ^= z >> _S30
    z *= _M1
    z ^= z >> _S27
    z *= _M2
    z ^= z >> _S31
    halves = z.view(np.uint32).reshape(TINY_PADDED_WIDTH, 2)
    logits = _peaked(halves[:, 0]) + _BIAS
    if perturbation:
        logits += np.float32(perturbation) * _peaked(halves[:, 1])
    if (state >> 32) % _END_ONE_IN == 0:
        logits[END] = 30.0
    return logits


def _peaked(bits: NDArray[np.uint32]) -> NDArray[np.float32]:
    """Heavy-tailed noise from uniform bits: 2·(1 − u)^(−1/2), at most 20, so that one token usually stands out."""
    remaining = (bits >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24) + np.float32(0.01)
    peaked: NDArray[np.float32] = np.float32(2.0) / np.sqrt(remaining)
    return peaked


def tiny_logits(tokens: Sequence[int], perturbation: float = 0.0) -> NDArray[np.float32]:
    """Logits that follow `tokens`: float32 [264]. Costs O(len(tokens)); see `hash_push` for steps of O(1)."""
    state = HASH_START
    for token in tokens:
        state = hash_push(state, token)
    return state_logits(state, perturbation)


def tiny_vocabulary() -> Vocabulary:
    """The 256 bytes and four control tokens, of which `<|end|>` stops an answer. No merges."""
    control = (b"<|end|>", b"<|user|>", b"<|assistant|>", b"<|system|>")
    return Vocabulary(
        pieces=tuple(bytes([i]) for i in range(256)) + control,
        special_ids=frozenset(range(END, TINY_SIZE)),
        merges=(),
        normaliser="tiny:bytes",
        template=TINY_TEMPLATE,
        stop_ids=frozenset({END}),
        padded_width=TINY_PADDED_WIDTH,
    )


def tiny_tokenizer_files() -> dict[str, str]:
    """The same vocabulary as the tokenizer files of a Hugging Face model directory, by name."""
    pieces = tiny_vocabulary().pieces
    added = [
        {"id": i, "content": pieces[i].decode(), "special": True, "single_word": False}
        | {"lstrip": False, "rstrip": False, "normalized": False}
        for i in range(END, TINY_SIZE)
    ]
    stage = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    vocabulary = byte_of_character()
    model = {"type": "BPE", "vocab": vocabulary, "merges": [], "byte_fallback": False, "fuse_unk": False}
    tokenizer = {"version": "1.0", "added_tokens": added, "pre_tokenizer": stage, "decoder": stage, "model": model}
    return {
        "tokenizer.json": json.dumps(tokenizer),
        "tokenizer_config.json": json.dumps({"chat_template": TINY_TEMPLATE, "eos_token": "<|end|>"}),
    }
