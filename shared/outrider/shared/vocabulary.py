"""The identity of a tokenizer: its id-to-bytes table, special ids, merges, normaliser, template and stop ids, with
a fingerprint per field, so that two models are found compatible or refused by the name of what differs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from outrider.shared.errors import OutriderError, Reason

_COMPARED = ("real_width", "pieces", "special_ids", "merges", "normaliser", "stop_ids", "template")


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """SHA-256 (first 16 bytes, hex) of each field of a vocabulary, and its two widths.

    A field that one side cannot know is empty and compares equal to anything. `padded_width` is the width of
    the logits row and may differ between models that share a vocabulary.
    """

    pieces: str
    special_ids: str
    merges: str
    normaliser: str
    template: str
    stop_ids: str
    real_width: int
    padded_width: int

    def first_difference(self, other: Fingerprint, ignore: frozenset[str] = frozenset()) -> str | None:
        """Name of the first field, of those not to ignore, in which the two differ, or None. The padded width is
        free to differ, and pre-tokenizers are compared only where both files name theirs in the same way.
        """
        for name in _COMPARED:
            if name in ignore:
                continue
            mine, theirs = getattr(self, name), getattr(other, name)
            known = mine != "" and theirs != ""
            if name == "normaliser":
                known = known and mine.partition(":")[0] == theirs.partition(":")[0]
            if known and mine != theirs:
                return name
        return None


@dataclass(frozen=True)
class Vocabulary:
    """A tokenizer's tables. `pieces[i]` are the bytes that id `i` stands for (the literal text of control ids).

    `pieces` covers the real ids only: rows of padding that a model's head may have are counted in
    `padded_width` and are never valid. `special_ids` are the control ids, `stop_ids` those that end an answer.
    `bos_id` and `eos_id` are what a template calls `bos_token` and `eos_token`; `adds_bos` says that a plain prompt
    begins with the former. `normaliser` is "FORMAT:NAME", the pre-tokenizer as the model's file format names it.
    """

    pieces: Sequence[bytes]
    special_ids: frozenset[int]
    merges: Sequence[str]
    normaliser: str
    template: str
    stop_ids: frozenset[int]
    padded_width: int
    bos_id: int | None = None
    eos_id: int | None = None
    adds_bos: bool = False

    @property
    def size(self) -> int:
        """Number of real ids; every valid id is below it."""
        return len(self.pieces)

    @cached_property
    def fingerprint(self) -> Fingerprint:
        """Digest per field; empty merges, normaliser or template give an empty digest (unknown)."""
        kind, _, name = self.normaliser.partition(":")
        return Fingerprint(
            pieces=_digest(self.pieces),
            special_ids=_digest(b"%d" % i for i in sorted(self.special_ids)),
            merges=_digest(m.encode() for m in self.merges) if self.merges else "",
            normaliser=self.normaliser and f"{kind}:{_digest([name.encode()])}",
            template=_digest([self.template.encode()]) if self.template else "",
            stop_ids=_digest(b"%d" % i for i in sorted(self.stop_ids)),
            real_width=self.size,
            padded_width=self.padded_width,
        )

    def check_ids(self, ids: Iterable[int], where: str) -> None:
        """Raise TOKEN_OUT_OF_RANGE naming the first id outside the real vocabulary and `where` it stood."""
        for index, token in enumerate(ids):
            if not 0 <= token < self.size:
                raise OutriderError(
                    Reason.TOKEN_OUT_OF_RANGE, f"{where}[{index}] = {token}, vocabulary size {self.size}."
                )


def _digest(parts: Iterable[bytes]) -> str:
    """Hash of a sequence of byte strings, each preceded by its length so that no two sequences collide."""
    state = hashlib.sha256()
    for part in parts:
        state.update(len(part).to_bytes(4, "little"))
        state.update(part)
    return state.hexdigest()[:32]
