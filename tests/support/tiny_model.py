"""Builds a tiny random Qwen2-architecture model and saves it as a Hugging Face directory and as a GGUF file that share
one vocabulary, so that real engines can be tested without downloads. Random weights: its text means nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from outrider.shared.byte_level import byte_of_character

HIDDEN, LAYERS, HEADS, KV_HEADS, INTERMEDIATE, CONTEXT = 64, 3, 4, 2, 128, 512
ROPE_THETA, NORM_EPS = 10_000.0, 1e-6
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
# Ġ is the byte-level spelling of the space.
MERGES = (
    "t h", "th e", "i n", "e r", "a n", "o n", "r e", "Ġ t", "Ġ a", "Ġ s", "in g", "e d", "o u",
    "a t", "e n", "Ġ w", "an d", "Ġ the", "i s", "o r", "Ġ and",
)  # fmt: skip
# Qwen2's pre-tokenizer; must be the one that llama.cpp has under the name "qwen2".
PRE_TOKENIZER_REGEX = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True)
class TinyTokenizer:
    """Token texts in byte-level spelling by id; the specials follow the merged tokens, padding is not listed."""

    tokens: tuple[str, ...]
    merges: tuple[str, ...]

    @property
    def first_special(self) -> int:
        """Id of the first special token."""
        return len(self.tokens) - len(SPECIAL)

    @property
    def padded_width(self) -> int:
        """Rows of the head: the real ids rounded up to a multiple of 8, and at least one more."""
        return len(self.tokens) // 8 * 8 + 8

    def id_of(self, token: str) -> int:
        """Id of a token by its spelling."""
        return self.tokens.index(token)


def byte_spelling() -> list[str]:
    """The printable character for each byte value, by value."""
    return sorted(byte_of_character(), key=byte_of_character().__getitem__)


def tiny_tokenizer() -> TinyTokenizer:
    """256 bytes, the merged tokens and three specials."""
    tokens = [*byte_spelling(), *(m.replace(" ", "") for m in MERGES), *SPECIAL]
    return TinyTokenizer(tuple(tokens), MERGES)


def build_model(seed: int = 8, tied: bool = False) -> Qwen2ForCausalLM:
    """Random fp32 weights, scaled so that greedy text wanders instead of repeating one token.

    Rows of the head are larger for printable bytes, so most of the text can be read, and as large for padding,
    so that a reader who does not mask the padding notices.
    """
    tokenizer = tiny_tokenizer()
    stop = tokenizer.id_of("<|im_end|>")
    config = Qwen2Config(
        vocab_size=tokenizer.padded_width,
        hidden_size=HIDDEN,
        intermediate_size=INTERMEDIATE,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        max_position_embeddings=CONTEXT,
        rms_norm_eps=NORM_EPS,
        tie_word_embeddings=tied,
        rope_parameters={"rope_type": "default", "rope_theta": ROPE_THETA},
        bos_token_id=None,
        eos_token_id=stop,
        pad_token_id=tokenizer.id_of("<|endoftext|>"),
        use_sliding_window=False,
        dtype="float32",
    )
    model = Qwen2ForCausalLM(config).eval()
    model.generation_config.eos_token_id = stop
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.copy_(_initial(name, weight, generator))
        if not tied:
            model.lm_head.weight.mul_(_head_scale(tokenizer)[:, None])
    return model


def _initial(name: str, weight: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    noise: torch.Tensor = torch.randn(weight.shape, generator=generator)
    if "norm" in name:
        return 1.0 + 0.1 * noise
    if name.endswith("bias"):
        return 0.3 * noise
    if "embed" in name:
        return noise
    gain = {"q_proj": 2.0, "k_proj": 2.0, "lm_head": 3.0}
    scale = next((g for part, g in gain.items() if part in name), 1.2)
    return noise * float(scale / weight.shape[-1] ** 0.5)


def _head_scale(tokenizer: TinyTokenizer) -> torch.Tensor:
    scale = torch.ones(tokenizer.padded_width)
    scale[:256] = 0.4
    scale[0x20:0x7F] = 1.0
    scale[tokenizer.first_special : len(tokenizer.tokens)] = 0.3
    scale[tokenizer.id_of("<|im_end|>")] = 0.9
    return scale


def perturbed(model: Qwen2ForCausalLM, sigma: float, seed: int = 1001) -> Qwen2ForCausalLM:
    """A copy whose weights have noise of `sigma` standard deviations of each tensor added: a draft model."""
    copy = Qwen2ForCausalLM(model.config).eval()
    copy.load_state_dict(model.state_dict())
    copy.generation_config = model.generation_config
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in copy.parameters():
            weight.add_(torch.randn(weight.shape, generator=generator) * (sigma * weight.std()))
    return copy


def save_hf(model: Qwen2ForCausalLM, directory: Path) -> Path:
    """Write weights, config, tokenizer.json, tokenizer_config.json into `directory`; returns it."""
    model.save_pretrained(directory)
    tokenizer = tiny_tokenizer()
    first = tokenizer.first_special
    added: list[dict[str, Any]] = [
        {"id": first + i, "content": text, "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False, "special": True}
        for i, text in enumerate(SPECIAL)
    ]  # fmt: skip
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    split = {"type": "Split", "pattern": {"Regex": PRE_TOKENIZER_REGEX}, "behavior": "Isolated", "invert": False}
    tokenizer_json = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
        "post_processor": byte_level,
        "decoder": byte_level,
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "",
            "end_of_word_suffix": "", "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
            "vocab": {text: i for i, text in enumerate(tokenizer.tokens[:first])},
            "merges": list(tokenizer.merges),
        },
    }  # fmt: skip
    _write_json(directory / "tokenizer.json", tokenizer_json)
    _write_json(
        directory / "tokenizer_config.json",
        {
            "tokenizer_class": "Qwen2Tokenizer",
            "eos_token": "<|im_end|>",
            "pad_token": "<|endoftext|>",
            "model_max_length": CONTEXT,
            "chat_template": TEMPLATE,
        },
    )
    return directory


def save_gguf(model: Qwen2ForCausalLM, path: Path, weights: gguf.GGMLQuantizationType | None = None) -> Path:
    """Write the same model as a GGUF file that llama.cpp loads, matrices in F32 or as `weights`; returns `path`."""
    tokenizer = tiny_tokenizer()
    writer = gguf.GGUFWriter(path, "qwen2")
    writer.add_name("tiny")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INTERMEDIATE)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(NORM_EPS)
    writer.add_rope_freq_base(ROPE_THETA)
    width, real, first = tokenizer.padded_width, len(tokenizer.tokens), tokenizer.first_special
    kinds = [gguf.TokenType.NORMAL] * first + [gguf.TokenType.CONTROL] * len(SPECIAL)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    # llama.cpp takes the width of the head from this list, so padding is listed as published files list it.
    writer.add_token_list([*tokenizer.tokens, *(f"[PAD{i}]" for i in range(real, width))])
    writer.add_token_types([*kinds, *[gguf.TokenType.UNUSED] * (width - real)])
    writer.add_token_merges(list(tokenizer.merges))
    writer.add_eos_token_id(tokenizer.id_of("<|im_end|>"))
    writer.add_pad_token_id(tokenizer.id_of("<|endoftext|>"))
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)
    for name, tensor in _gguf_tensors(model):
        if weights is None or tensor.ndim == 1:
            writer.add_tensor(name, tensor)
        else:
            writer.add_tensor(name, gguf.quants.quantize(tensor, weights), raw_dtype=weights)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _gguf_tensors(model: Qwen2ForCausalLM) -> Iterable[tuple[str, np.ndarray[Any, np.dtype[np.float32]]]]:
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN2, LAYERS)
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and model.config.tie_word_embeddings:
            continue
        target = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert target is not None, name
        yield target, tensor.to(torch.float32).contiguous().numpy()


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1), encoding="utf-8")
