"""The prompts that candidates are tried on when the user names no file: those of the shipped recordings."""

from __future__ import annotations

from itertools import zip_longest

from outrider.edge.commands.compare import BenchPrompt
from outrider.harness.recording.library import RecordingSet
from outrider.harness.simulation.scenario import shipped_recordings

SHIPPED_SET = "greedy"
# As many as there are categories: one prompt of each.
DEFAULT_LIMIT = 8


def shipped_prompts() -> list[BenchPrompt]:
    """All shipped prompts, the categories taking turns, so that the first few are a mix."""
    by_category: dict[str, list[BenchPrompt]] = {}
    for recording in RecordingSet.read(shipped_recordings(SHIPPED_SET)):
        header = recording.header
        by_category.setdefault(header.category, []).append(BenchPrompt(header.id, header.category, header.prompt))
    return [prompt for turn in zip_longest(*by_category.values()) for prompt in turn if prompt is not None]
