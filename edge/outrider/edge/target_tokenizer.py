"""Fetches the target's tokenizer from the verifier, once: it is kept under the name of its digest."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import tempfile
from pathlib import Path

from outrider.edge.chat_template import ChatTemplate
from outrider.edge.link import VerifierClient
from outrider.edge.tokenizer import JsonTokenizer, LlamaTokenizer, PlainTokenizer
from outrider.shared.errors import OutriderError, Reason
from outrider.shared.files import write_whole
from outrider.shared.messages import VerifierInfo
from outrider.shared.paths import cache_dir
from outrider.shared.tokenizer_asset import HUGGING_FACE_FILES, TokenizerAsset, TokenizerFormat, unpack_files

logger = logging.getLogger(__name__)

FOLDER = "tokenizers"
GGUF_FILE = "tokenizer.gguf"


async def fetch_tokenizer(client: VerifierClient, info: VerifierInfo) -> tuple[PlainTokenizer, ChatTemplate]:
    """The target's tokenizer and chat template; what arrives must be what the verifier declared.

    Raises VOCABULARY_MISMATCH if it is not, and what the verifier or the file answers.
    """
    folder = cache_dir() / FOLDER / hashlib.sha256(info.tokenizer_digest.encode()).hexdigest()[:32]
    tokenizer = await asyncio.to_thread(_load, folder, info)
    if tokenizer is None:
        asset = await client.get_tokenizer()
        if hashlib.sha256(asset.data).hexdigest() != info.tokenizer_digest:
            raise OutriderError(Reason.VOCABULARY_MISMATCH, "the tokenizer is not the one that GetInfo declares.")
        tokenizer = await asyncio.to_thread(_keep_and_load, folder, asset, info)
    if tokenizer is None:
        raise OutriderError(Reason.VOCABULARY_MISMATCH, "the verifier's tokenizer does not fit its fingerprint.")
    return tokenizer, ChatTemplate(tokenizer, tokenizer.vocabulary.template)


def _load(folder: Path, info: VerifierInfo) -> PlainTokenizer | None:
    """The tokenizer kept in `folder`, or None if there is none that fits."""
    tokenizer: PlainTokenizer
    try:
        if (folder / GGUF_FILE).is_file():
            tokenizer = LlamaTokenizer(folder / GGUF_FILE)
        elif (folder / HUGGING_FACE_FILES[0]).is_file():
            tokenizer = JsonTokenizer(folder, info.fingerprint.padded_width)
        else:
            return None
    except OutriderError as error:
        if error.reason is Reason.USAGE:
            raise
        return None
    difference = tokenizer.vocabulary.fingerprint.first_difference(info.fingerprint)
    return tokenizer if difference is None else None


def _keep_and_load(folder: Path, asset: TokenizerAsset, info: VerifierInfo) -> PlainTokenizer | None:
    """Load what has arrived; it is kept unless the cache folder cannot be written to."""
    try:
        _store(folder, asset)
        return _load(folder, info)
    except OSError as error:
        logger.warning("cannot keep the tokenizer in %s: %s", folder, error.strerror)
    with tempfile.TemporaryDirectory() as temporary:
        _store(Path(temporary), asset)
        return _load(Path(temporary), info)


def _store(folder: Path, asset: TokenizerAsset) -> None:
    """Put the tokenizer into `folder`, each file in one step, the one that is looked for last."""
    if asset.format is TokenizerFormat.GGUF:
        files = {GGUF_FILE: asset.data}
    else:
        unpacked = unpack_files(asset.data)
        files = {name: unpacked[name].encode() for name in reversed(HUGGING_FACE_FILES) if name in unpacked}
    for name, data in files.items():
        write_whole(folder / name, data)
