"""What was learned survives in a file, and a file that holds something else is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from outrider.edge.drafters.base import Proposal
from outrider.edge.guesses.calibration import History
from outrider.edge.guesses.ensemble import Opinion
from outrider.edge.guesses.experience import MAX_BYTES, Experience
from outrider.shared.errors import OutriderError, Reason

SAID = [Proposal(1, 0.9, 0.9), Proposal(2, 0.1, 0.1)]


def learned() -> Experience:
    experience = Experience()
    for _ in range(20):
        experience.calibration("small").observe(SAID, History(), 2)
        experience.ensemble.observe([Opinion("small", {1: 0.9}), Opinion("other", {2: 0.9})], 2)
    return experience


def test_it_goes_on_from_what_was_saved(tmp_path: Path) -> None:
    experience = learned()
    experience.save(tmp_path / "state.json")
    again = Experience.load(tmp_path / "state.json")
    assert again.ensemble.shares() == experience.ensemble.shares()
    expected = experience.calibration("small").calibrated(SAID, History())
    assert again.calibration("small").calibrated(SAID, History()) == expected
    assert expected[0] < 0.6, "it has learned something"


def test_a_file_that_is_not_there_yet_is_a_beginning(tmp_path: Path) -> None:
    assert Experience.load(tmp_path / "none.json").ensemble.shares() == {}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"[1, 2]",
        b"\xff\xfe",
        b"{" * 5000,
        b" " * (MAX_BYTES + 1),
        b'{"shares": {}, "calibrations": {"a": {"weights": [1], "precision": []}}}',
        b'{"shares": {"a": NaN}, "calibrations": {}}',
        b'{"shares": {}, "calibrations": {}, "more": 1}',
    ],
)
def test_anything_else_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "state.json"
    path.write_bytes(content)
    with pytest.raises(OutriderError) as caught:
        Experience.load(path)
    assert caught.value.reason is Reason.FILE_UNREADABLE
    assert str(path) in str(caught.value)
