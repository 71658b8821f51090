"""A llama.cpp model and a context over it, through the low-level binding: batches of rows in, logits out, and the
cache operations that rollback needs. It knows nothing of trees, slots or drafting.
"""

from __future__ import annotations

import ctypes
import logging
import os
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outrider.shared.compute_threads import wait_without_spinning
from outrider.shared.errors import OutriderError, Reason

wait_without_spinning()

import llama_cpp  # noqa: E402 - it reads how to wait when it is loaded

logger = logging.getLogger(__name__)

_WARN_LEVEL = 3
_FLASH_ATTENTION_ON = 1
_recent_problems: deque[str] = deque(maxlen=4)


def _keep_problem(level: int, text: bytes, _user_data: ctypes.c_void_p) -> None:
    line = text.decode("utf-8", "replace").strip()
    if level >= _WARN_LEVEL and len(line) > 1:
        _recent_problems.append(line)
        logger.debug("llama.cpp: %s", line)


# The library keeps only a pointer: the callback must outlive it, so it lives in the module.
_log_callback = llama_cpp.llama_log_callback(_keep_problem)
llama_cpp.llama_log_set(_log_callback, ctypes.c_void_p(0))


class LlamaModel:
    """A loaded GGUF file. Close it, or use it as a context manager; contexts must be closed first."""

    def __init__(self, path: Path, *, vocabulary_only: bool = False, repack: bool = True, gpu_layers: int = 0) -> None:
        """Load `path`. `repack` allows kernels that are faster but depend on the number of rows.

        Raises FILE_UNREADABLE, or MODEL_CORRUPT with the library's own words.
        """
        if not path.is_file():
            raise OutriderError(Reason.FILE_UNREADABLE, f"{path}: no such file.")
        params = llama_cpp.llama_model_default_params()
        params.vocab_only = vocabulary_only
        params.use_extra_bufts = repack
        params.n_gpu_layers = gpu_layers
        _recent_problems.clear()
        self._handle = llama_cpp.llama_model_load_from_file(os.fsencode(path), params)
        if not self._handle:
            problems = "; ".join(_recent_problems) or "llama.cpp could not load it"
            raise OutriderError(Reason.MODEL_CORRUPT, f"{path}: {problems}.")
        self.path = path
        self.width: int = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self._handle))

    @property
    def handle(self) -> Any:
        """The library's pointer to the model."""
        assert self._handle is not None, "the model is closed"
        return self._handle

    @property
    def trained_context_length(self) -> int:
        """Positions that the model was trained for."""
        return int(llama_cpp.llama_model_n_ctx_train(self.handle))

    def check_can_roll_back(self) -> None:
        """Raise MODEL_UNSUPPORTED, by name, for a model whose cache cannot forget its newest tokens."""
        for refused, kind in (
            (llama_cpp.llama_model_is_recurrent(self.handle), "a recurrent model"),
            (llama_cpp.llama_model_is_hybrid(self.handle), "a hybrid recurrent model"),
            (llama_cpp.llama_model_has_encoder(self.handle), "an encoder-decoder model"),
            (llama_cpp.llama_model_n_swa(self.handle) > 0, "a model with sliding-window attention"),
        ):
            if refused:
                raise OutriderError(
                    Reason.MODEL_UNSUPPORTED, f"{self.path.name}: {kind} cannot take back rejected tokens."
                )

    def tokenize(self, text: str) -> list[int]:
        """Ids of plain `text`: nothing is added, and the text of control tokens stays text."""
        data = text.encode()
        vocabulary = llama_cpp.llama_model_get_vocab(self.handle)
        room = len(data) + 8
        buffer = (llama_cpp.llama_token * room)()
        count = llama_cpp.llama_tokenize(vocabulary, data, len(data), buffer, room, False, False)
        assert count >= 0, "no token is shorter than a byte"
        return list(buffer[:count])

    def close(self) -> None:
        """Free the model; may be called twice."""
        if self._handle:
            llama_cpp.llama_model_free(self._handle)
            self._handle = None


@dataclass(frozen=True, slots=True)
class Row:
    """One token of a batch: where it stands, whose sequence it extends, and whether its logits are wanted."""

    token: int
    position: int
    sequence: int
    want_logits: bool


class LlamaContext:
    """Cache and compute buffers over a model: `sequences` separate streams of `length` positions each; or,
    with `shared_cells`, sequences that may hold the same cells, of which there are so many.

    `micro_batch` bounds the rows that one kernel call sees. Rows of one `decode` call must be grouped by sequence
    and stand in position order.
    """

    def __init__(
        self,
        model: LlamaModel,
        *,
        length: int,
        sequences: int = 1,
        batch: int = 512,
        micro_batch: int = 512,
        threads: int = 0,
        shared_cells: int = 0,
    ) -> None:
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = shared_cells or length * sequences
        params.n_seq_max = sequences
        params.n_batch = batch
        params.n_ubatch = min(micro_batch, batch)
        params.n_threads = params.n_threads_batch = threads or os.cpu_count() or 1
        params.flash_attn_type = _FLASH_ATTENTION_ON
        params.kv_unified = shared_cells > 0
        params.no_perf = True
        _recent_problems.clear()
        self._handle = llama_cpp.llama_init_from_model(model.handle, params)
        if not self._handle:
            problems = "; ".join(_recent_problems) or "not enough memory?"
            raise OutriderError(Reason.MODEL_UNSUPPORTED, f"{model.path.name}: no context: {problems}.")
        self.batch_size = batch
        self.length = length if shared_cells else int(llama_cpp.llama_n_ctx_seq(self._handle))
        self._width = model.width
        self._memory = llama_cpp.llama_get_memory(self._handle)
        self._batch = llama_cpp.llama_batch_init(batch, 0, 1)
        self._tokens = np.ctypeslib.as_array(self._batch.token, shape=(batch,))
        self._positions = np.ctypeslib.as_array(self._batch.pos, shape=(batch,))
        self._wanted = np.ctypeslib.as_array(self._batch.logits, shape=(batch,))
        for index in range(batch):
            self._batch.n_seq_id[index] = 1

    def decode(self, rows: Sequence[Row]) -> None:
        """Evaluate `rows` in one call; raises INTERNAL if the library refuses (our bug: limits are checked before)."""
        count = len(rows)
        assert 0 < count <= self.batch_size
        self._tokens[:count] = [row.token for row in rows]
        self._positions[:count] = [row.position for row in rows]
        self._wanted[:count] = [row.want_logits for row in rows]
        for index, row in enumerate(rows):
            self._batch.seq_id[index][0] = row.sequence
        self._batch.n_tokens = count
        code = llama_cpp.llama_decode(self._handle, self._batch)
        if code != 0:
            raise OutriderError(Reason.INTERNAL, f"llama_decode returned {code} for {count} rows.")

    def logits(self, row: int) -> NDArray[np.float32]:
        """Logits of row `row` of the last `decode`; shape [width], a view valid until the next call."""
        pointer = llama_cpp.llama_get_logits_ith(self._handle, row)
        return np.ctypeslib.as_array(pointer, shape=(self._width,))

    def truncate(self, sequence: int, length: int) -> None:
        """Drop all positions of `sequence` from `length` on."""
        removed = llama_cpp.llama_memory_seq_rm(self._memory, sequence, length, -1)
        assert removed, "a model that cannot roll back is refused at load"

    def share(self, source: int, destination: int, length: int) -> None:
        """Let `destination`, which is dropped, hold the first `length` cells of `source`; for sequences that share."""
        llama_cpp.llama_memory_seq_rm(self._memory, destination, -1, -1)
        llama_cpp.llama_memory_seq_cp(self._memory, source, destination, 0, length)

    def copy(self, source: int, destination: int) -> None:
        """Make `destination`, which is dropped, a copy of `source`."""
        llama_cpp.llama_memory_seq_rm(self._memory, destination, -1, -1)
        llama_cpp.llama_memory_seq_cp(self._memory, source, destination, -1, -1)

    @property
    def closed(self) -> bool:
        """Whether the context has been freed; nothing else may be called then."""
        return not self._handle

    def close(self) -> None:
        """Free the context; may be called twice."""
        if self._handle:
            llama_cpp.llama_batch_free(self._batch)
            llama_cpp.llama_free(self._handle)
            self._handle = None
