"""Reads a `Vocabulary` from the tokenizer files of a Hugging Face model directory (byte-level BPE only). Plain JSON:
needs neither torch nor a tokenizer library.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from outrider.shared.byte_level import decode_piece
from outrider.shared.errors import OutriderError, Reason
from outrider.shared.vocabulary import Vocabulary

_TOKENIZER, _CONFIG, _GENERATION = "tokenizer.json", "config.json", "generation_config.json"


def read_vocabulary(directory: Path, padded_width: int | None = None) -> Vocabulary:
    """Vocabulary of the model in `directory`; `padded_width` defaults to the config's vocabulary size.

    Stop ids are the union of what generation_config.json, config.json and the tokenizer call the end of a sequence.
    Raises MODEL_UNSUPPORTED without tokenizer.json or for a tokenizer that is not byte-level BPE, FILE_UNREADABLE for a
    file that cannot be opened, MODEL_CORRUPT for one that does not hold what it should.
    """
    if not (directory / _TOKENIZER).is_file():
        raise OutriderError(Reason.MODEL_UNSUPPORTED, f"{directory.name} has no {_TOKENIZER}: no tokenizer to read.")
    tokenizer = _read_json(directory / _TOKENIZER)
    settings = _read_json(directory / "tokenizer_config.json", missing_ok=True)
    try:
        return _vocabulary(directory, tokenizer, settings, padded_width)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        detail = f"{directory.name}/{_TOKENIZER} is malformed: {type(error).__name__}: {error}."
        raise OutriderError(Reason.MODEL_CORRUPT, detail) from error


def _vocabulary(
    directory: Path, tokenizer: dict[str, Any], settings: dict[str, Any], padded_width: int | None
) -> Vocabulary:
    model = tokenizer["model"]
    _require_byte_level_bpe(directory, tokenizer)
    pieces: dict[int, bytes] = {token: decode_piece(text) for text, token in model["vocab"].items()}
    added: list[dict[str, Any]] = tokenizer.get("added_tokens") or []
    for entry in added:
        pieces[entry["id"]] = entry["content"].encode()
    size = max(pieces) + 1
    vocabulary = Vocabulary(
        # An id that no token has keeps no bytes.
        pieces=tuple(pieces.get(i, b"") for i in range(size)),
        special_ids=frozenset(e["id"] for e in added if e.get("special")),
        merges=tuple(m if isinstance(m, str) else " ".join(m) for m in model["merges"]),
        normaliser="hf:" + _canonical({k: tokenizer.get(k) for k in ("normalizer", "pre_tokenizer")}),
        template=_template(directory, settings),
        stop_ids=frozenset(_stop_ids(directory, settings, added)),
        padded_width=padded_width or _configured_width(directory) or size,
        bos_id=_id_of(settings.get("bos_token"), added),
        eos_id=_id_of(settings.get("eos_token"), added),
        adds_bos=bool(settings.get("add_bos_token")),
    )
    if vocabulary.padded_width < size:
        if padded_width is None:
            return dataclasses.replace(vocabulary, padded_width=size)
        detail = f"{directory.name}: the tokenizer has {size} ids, the model's head {padded_width} rows."
        raise OutriderError(Reason.MODEL_CORRUPT, detail)
    return vocabulary


def _require_byte_level_bpe(directory: Path, tokenizer: Mapping[str, Any]) -> None:
    kind = tokenizer["model"].get("type")
    stages = {stage.get("type") for key in ("pre_tokenizer", "decoder") for stage in _stages(tokenizer.get(key))}
    if kind != "BPE" or "ByteLevel" not in stages or tokenizer["model"].get("byte_fallback"):
        found = f"{kind} with {', '.join(sorted(str(s) for s in stages)) or 'no byte-level stage'}"
        detail = f"{directory.name}: only byte-level BPE tokenizers are supported, this one is {found}."
        raise OutriderError(Reason.MODEL_UNSUPPORTED, detail)


def _stages(stage: dict[str, Any] | None) -> Iterator[dict[str, Any]]:
    """A pre-tokenizer or decoder and, for a sequence, everything inside it."""
    if stage is None:
        return
    yield stage
    for inner in (*stage.get("pretokenizers", ()), *stage.get("decoders", ())):
        yield from _stages(inner)


def _stop_ids(directory: Path, settings: Mapping[str, Any], added: list[dict[str, Any]]) -> Iterator[int]:
    for name in (_GENERATION, _CONFIG):
        config = _read_json(directory / name, missing_ok=True)
        found = config.get("eos_token_id")
        if found is None and isinstance(config.get("text_config"), dict):
            found = config["text_config"].get("eos_token_id")
        if isinstance(found, list):
            yield from (int(i) for i in found)
        elif found is not None:
            yield int(found)
    end = _id_of(settings.get("eos_token"), added)
    if end is not None:
        yield end


def _id_of(token: Any, added: list[dict[str, Any]]) -> int | None:
    """Id of a token that the settings name by its text, or by an object that holds it."""
    text = token.get("content") if isinstance(token, dict) else token
    return next((int(entry["id"]) for entry in added if entry["content"] == text), None)


def _template(directory: Path, settings: Mapping[str, Any]) -> str:
    """The chat template: its own file first, as `transformers` reads it, else the default one of the settings."""
    path = directory / "chat_template.jinja"
    if path.is_file():
        return _read_text(path)
    found = settings.get("chat_template")
    if isinstance(found, list):
        found = next((t["template"] for t in found if t.get("name") == "default"), None)
    return found if isinstance(found, str) else ""


def _configured_width(directory: Path) -> int | None:
    config = _read_json(directory / _CONFIG, missing_ok=True)
    width = config.get("vocab_size") or (config.get("text_config") or {}).get("vocab_size")
    return int(width) if width is not None else None


def _canonical(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise OutriderError(Reason.FILE_UNREADABLE, f"{path.name}: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise OutriderError(Reason.MODEL_CORRUPT, f"{path.name} is not UTF-8 text.") from error


def _read_json(path: Path, missing_ok: bool = False) -> dict[str, Any]:
    if missing_ok and not path.is_file():
        return {}
    text = _read_text(path)
    try:
        value = json.loads(text)
    except ValueError as error:
        raise OutriderError(Reason.MODEL_CORRUPT, f"{path.name} is not JSON: {error}.") from error
    if not isinstance(value, dict):
        raise OutriderError(Reason.MODEL_CORRUPT, f"{path.name} holds no JSON object.")
    return value
