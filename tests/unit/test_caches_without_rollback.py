"""Models whose cache cannot forget its newest tokens are refused by what they are when they are loaded, as a target and
as a drafter; nobody finds out by wrong text.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest

from outrider.cloud.targets.llama_cpp import LlamaCppEngine
from outrider.edge.drafters.llama_cpp import LlamaDrafter
from outrider.shared.errors import Reason
from support.refusal import refused
from support.tiny_model import tiny_tokenizer

HIDDEN, HEADS, HEAD, FEED, WINDOW = 32, 2, 16, 64, 16
INNER, CONV, STATE, RANK = 64, 4, 8, 4


def _writer(path: Path, kind: str) -> gguf.GGUFWriter:
    tokenizer = tiny_tokenizer()
    writer = gguf.GGUFWriter(path, kind)
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(1)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(list(tokenizer.tokens))
    writer.add_token_types([gguf.TokenType.NORMAL] * len(tokenizer.tokens))
    writer.add_token_merges(list(tokenizer.merges))
    writer.add_eos_token_id(tokenizer.id_of("<|im_end|>"))
    return writer


def _write(writer: gguf.GGUFWriter, shapes: dict[str, tuple[int, ...]]) -> None:
    generator = np.random.default_rng(1)
    shapes |= {"token_embd.weight": (len(tiny_tokenizer().tokens), HIDDEN), "output_norm.weight": (HIDDEN,)}
    for name, shape in shapes.items():
        writer.add_tensor(name, generator.standard_normal(shape, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def sliding(path: Path) -> None:
    """Gemma 2: every other layer sees the last tokens only."""
    writer = _writer(path, "gemma2")
    writer.add_feed_forward_length(FEED)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_key_length(HEAD)
    writer.add_value_length(HEAD)
    writer.add_sliding_window(WINDOW)
    writer.add_attn_logit_softcapping(50.0)
    writer.add_final_logit_softcapping(30.0)
    norms = ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")
    shapes: dict[str, tuple[int, ...]] = {f"blk.0.{name}.weight": (HIDDEN,) for name in norms}
    shapes |= {f"blk.0.attn_{name}.weight": (HEADS * HEAD, HIDDEN) for name in "qkv"}
    shapes |= {"blk.0.attn_output.weight": (HIDDEN, HEADS * HEAD), "blk.0.ffn_down.weight": (HIDDEN, FEED)}
    _write(writer, shapes | {f"blk.0.ffn_{name}.weight": (FEED, HIDDEN) for name in ("gate", "up")})


def recurrent(path: Path) -> None:
    """Mamba: all that it has read is one state."""
    writer = _writer(path, "mamba")
    writer.add_feed_forward_length(0)
    writer.add_head_count(0)
    writer.add_ssm_conv_kernel(CONV)
    writer.add_ssm_inner_size(INNER)
    writer.add_ssm_state_size(STATE)
    writer.add_ssm_time_step_rank(RANK)
    shapes: dict[str, tuple[int, ...]] = {
        "attn_norm.weight": (HIDDEN,),
        "ssm_in.weight": (2 * INNER, HIDDEN),
        "ssm_conv1d.weight": (INNER, CONV),
        "ssm_conv1d.bias": (INNER,),
        "ssm_x.weight": (RANK + 2 * STATE, INNER),
        "ssm_dt.weight": (INNER, RANK),
        "ssm_dt.bias": (INNER,),
        "ssm_a": (INNER, STATE),
        "ssm_d": (INNER,),
        "ssm_out.weight": (HIDDEN, INNER),
    }
    _write(writer, {f"blk.0.{name}": shape for name, shape in shapes.items()})


KINDS: dict[str, tuple[Callable[[Path], None], str]] = {
    "sliding": (sliding, "a model with sliding-window attention cannot take back rejected tokens"),
    "recurrent": (recurrent, "a recurrent model cannot take back rejected tokens"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_refused_by_name_at_load_as_target_and_as_drafter(kind: str, tmp_path: Path) -> None:
    write, words = KINDS[kind]
    path = tmp_path / f"{kind}.gguf"
    write(path)
    with refused(Reason.MODEL_UNSUPPORTED, f"{kind}.gguf", words):
        LlamaCppEngine(path, numerics="fast", context_length=64, threads=1)
    with refused(Reason.MODEL_UNSUPPORTED, f"{kind}.gguf", words):
        LlamaDrafter(path, context_length=64)
