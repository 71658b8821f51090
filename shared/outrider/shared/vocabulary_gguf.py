"""Reads a model's vocabulary out of a GGUF file's metadata, without loading the model."""

from __future__ import annotations

from pathlib import Path

from outrider.shared.byte_level import decode_piece
from outrider.shared.errors import OutriderError, Reason
from outrider.shared.gguf_header import GgufHeader, read_gguf_header
from outrider.shared.vocabulary import Vocabulary

# Token types of the GGUF specification.
_CONTROL, _USER_DEFINED, _UNUSED, _BYTE = 3, 4, 5, 6
_STOP_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")
_SPACE = "\u2581"


def read_vocabulary(path: Path) -> Vocabulary:
    """The vocabulary of the GGUF file at `path`.

    Raises FILE_UNREADABLE, MODEL_CORRUPT, or MODEL_UNSUPPORTED for a file that holds no tokenizer.
    """
    return vocabulary_of_header(read_gguf_header(path), str(path))


def vocabulary_of_header(header: GgufHeader, where: str) -> Vocabulary:
    """The vocabulary that a GGUF header describes; `where` names the file in errors."""
    texts = header.strings("tokenizer.ggml.tokens")
    types = header.integers("tokenizer.ggml.token_type")
    if not texts:
        raise OutriderError(Reason.MODEL_UNSUPPORTED, f"{where}: the file holds no tokenizer.")
    if types and len(types) != len(texts):
        raise OutriderError(Reason.MODEL_CORRUPT, f"{where}: {len(texts)} tokens but {len(types)} token types.")
    types = types or [1] * len(texts)
    real_width = len(texts)
    while real_width and types[real_width - 1] == _UNUSED:
        real_width -= 1
    model = header.text("tokenizer.ggml.model")
    spell = _byte_level_piece if model == "gpt2" else _sentencepiece_piece
    stop_ids = frozenset(value for key in _STOP_KEYS if (value := header.integer(f"tokenizer.ggml.{key}")) is not None)
    bos_id = header.integer("tokenizer.ggml.bos_token_id")
    named = [("stop id", stop_id) for stop_id in stop_ids] + [("bos id", bos_id)] * (bos_id is not None)
    for name, control_id in named:
        if control_id is None or not 0 <= control_id < real_width:
            raise OutriderError(Reason.MODEL_CORRUPT, f"{where}: {name} {control_id} of {real_width} tokens.")
    try:
        return Vocabulary(
            pieces=[spell(texts[i], types[i]) for i in range(real_width)],
            special_ids=frozenset(i for i in range(real_width) if types[i] == _CONTROL),
            merges=[merge.decode() for merge in header.strings("tokenizer.ggml.merges")],
            normaliser=f"gguf:{model}:{header.text('tokenizer.ggml.pre')}",
            template=header.text("tokenizer.chat_template"),
            stop_ids=stop_ids,
            padded_width=len(texts),
            bos_id=bos_id,
            eos_id=header.integer("tokenizer.ggml.eos_token_id"),
            adds_bos=bool(header.values.get("tokenizer.ggml.add_bos_token", model == "llama")),
        )
    except ValueError as error:
        raise OutriderError(Reason.MODEL_CORRUPT, f"{where}: a piece or a merge spells nothing ({error}).") from None


def _byte_level_piece(text: bytes, kind: int) -> bytes:
    return text if kind in (_CONTROL, _USER_DEFINED) else decode_piece(text.decode("utf-8", "replace"))


def _sentencepiece_piece(text: bytes, kind: int) -> bytes:
    if kind == _BYTE:
        return bytes([int(text[3:5], 16)])
    return text if kind == _CONTROL else text.decode("utf-8", "replace").replace(_SPACE, " ").encode()
