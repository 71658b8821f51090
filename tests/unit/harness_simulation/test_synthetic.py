"""Recordings made of numbers: the acceptance asked for, honest confidences, and valid in the eyes of the reader."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from outrider.harness.recording.store import read_recording, write_recording
from outrider.harness.simulation.synthetic import SECOND_RIGHT, synthetic_recordings


@pytest.mark.parametrize("acceptance", [0.0, 0.05, 0.5, 0.8, 0.97, 1.0])
def test_guesses_are_right_as_often_as_asked_for(acceptance: float) -> None:
    for recording in synthetic_recordings(acceptance, answers=3, tokens=128, seed=4):
        hits = recording.draft.ids[:, 0] == np.array(recording.answer_ids)
        assert abs(hits.sum() - 128 * acceptance) <= 2.5


def test_guesses_are_right_as_often_as_their_confidence_says_and_misses_come_in_no_order() -> None:
    recordings = synthetic_recordings(0.75, answers=40, tokens=128, seed=2)
    hits = np.concatenate([r.draft.ids[:, 0] == np.array(r.answer_ids) for r in recordings])
    confidence = np.exp(np.concatenate([r.draft.log_probability[:, 0] for r in recordings]).astype(float))
    for low, high in ((0, 0.3), (0.3, 0.6), (0.6, 0.9), (0.9, 1.01)):
        chosen = (confidence >= low) & (confidence < high)
        # About 1,000 positions a bin: off by 0.06 less than once in ten thousand.
        assert abs(hits[chosen].mean() - confidence[chosen].mean()) < 0.06
    after_miss = hits[1:][~hits[:-1]].mean()
    assert abs(after_miss - 0.75) < 0.05
    second = np.concatenate([r.draft.ids[:, 1] == np.array(r.answer_ids) for r in recordings])
    assert abs(second[~hits].mean() - SECOND_RIGHT) < 0.05


@pytest.mark.parametrize("acceptance", [0.0, 0.7, 1.0])
def test_they_pass_the_checks_of_a_recording_that_is_read(acceptance: float, tmp_path: Path) -> None:
    for recording in synthetic_recordings(acceptance, answers=2, tokens=50, seed=3):
        path = tmp_path / f"{recording.header.id}.npz"
        write_recording(recording, path)
        assert read_recording(path).answer_ids == recording.answer_ids


def test_the_same_seed_gives_the_same_recordings() -> None:
    one, two, other = (synthetic_recordings(0.6, answers=1, tokens=30, seed=seed).recordings[0] for seed in (1, 1, 2))
    assert one.answer_ids == two.answer_ids != other.answer_ids
    assert (one.draft.ids == two.draft.ids).all()
