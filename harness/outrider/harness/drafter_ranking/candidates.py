"""Which models are candidates, what they are called in results, and how big they are."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from outrider.harness.recording.recording_target import TINY
from outrider.shared.errors import OutriderError, Reason
from outrider.shared.models.store import ModelState, default_store


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model as it was asked for, `draft`, and its name in results, which no other candidate shares."""

    draft: str
    name: str

    @property
    def folder(self) -> str:
        """A folder's name of its own."""
        plain = re.sub(r"[^A-Za-z0-9._-]", "_", self.name).lstrip(".")
        return plain if plain == self.name else f"{plain}-{zlib.crc32(self.name.encode()):08x}"


@dataclass(frozen=True, slots=True)
class ModelSize:
    """Bytes of a model's file and its number of weights; None for the pseudo model, which has neither."""

    file_bytes: int | None
    parameters: int | None


def candidates_of(drafts: Sequence[str], target: str) -> list[Candidate]:
    """The candidates asked for, or all models of the store that are ready, `target` left out. Raises USAGE if none."""
    wanted = list(dict.fromkeys(drafts)) or [
        entry.spec.name
        for entry in default_store().entries()
        if entry.state is ModelState.READY and entry.spec.name != target
    ]
    if not wanted:
        raise OutriderError(Reason.USAGE, f"no model but {target} is ready here; name candidates with --draft.")
    stems = [Path(draft).stem if draft.endswith(".gguf") else draft for draft in wanted]
    return [
        Candidate(draft, stem if stems.count(stem) == 1 else draft) for draft, stem in zip(wanted, stems, strict=True)
    ]


def size_of(name: str) -> ModelSize:
    """How big a model is; raises what finding it and reading its header raise."""
    if name.partition(":")[0] == TINY:
        return ModelSize(None, None)
    import llama_cpp  # noqa: PLC0415 - an extra brings llama.cpp

    from outrider.shared.llama.runtime import LlamaModel  # noqa: PLC0415

    path = default_store().resolve(name)
    model = LlamaModel(path, vocabulary_only=True)
    try:
        return ModelSize(path.stat().st_size, int(llama_cpp.llama_model_n_params(model.handle)))
    finally:
        model.close()
