"""The target's tokenizer on the device: plain text to ids by llama.cpp or the `tokenizers` library, control tokens
only where the chat template put them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Protocol

from outrider.shared.errors import OutriderError, Reason
from outrider.shared.vocabulary import Vocabulary
from outrider.shared.vocabulary_gguf import read_vocabulary as read_gguf_vocabulary
from outrider.shared.vocabulary_hf import read_vocabulary as read_hf_vocabulary


class PlainTokenizer(Protocol):
    """Turns text without control tokens into ids."""

    @property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary that the ids are of."""
        ...

    def encode(self, text: str) -> list[int]:
        """Ids of `text`; nothing is added and nothing in it becomes a control id."""
        ...


class LlamaTokenizer:
    """A GGUF file's tokenizer; the file needs no tensors."""

    def __init__(self, path: Path) -> None:
        from outrider.shared.llama.runtime import LlamaModel  # noqa: PLC0415 - a verifier may need no llama.cpp

        self._model = LlamaModel(path, vocabulary_only=True)
        self.vocabulary = read_gguf_vocabulary(path)

    def encode(self, text: str) -> list[int]:
        """See `PlainTokenizer.encode`."""
        return self._model.tokenize(text)


class JsonTokenizer:
    """The `tokenizer.json` in `folder`, read by the `tokenizers` library."""

    def __init__(self, folder: Path, padded_width: int) -> None:
        try:
            import tokenizers  # noqa: PLC0415 - only targets in that format need it
        except ImportError:
            raise OutriderError(
                Reason.USAGE, "this verifier's tokenizer needs a package: pip install tokenizers."
            ) from None
        self.vocabulary = read_hf_vocabulary(folder, padded_width)
        try:
            self._tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        except Exception as error:  # the library raises nothing more special
            raise OutriderError(Reason.MODEL_CORRUPT, f"{folder}/tokenizer.json: {error}.") from None
        self._tokenizer.encode_special_tokens = True

    def encode(self, text: str) -> list[int]:
        """See `PlainTokenizer.encode`."""
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)


class ControlSplitter:
    """Finds the literal text of control tokens, longest first."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.id_of_text = {vocabulary.pieces[i].decode("utf-8", "replace"): i for i in sorted(vocabulary.special_ids)}
        texts = sorted(filter(None, self.id_of_text), key=len, reverse=True)
        self._pattern = re.compile("(" + "|".join(map(re.escape, texts)) + ")") if texts else None

    def split(self, text: str) -> list[str]:
        """`text` cut so that each control token's text is a part of its own; empty parts are left out."""
        return [part for part in self._pattern.split(text) if part] if self._pattern else [text]

    def defuse(self, text: str, marker: str) -> str:
        """`text` with `marker` after each character of anything that looks like a control token, so that no control
        token within it, or one that begins in it, is left either.
        """
        if self._pattern is None:
            return text
        return self._pattern.sub(lambda match: "".join(character + marker for character in match[0]), text)
