"""A folder of recordings as one set: one pair, one way of sampling, each prompt once. Also the vocabulary that a set
knows, which is enough to serve and to print its answers and nothing else.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import overload

from outrider.harness.recording.format import Header, Recording
from outrider.harness.recording.store import SUFFIX, read_recording
from outrider.shared.errors import OutriderError, Reason
from outrider.shared.vocabulary import Fingerprint, Vocabulary

UNKNOWN_PIECE = "\N{REPLACEMENT CHARACTER}".encode()


class RecordingSet:
    """Recordings that one replaying pair can serve, in the order given."""

    def __init__(self, recordings: Sequence[Recording], where: str = "recordings") -> None:
        """Raises FILE_UNREADABLE, beginning with `where`, unless all are of one pair and one way of sampling."""
        if not recordings:
            raise OutriderError(Reason.FILE_UNREADABLE, f"{where}: no recording.")
        first = recordings[0].header
        for recording in recordings[1:]:
            field = _first_difference(first, recording.header)
            if field is not None:
                raise OutriderError(
                    Reason.FILE_UNREADABLE, f"{where}: {recording.header.id} and {first.id} differ in {field}."
                )
        self._where = where
        self._by_prompt = {recording.prompt_ids: recording for recording in recordings}
        if len(self._by_prompt) != len(recordings):
            raise OutriderError(Reason.FILE_UNREADABLE, f"{where}: two recordings of one prompt.")
        self.recordings = tuple(recordings)

    @classmethod
    def read(
        cls, folder: Path, *, categories: Collection[str] = (), ids: Sequence[str] = (), limit: int | None = None
    ) -> RecordingSet:
        """Read the recordings in `folder`, by name, or those of `ids` in that order; only some categories of them.

        Raises FILE_UNREADABLE for a file that is no recording, a missing prompt, or where none is left.
        """
        if not folder.is_dir():
            raise OutriderError(Reason.FILE_UNREADABLE, f"{folder}: no such folder.")
        paths = sorted(path for path in folder.iterdir() if path.suffix == SUFFIX and not path.name.startswith("."))
        if ids:
            by_id = {path.stem: path for path in paths}
            missing = [prompt_id for prompt_id in ids if prompt_id not in by_id]
            if missing:
                raise OutriderError(Reason.FILE_UNREADABLE, f"{folder}: no recording of prompt {missing[0]}.")
            paths = [by_id[prompt_id] for prompt_id in ids]
        chosen = [
            recording
            for recording in map(read_recording, paths)
            if not categories or recording.header.category in categories
        ]
        if not chosen and categories:
            raise OutriderError(
                Reason.FILE_UNREADABLE, f"{folder}: no recording of category {', '.join(sorted(categories))}."
            )
        return cls(chosen[:limit], str(folder))

    def __len__(self) -> int:
        return len(self.recordings)

    def __iter__(self) -> Iterator[Recording]:
        return iter(self.recordings)

    @property
    def header(self) -> Header:
        """The first recording's: the pair and the options are those of all."""
        return self.recordings[0].header

    @cached_property
    def vocabulary(self) -> RecordedVocabulary:
        """What the recordings know of the vocabulary."""
        known = self.header.vocabulary
        pieces = {
            token: text.encode("latin-1")
            for recording in self.recordings
            for token, text in recording.header.vocabulary.pieces.items()
        }
        return RecordedVocabulary(
            pieces=_Pieces(known.size, pieces),
            special_ids=frozenset(known.stop_ids),
            merges=(),
            normaliser="",
            template="",
            stop_ids=frozenset(known.stop_ids),
            padded_width=known.padded_width,
            recorded_fingerprint=known.fingerprint,
        )

    def find(self, prompt_ids: Sequence[int]) -> Recording:
        """The recording of a prompt; raises FILE_UNREADABLE if there is none."""
        recording = self._by_prompt.get(tuple(prompt_ids))
        if recording is None:
            raise OutriderError(
                Reason.FILE_UNREADABLE, f"{self._where}: no recording of this prompt of {len(prompt_ids)} ids."
            )
        return recording


@dataclass(frozen=True)
class RecordedVocabulary(Vocabulary):
    """A vocabulary of which only the answers' pieces are known, with the fingerprint of the whole."""

    recorded_fingerprint: Fingerprint | None = None

    @cached_property
    def fingerprint(self) -> Fingerprint:
        """The recorded one."""
        assert self.recorded_fingerprint is not None, "made from a recording"
        return self.recorded_fingerprint


class _Pieces(Sequence[bytes]):
    def __init__(self, size: int, known: dict[int, bytes]) -> None:
        self._size = size
        self._known = known

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, index: int) -> bytes: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[bytes]: ...

    def __getitem__(self, index: int | slice) -> bytes | Sequence[bytes]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self._size))]
        if not 0 <= index < self._size:
            raise IndexError(index)
        return self._known.get(index, UNKNOWN_PIECE)


def _first_difference(first: Header, other: Header) -> str | None:
    """The first field of those that a set shares in which two headers differ."""
    for field in ("draft", "target", "target_settings"):
        if getattr(first, field) != getattr(other, field):
            return field
    free = {"seed", "max_tokens"}
    if first.sampling.model_dump(exclude=free) != other.sampling.model_dump(exclude=free):
        return "sampling"
    free = {"pieces"}
    if first.vocabulary.model_dump(exclude=free) != other.vocabulary.model_dump(exclude=free):
        return "vocabulary"
    return None
