"""Loads a causal language model through `transformers`, from a directory or a GGUF file, and refuses by name what
cannot be rolled back or cannot be served. It knows nothing of slots.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoConfig, AutoModelForCausalLM, GgufConfig
from transformers.cache_utils import DynamicCache, DynamicLayer
from transformers.utils import logging as transformers_logging

from outrider.cloud.targets.slot_cache import LayerShape
from outrider.shared import vocabulary_hf
from outrider.shared.errors import OutriderError, Reason
from outrider.shared.tokenizer_asset import TokenizerAsset, TokenizerFormat, pack_directory
from outrider.shared.vocabulary import Vocabulary

DtypeName = Literal["fp32", "bf16", "fp16"]
AttentionName = Literal["sdpa", "eager"]
DTYPES: dict[DtypeName, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
_FORWARD_NEEDS = ("input_ids", "attention_mask", "position_ids", "cache", "logits_to_keep")


def load_model(source: Path, dtype: DtypeName, device: str, attention: AttentionName, context_length: int) -> Any:
    """The model in evaluation mode, on `device` ("cpu", "cuda", "cuda:1", or "auto" to spread it).

    Raises MODEL_UNSUPPORTED by the name of what is not supported, FILE_UNREADABLE for a source that is not there, and
    MODEL_CORRUPT for one that does not load. Never downloads and never runs code from the model's files.
    """
    if not source.exists():
        raise OutriderError(Reason.FILE_UNREADABLE, f"{source}: no such file or directory.")
    if source.is_dir() and not (source / "config.json").is_file():
        raise OutriderError(Reason.FILE_UNREADABLE, f"{source.name} has no config.json.")
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise OutriderError(Reason.MODEL_UNSUPPORTED, f"device {device}: this machine has no CUDA device.")
    where, options = _where(source)
    with _reported(source), _quiet():
        config = AutoConfig.from_pretrained(where, local_files_only=True, **options)
    refuse_config(config, context_length)
    with _reported(source), _quiet():
        model, found = AutoModelForCausalLM.from_pretrained(
            where,
            dtype=DTYPES[dtype],
            attn_implementation=attention,
            local_files_only=True,
            device_map=None if device == "cpu" else ("auto" if device == "auto" else {"": device}),
            output_loading_info=True,
            **options,
            # Left packed, a quantised file would run on kernels of its own and ignore the dtype.
            **({} if source.is_dir() else {"quantization_config": GgufConfig(dequantize=True)}),
        )
    lacking = sorted(found.get("missing_keys", ())) + sorted(str(k) for k in found.get("mismatched_keys", ()))
    if lacking:
        detail = f"{source.name}: {len(lacking)} weights are missing or of another shape, first {lacking[0]}."
        raise OutriderError(Reason.MODEL_CORRUPT, detail)
    return model.eval()


def load_vocabulary(source: Path, padded_width: int) -> Vocabulary:
    """The vocabulary beside the weights; `padded_width` is the number of rows of the model's head."""
    if source.is_dir():
        return vocabulary_hf.read_vocabulary(source, padded_width)
    from outrider.shared import vocabulary_gguf  # noqa: PLC0415  # only a GGUF source needs it

    return dataclasses.replace(vocabulary_gguf.read_vocabulary(source), padded_width=padded_width)


def load_tokenizer_asset(source: Path) -> TokenizerAsset:
    """The tokenizer in its own form, for an edge to load."""
    if source.is_dir():
        return pack_directory(source)
    from outrider.shared.gguf_header import read_gguf_header  # noqa: PLC0415  # only a GGUF source needs it

    return TokenizerAsset(TokenizerFormat.GGUF, read_gguf_header(source).without_tensors())


def refuse_config(config: Any, context_length: int) -> None:
    """Raise MODEL_UNSUPPORTED naming the first property of `config` that slots with rollback cannot serve."""
    kind = config.model_type
    if config.is_encoder_decoder:
        raise OutriderError(Reason.MODEL_UNSUPPORTED, f"{kind} is an encoder-decoder model.")
    model_class = MODEL_FOR_CAUSAL_LM_MAPPING.get(type(config), None)
    if model_class is None:
        raise OutriderError(Reason.MODEL_UNSUPPORTED, f"{kind} is not a causal language model.")
    if getattr(model_class, "_is_stateful", False):
        detail = f"{kind} has recurrent or hybrid layers: their state cannot be rolled back."
        raise OutriderError(Reason.MODEL_UNSUPPORTED, detail)
    for layer in DynamicCache(config=config).layers:
        if getattr(layer, "is_sliding", False):
            raise OutriderError(Reason.MODEL_UNSUPPORTED, f"{kind} has sliding-window layers: no rollback.")
        if type(layer) is not DynamicLayer:
            detail = f"{kind} has layers with a {type(layer).__name__}: only full attention is supported."
            raise OutriderError(Reason.MODEL_UNSUPPORTED, detail)
    missing = [n for n in _FORWARD_NEEDS if n not in inspect.signature(model_class.forward).parameters]
    if missing:
        raise OutriderError(Reason.MODEL_UNSUPPORTED, f"{kind}: its forward takes no {', '.join(missing)}.")
    limit = getattr(config.get_text_config(decoder=True), "max_position_embeddings", None)
    if limit is not None and context_length > limit:
        detail = f"{kind} has {limit} positions, {context_length} were asked for."
        raise OutriderError(Reason.MODEL_UNSUPPORTED, detail)


@torch.inference_mode()
def layer_shapes(model: Any) -> list[LayerShape]:
    """What each layer caches, found by a pass of one token through the library's own cache."""
    cache = DynamicCache(config=model.config)
    model(input_ids=torch.zeros((1, 1), dtype=torch.long, device=model.device), cache=cache, use_cache=True)
    if not all(layer.is_initialized for layer in cache.layers):
        detail = f"{model.config.model_type} has layers that cache nothing."
        raise OutriderError(Reason.MODEL_UNSUPPORTED, detail)
    return [
        LayerShape(
            heads=layer.keys.shape[1],
            key_width=layer.keys.shape[3],
            value_width=layer.values.shape[3],
            dtype=layer.keys.dtype,
            device=layer.keys.device,
        )
        for layer in cache.layers
    ]


def _where(source: Path) -> tuple[str, dict[str, str]]:
    """Directory and extra options for `from_pretrained`."""
    if source.is_dir():
        return str(source), {}
    return str(source.parent), {"gguf_file": source.name}


@contextmanager
def _reported(source: Path) -> Iterator[None]:
    """Turn what the libraries raise over a bad source into a typed error that keeps their reason."""
    try:
        yield
    except OutriderError:
        raise
    except OSError as error:
        raise OutriderError(Reason.FILE_UNREADABLE, f"{source.name}: {_first_line(error)}") from error
    except ImportError as error:
        raise OutriderError(Reason.MODEL_UNSUPPORTED, f"{source.name}: {_first_line(error)}") from error
    except Exception as error:
        text = str(error)
        unknown = any(mark in text for mark in ("model type", "Unrecognized", "not supported", "GGUF model with"))
        reason = Reason.MODEL_UNSUPPORTED if unknown else Reason.MODEL_CORRUPT
        raise OutriderError(reason, f"{source.name}: {type(error).__name__}: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the library's progress bars, which would write over a terminal that is ours."""
    shown = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            transformers_logging.enable_progress_bar()
