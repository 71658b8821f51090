"""A target's tokenizer as it travels to an edge: one file, or a few small ones packed into one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from outrider.shared.errors import OutriderError, Reason

# The files of a Hugging Face model directory that say how it tokenizes; nothing else is taken from a peer.
HUGGING_FACE_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "generation_config.json",
    "config.json",
)


class TokenizerFormat(StrEnum):
    """What the data is: a GGUF file without tensors, or a JSON object from file name to text."""

    GGUF = "gguf"
    HUGGING_FACE = "hugging-face"


@dataclass(frozen=True, slots=True)
class TokenizerAsset:
    """The bytes of a tokenizer."""

    format: TokenizerFormat
    data: bytes


def pack_files(files: Mapping[str, str]) -> TokenizerAsset:
    """An asset of `files`, by name."""
    return TokenizerAsset(TokenizerFormat.HUGGING_FACE, json.dumps(files, ensure_ascii=False).encode())


def pack_directory(directory: Path) -> TokenizerAsset:
    """An asset of the tokenizer files in a Hugging Face model directory."""
    present = [directory / name for name in HUGGING_FACE_FILES if (directory / name).is_file()]
    return pack_files({path.name: path.read_text("utf-8") for path in present})


def unpack_files(data: bytes) -> dict[str, str]:
    """The files of a `HUGGING_FACE` asset; raises PEER_VIOLATION if it holds anything else."""
    try:
        files = json.loads(data)
    except ValueError:
        files = None
    if not isinstance(files, dict) or not all(
        name in HUGGING_FACE_FILES and isinstance(text, str) for name, text in files.items()
    ):
        raise OutriderError(Reason.PEER_VIOLATION, "a tokenizer that is no set of tokenizer files.")
    return files
