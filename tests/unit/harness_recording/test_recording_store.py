"""Recording files: what is written comes back, twice alike, and anything else is refused with the reason."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from outrider.harness.recording.format import DEPTH, NO_TOKEN, WIDTH, Recording
from outrider.harness.recording.library import RecordingSet
from outrider.harness.recording.store import read_recording, recording_path, write_recording
from outrider.shared.errors import OutriderError, Reason
from support.refusal import refused
from unit.harness_recording.tiny_recordings import SAMPLINGS, tiny_recording, tiny_set

Arrays = dict[str, Any]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "one.npz"
    write_recording(tiny_recording("full", 1), path)
    return path


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_what_is_written_comes_back(tmp_path: Path, sampling: str) -> None:
    for recording in tiny_set(sampling):
        path = recording_path(tmp_path, recording.header.id)
        assert write_recording(recording, path) == path.stat().st_size
        assert_equal(read_recording(path), recording)
    again = RecordingSet.read(tmp_path)
    assert [r.header.id for r in again] == ["one", "three", "two"], "by file name"
    assert list(tmp_path.glob(".*")) == [], "no partial file is left"


def test_equal_recordings_give_equal_bytes(tmp_path: Path) -> None:
    one, two = tmp_path / "a" / "one.npz", tmp_path / "two.npz"
    write_recording(tiny_recording(), one)
    write_recording(read_recording(one), two)
    assert one.read_bytes() == two.read_bytes()


def test_a_file_that_was_cut_short_is_refused_wherever_it_was_cut(path: Path) -> None:
    data = path.read_bytes()
    for length in (0, 1, 30, len(data) // 2, len(data) - 30, len(data) - 1):
        path.write_bytes(data[:length])
        with refused(Reason.FILE_UNREADABLE, str(path)):
            read_recording(path)


def test_a_changed_byte_changes_nothing_or_is_refused(path: Path) -> None:
    data, recording = path.read_bytes(), read_recording(path)
    refused_count = 0
    for offset in range(3, len(data), 131):
        path.write_bytes(data[:offset] + bytes([data[offset] ^ 0x55]) + data[offset + 1 :])
        try:
            # Dates and the like in the archive's own tables are nobody's business.
            assert_equal(read_recording(path), recording)
        except OutriderError as error:
            assert error.reason is Reason.FILE_UNREADABLE
            refused_count += 1
    assert refused_count > 0.9 * len(data) / 131


def test_other_files_are_refused_by_what_they_are(tmp_path: Path) -> None:
    text = tmp_path / "text.npz"
    text.write_text("hello")
    with refused(Reason.FILE_UNREADABLE, "text.npz", "no zip directory"):
        read_recording(text)
    with refused(Reason.FILE_UNREADABLE, "gone.npz", "No such file"):
        read_recording(tmp_path / "gone.npz")
    other = tmp_path / "other.npz"
    np.savez(other, numbers=np.arange(3))
    with refused(Reason.FILE_UNREADABLE, "no header"):
        read_recording(other)
    pickled = tmp_path / "pickled.npz"
    np.savez(pickled, header=np.array([{"a": 1}], dtype=object))
    with refused(Reason.FILE_UNREADABLE, "pickled.npz"):
        read_recording(pickled)


def changed_header(change: Callable[[dict[str, Any]], None]) -> Callable[[Arrays], None]:
    def apply(arrays: Arrays) -> None:
        header = json.loads(arrays["header"].tobytes())
        change(header)
        arrays["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)

    return apply


def put(name: str, index: Any, value: Any) -> Callable[[Arrays], None]:
    def apply(arrays: Arrays) -> None:
        arrays[name][index] = value

    return apply


BROKEN: list[tuple[str, Callable[[Arrays], None]]] = [
    ("recording version 2, this program reads 1", changed_header(lambda h: h.update(version=2))),
    ("expected format outrider-recording", changed_header(lambda h: h.update(format="x"))),
    ("header.colour", changed_header(lambda h: h.update(colour="red"))),
    ("header.draft.sha256", changed_header(lambda h: h["draft"].update(sha256="abc"))),
    ("header.category", changed_header(lambda h: h.pop("category"))),
    ("header.sampling.temperature", changed_header(lambda h: h["sampling"].update(temperature=-1))),
    ("sampling.seed is missing", changed_header(lambda h: h["sampling"].pop("seed"))),
    ("stop ids do not fit", changed_header(lambda h: h.update(finish_reason="length"))),
    ("at most 5 were asked for", changed_header(lambda h: h["sampling"].update(max_tokens=5))),
    ("vocabulary size 40", changed_header(lambda h: h["vocabulary"].update(size=40))),
    ("unknown array extra", lambda a: a.update(extra=np.zeros(2))),
    ("array target_margin is missing", lambda a: a.pop("target_margin")),
    ("array draft_ids: expected uint32", lambda a: a.update(draft_ids=a["draft_ids"].astype(np.int64))),
    ("array draft_ids: expected uint32", lambda a: a.update(draft_ids=a["draft_ids"][:-1])),
    ("array target_margin: expected float16", lambda a: a.update(target_margin=a["target_margin"][:, :9])),
    ("array branch_ids", lambda a: a.update(branch_ids=a["branch_ids"][:, :2])),
    ("prompt_ids is empty", lambda a: a.update(prompt_ids=a["prompt_ids"][:0])),
    ("prompt_ids holds 999", put("prompt_ids", 0, 999)),
    ("draft_ids hold 260", put("draft_ids", (3, 5), 260)),
    ("draft_ids have a gap", put("draft_ids", (3, 5), NO_TOKEN)),
    ("draft: a probability above 1", put("draft_log_probability", (0, 0), 0.5)),
    ("target: a probability above 1, or not a number", put("target_margin", (0, 1), np.nan)),
    ("draft_ids: a position without a candidate", put("draft_ids", 4, NO_TOKEN)),
    ("first choices are not the answer", put("target_ids", (2, 0), 7)),
    ("a branch outside the answer", put("branch_position", -1, 5000)),
    ("a branch outside the answer", put("branch_rank", 0, 2)),
    ("ascending", put("branch_position", 1, 0)),
]


@pytest.mark.parametrize(("said", "change"), BROKEN, ids=[f"{i}-{said}" for i, (said, _) in enumerate(BROKEN)])
def test_a_file_that_replay_could_not_rely_on_is_refused_by_what_is_wrong(
    path: Path, said: str, change: Callable[[Arrays], None]
) -> None:
    with np.load(path) as archive:
        arrays = {name: archive[name].copy() for name in archive.files}
    if said == "ascending":
        arrays["branch_position"][0] = 1
    change(arrays)
    np.savez_compressed(path, **arrays)
    with refused(Reason.FILE_UNREADABLE, str(path), said):
        read_recording(path)


def test_a_branch_on_the_path_is_refused(path: Path) -> None:
    recording = tiny_recording("full", 1)
    right = int(np.flatnonzero(recording.draft.ids[:, 0] == np.array(recording.answer_ids))[0])
    positions, ranks = recording.branches.positions.copy(), recording.branches.ranks.copy()
    index = int(np.searchsorted(positions, right))
    assert positions[index] == right
    ranks[index] = 0
    branches = dataclasses.replace(recording.branches, positions=positions, ranks=ranks)
    write_recording(dataclasses.replace(recording, branches=branches), path)
    with refused(Reason.FILE_UNREADABLE, "a branch on the path"):
        read_recording(path)


def test_a_set_takes_categories_ids_and_a_limit_and_names_a_missing_prompt(tmp_path: Path) -> None:
    for recording in tiny_set():
        write_recording(recording, recording_path(tmp_path, recording.header.id))
    (tmp_path / ".x.partial").write_bytes(b"")
    (tmp_path / "README.md").write_text("no recording")

    def ids(**options: Any) -> list[str]:
        return [r.header.id for r in RecordingSet.read(tmp_path, **options)]

    assert ids(categories=["chat"]) == ["three"]
    assert ids(ids=["two", "one"]) == ["two", "one"]
    assert ids(limit=1) == ["one"]
    with refused(Reason.FILE_UNREADABLE, "no recording of prompt four"):
        ids(ids=["four"])
    with refused(Reason.FILE_UNREADABLE, "no recording of category zh"):
        ids(categories=["zh"])
    with refused(Reason.FILE_UNREADABLE, "no such folder"):
        RecordingSet.read(tmp_path / "nowhere")
    shutil.copy(tmp_path / "one.npz", tmp_path / "copy.npz")
    with refused(Reason.FILE_UNREADABLE, "two recordings of one prompt"):
        ids()


@pytest.mark.parametrize("prompt_id", ["", ".", "../up", "a/b", ".hidden", "a b"])
def test_a_prompt_id_that_is_no_file_name_is_refused(tmp_path: Path, prompt_id: str) -> None:
    with refused(Reason.USAGE, repr(prompt_id)):
        recording_path(tmp_path, prompt_id)


def test_shapes_are_as_documented() -> None:
    recording = tiny_recording()
    length, count = len(recording.answer_ids), len(recording.branches.positions)
    assert recording.draft.ids.shape == recording.target.margin.shape == (length, WIDTH)
    assert recording.branches.ranking.log_probability.shape == (count, DEPTH, 4)


def assert_equal(one: Recording, other: Recording) -> None:
    assert one.header == other.header
    assert (one.prompt_ids, one.answer_ids) == (other.prompt_ids, other.answer_ids)
    pairs: list[tuple[Any, Any]] = [
        (one.draft, other.draft),
        (one.target, other.target),
        (one.branches.ranking, other.branches.ranking),
        (one.branches, other.branches),
    ]
    for mine, theirs in pairs:
        for field in dataclasses.fields(mine):
            array = getattr(mine, field.name)
            if isinstance(array, np.ndarray):
                assert np.array_equal(array, getattr(theirs, field.name)), field.name
