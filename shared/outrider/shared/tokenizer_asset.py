"""A target's tokenizer as it travels to an edge: a file in one of two formats, and the chat template."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class TokenizerFormat(StrEnum):
    """What the file is."""

    GGUF = "gguf"
    TOKENIZER_JSON = "tokenizer.json"


@dataclass(frozen=True, slots=True)
class TokenizerAsset:
    """The bytes of a tokenizer file; for `TOKENIZER_JSON` the template is not in the file."""

    format: TokenizerFormat
    chat_template: str
    data: bytes
