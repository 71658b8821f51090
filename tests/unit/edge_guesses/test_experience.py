"""What was learned survives in a file, and a file that holds something else is refused."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from outrider.edge.drafters.base import Proposal
from outrider.edge.guesses.calibration import History
from outrider.edge.guesses.ensemble import Opinion
from outrider.edge.guesses.experience import MAX_BYTES, WIDTH, Experience, kept
from outrider.shared.errors import OutriderError, Reason
from outrider.shared.lookup import LONGEST
from support.refusal import refused

SAVED = b'{"format": "outrider-state", "version": 1, "shares": {}, "calibrations": {}, "corpus": [%s]}' % (
    b", ".join([b"0.9"] * (LONGEST + 1))
)
SAID = [Proposal(1, 0.9, 0.9), Proposal(2, 0.1, 0.1)]


def learned() -> Experience:
    experience = Experience()
    for _ in range(20):
        experience.calibration("small").observe(SAID, History(), 2)
        experience.ensemble.observe([Opinion("small", {1: 0.9}), Opinion("other", {2: 0.9})], 2)
    for _ in range(50):
        experience.corpus.learn(3, is_right=False)
    return experience


def test_it_goes_on_from_what_was_saved(tmp_path: Path) -> None:
    experience = learned()
    experience.save(tmp_path / "state.json")
    again = Experience.load(tmp_path / "state.json")
    assert again.ensemble.shares() == experience.ensemble.shares()
    expected = experience.calibration("small").calibrated(SAID, History())
    assert again.calibration("small").calibrated(SAID, History()) == expected
    assert expected[0] < 0.6, "it has learned something"
    assert again.corpus.shares() == experience.corpus.shares() != Experience().corpus.shares()


def test_a_file_that_says_nothing_of_corpus_and_bandit_is_read(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    learned().save(path)
    state = json.loads(path.read_text())
    del state["corpus"], state["bandit"]
    path.write_text(json.dumps(state))
    again = Experience.load(path)
    assert again.ensemble.shares() == learned().ensemble.shares()
    assert again.corpus.shares() == Experience().corpus.shares()


async def test_it_is_kept_whatever_ends_the_context(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "state.json"
    async with kept(learned(), path):
        assert not path.exists()
    assert Experience.load(path).ensemble.shares() == learned().ensemble.shares()
    path.unlink()
    with pytest.raises(KeyboardInterrupt):
        async with kept(learned(), path):
            raise KeyboardInterrupt
    assert Experience.load(path).ensemble.shares() == learned().ensemble.shares()
    async with kept(learned(), None):
        pass


async def test_what_cannot_be_kept_is_an_error_but_hides_none(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "state.json"
    with refused(Reason.FILE_UNREADABLE, str(path)):
        async with kept(learned(), path):
            pass
    with pytest.raises(ZeroDivisionError):
        async with kept(learned(), path):
            raise ZeroDivisionError
    assert str(path) in caplog.text


def calibration(weight: float, precision: list[list[float]]) -> bytes:
    kept = {"weights": [weight] * WIDTH, "precision": precision}
    return SAVED.replace(b'"calibrations": {}', b'"calibrations": {"a": %s}' % json.dumps(kept).encode())


UNIT = [[float(row == column) for column in range(WIDTH)] for row in range(WIDTH)]
# One half of it is that of a good one.
LOPSIDED = [[float(row == column) + 5.0 * (row < column) for column in range(WIDTH)] for row in range(WIDTH)]


def test_a_calibration_may_be_kept(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_bytes(calibration(0.5, UNIT))
    Experience.load(tmp_path / "state.json").save(tmp_path / "again.json")


@pytest.mark.parametrize("content", [calibration(1e308, UNIT), calibration(0.5, LOPSIDED)])
def test_a_calibration_that_leads_to_no_numbers_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "state.json").write_bytes(content)
    with refused(Reason.FILE_UNREADABLE, "calibrations.a"):
        Experience.load(tmp_path / "state.json")


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "state.json")
    with refused(Reason.FILE_UNREADABLE, "no regular file"):
        Experience.load(tmp_path / "state.json")


def test_a_file_that_is_not_there_yet_is_a_beginning(tmp_path: Path) -> None:
    assert Experience.load(tmp_path / "none.json").ensemble.shares() == {}


def test_what_is_refused_below_is_one_change_away_from_a_state(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_bytes(SAVED)
    assert Experience.load(tmp_path / "state.json").corpus.shares() == pytest.approx([0.9] * (LONGEST + 1))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"[1, 2]",
        b"\xff\xfe",
        b"{" * 5000,
        b" " * (MAX_BYTES + 1),
        SAVED.replace(b'"calibrations": {}', b'"calibrations": {"a": {"weights": [1], "precision": []}}'),
        SAVED.replace(b'"shares": {}', b'"shares": {"a": NaN}'),
        SAVED.replace(b'"shares": {}', b'"shares": {}, "more": 1'),
        SAVED.replace(b'"version": 1', b'"version": 2'),
        SAVED.replace(b'"version": 1,', b""),
        SAVED.replace(b'"outrider-state"', b'"other-state"'),
        SAVED.replace(b"]", b", 0.5]"),
        SAVED.replace(b"0.9", b"1.9"),
        SAVED.replace(b'"shares": {}', b'"shares": {}, "bandit": {"pulls": 1, "limits": []}'),
    ],
)
def test_anything_else_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "state.json"
    path.write_bytes(content)
    with pytest.raises(OutriderError) as caught:
        Experience.load(path)
    assert caught.value.reason is Reason.FILE_UNREADABLE
    assert str(path) in str(caught.value)
