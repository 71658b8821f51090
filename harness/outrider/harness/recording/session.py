"""What a run of recording shares whoever asks for it: which prompts with which seeds, and whether what stands in a
folder already is what would be recorded there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from outrider.edge.commands.compare import BenchPrompt
from outrider.harness.recording.format import Recording
from outrider.harness.recording.store import read_recording, recording_path
from outrider.shared.errors import OutriderError, Reason
from outrider.shared.sampling.options import MAX_SEED, Sampling

# Tokens of room for a prompt beside the answer.
PROMPT_ROOM = 512


def seeded_prompts(
    prompts: Sequence[BenchPrompt], options: Sampling, categories: Collection[str], limit: int | None, where: str
) -> list[tuple[BenchPrompt, Sampling]]:
    """The prompts to record, each with its seed, which does not depend on what else is chosen.

    Raises USAGE where none is left or an id is no file name, FILE_UNREADABLE for two prompts of one id; `where`
    names the prompts' origin.
    """
    if options.stop:
        raise OutriderError(Reason.USAGE, "--stop: a recording holds ids; stop texts are the edge's business.")
    first = options.seed or 0
    seeded = [
        (prompt, options.model_copy(update={"seed": (first + index) & MAX_SEED}))
        for index, prompt in enumerate(prompts)
        if not categories or prompt.category in categories
    ][:limit]
    if not seeded:
        raise OutriderError(Reason.USAGE, f"{where}: no prompt is left to record.")
    ids = [prompt.id for prompt, _ in seeded]
    for prompt_id in ids:
        recording_path(Path(), prompt_id)
        if ids.count(prompt_id) > 1:
            raise OutriderError(Reason.FILE_UNREADABLE, f"{where}: two prompts have the id {prompt_id}.")
    return seeded


def read_same(path: Path, fields: Mapping[str, object]) -> Recording:
    """The recording at `path`; raises USAGE unless its header says `fields`, and what reading raises."""
    recording = read_recording(path)
    check_same(recording, fields, path)
    return recording


def check_same(recording: Recording, fields: Mapping[str, object], path: Path) -> None:
    """Raise USAGE unless the header of the recording at `path` says `fields`."""
    for field, expected in fields.items():
        if getattr(recording.header, field) != expected:
            raise OutriderError(
                Reason.USAGE, f"{path} was recorded with another {field}; remove it or choose another --out."
            )


def first_choices_right(recording: Recording) -> float:
    """Share of the answer's tokens that the drafter's first choice is."""
    return float((recording.draft.ids[:, 0] == recording.answer_ids).mean())
