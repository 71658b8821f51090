"""Makes a drafter out of what `--drafter` says."""

from __future__ import annotations

import asyncio
from pathlib import Path

from outrider.edge.drafters.base import Drafter
from outrider.edge.drafters.scripted import ScriptedDrafter, parse_script
from outrider.shared.errors import OutriderError, Reason
from outrider.shared.messages import VerifierInfo
from outrider.shared.models.store import default_store

DEFAULT_DRAFTER = "llama:qwen2.5-coder-0.5b"
FORMS = (
    "llama:NAME-or-path, lookup, lookup:TEXT-FILE, ngrams, scripted:right, scripted:wrong, "
    "scripted:right-then-wrong:N, tiny:DEVIATION, none; several joined by +, so no path may hold a +"
)
MOST_TINY_DEVIATION = 1000.0
# The prompt is made with the target's template, so the draft model's own is never used. Its stop ids need only be
# among the target's, which differ by file format for one and the same model.
_FREE_FIELDS = frozenset({"template", "stop_ids"})


async def make_drafter(spec: str, info: VerifierInfo) -> Drafter:
    """The drafter that `spec` names, checked against the target's vocabulary.

    Raises USAGE for an unknown form, VOCABULARY_MISMATCH naming the field, and what loading a model raises.
    """
    kind, _, rest = spec.partition(":")
    drafter: Drafter
    match kind:
        case "llama" if rest:
            drafter = await asyncio.to_thread(_load_llama, rest, info.limits.context_length)
        case "scripted":
            drafter = ScriptedDrafter(parse_script(rest), info.fingerprint.real_width)
        case "tiny" if rest:
            drafter = _make_tiny(rest)
        case _:
            raise OutriderError(Reason.USAGE, f"--drafter {spec!r}: expected one of {FORMS}.")
    try:
        _check_vocabulary(drafter, info)
    except BaseException:
        await drafter.close()
        raise
    return drafter


def _check_vocabulary(drafter: Drafter, info: VerifierInfo) -> None:
    if drafter.vocabulary is None:
        return
    mine, theirs = drafter.vocabulary.fingerprint, info.fingerprint
    field = mine.first_difference(theirs, ignore=_FREE_FIELDS)
    if field is not None:
        found = f"{field} ({getattr(mine, field)} here, {getattr(theirs, field)} there)"
    elif not drafter.vocabulary.stop_ids <= info.stop_ids:
        found = f"stop_ids ({sorted(drafter.vocabulary.stop_ids)} here, {sorted(info.stop_ids)} there)"
    else:
        return
    raise OutriderError(
        Reason.VOCABULARY_MISMATCH, f"{drafter.name} cannot draft for {info.model}: they differ in {found}."
    )


def _load_llama(name_or_path: str, context_length: int) -> Drafter:
    try:
        from outrider.edge.drafters.llama_cpp import LlamaDrafter  # noqa: PLC0415 - an extra brings it
    except ImportError:
        raise OutriderError(
            Reason.DRAFTER_UNUSABLE, "llama-cpp-python is not installed; run pip install 'outrider[edge]'."
        ) from None
    path: Path = default_store().resolve(name_or_path)
    name = name_or_path if path != Path(name_or_path) else path.stem
    return LlamaDrafter(path, name=name, context_length=context_length)


def _make_tiny(text: str) -> Drafter:
    from outrider.edge.drafters.tiny import TinyDrafter  # noqa: PLC0415 - only for tests and benchmarks

    try:
        deviation = float(text)
    except ValueError:
        raise OutriderError(Reason.USAGE, f"--drafter tiny:{text}: expected a number.") from None
    if not 0 <= deviation <= MOST_TINY_DEVIATION:
        raise OutriderError(Reason.USAGE, f"--drafter tiny:{text}: expected 0 to {MOST_TINY_DEVIATION:g}.")
    return TinyDrafter(deviation)
