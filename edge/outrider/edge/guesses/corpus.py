"""A text of the user's (sources, a document, earlier answers) that lookups search beside prompt and answer."""

from __future__ import annotations

import logging
import time
from pathlib import Path

from outrider.edge.tokenizer import PlainTokenizer
from outrider.shared.corpus_index import CorpusIndex
from outrider.shared.errors import OutriderError, Reason

logger = logging.getLogger(__name__)

# Some two million tokens: five seconds of a CPU core to tokenize and to sort, and 120 MB meanwhile.
MAX_BYTES = 8 << 20


def load_corpus(path: Path, tokenizer: PlainTokenizer) -> CorpusIndex:
    """Read, tokenize and sort a UTF-8 text file, which takes seconds; raises FILE_UNREADABLE."""
    begun_s = time.perf_counter()
    corpus = CorpusIndex(tokenizer.encode(_read(path)))
    logger.info("%s: %d tokens to look up in %.1f s", path, len(corpus), time.perf_counter() - begun_s)
    return corpus


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise OutriderError(
                Reason.FILE_UNREADABLE, f"{path}: a text to look up has {MAX_BYTES >> 20} MiB at most; this has more."
            )
        # Models write line feeds only.
        return content.decode("utf-8-sig").replace("\r\n", "\n")
    except (OSError, ValueError) as error:
        raise OutriderError(Reason.FILE_UNREADABLE, f"{path}: {error}.") from None
