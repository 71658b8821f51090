"""Recordings with the worst drafter there can be: as sure of itself as the recorded one, and always wrong."""

from __future__ import annotations

from dataclasses import replace

from outrider.harness.recording.format import Recording
from outrider.harness.recording.library import RecordingSet


def always_wrong(recordings: RecordingSet) -> RecordingSet:
    """The same answers; wherever the drafter named what the target chose, it names another token."""
    return RecordingSet([_misled(recording) for recording in recordings])


def _misled(recording: Recording) -> Recording:
    ids = recording.draft.ids.copy()
    kept = set(recording.header.vocabulary.stop_ids)
    for row, answer in zip(ids, recording.answer_ids, strict=True):
        taken = kept.union(row.tolist())
        size = recording.header.vocabulary.size
        row[row == answer] = next(token for token in range(size) if token not in taken)
    return replace(recording, draft=replace(recording.draft, ids=ids))
