"""Files written in one step, and what is no regular file written through."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from outrider.shared.files import stamp_of, write_whole


def test_the_folder_is_made_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b.txt"
    for text in ("one", "two"):
        write_whole(path, text)
        assert path.read_text() == text
    assert list(path.parent.iterdir()) == [path]


def test_a_link_stays_and_what_it_names_is_written(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    for name in ("there", "not-yet"):
        link, target = tmp_path / name, tmp_path / "real" / name
        link.symlink_to(target)
        if name == "there":
            target.write_text("old")
        write_whole(link, "new")
        assert link.is_symlink()
        assert target.read_text() == "new"


@pytest.mark.parametrize("linked", [False, True])
def test_a_pipe_is_written_through(tmp_path: Path, linked: bool) -> None:
    pipe = path = tmp_path / "pipe"
    os.mkfifo(pipe)
    if linked:
        path = tmp_path / "link"
        path.symlink_to(pipe)
    got: list[bytes] = []
    # Opened to read and to write, so that nobody waits for another end.
    end = os.open(pipe, os.O_RDWR)
    reader = threading.Thread(target=lambda: got.append(os.read(end, 100)), daemon=True)
    reader.start()
    try:
        write_whole(path, "text")
        reader.join(10)
    finally:
        os.close(end)
    assert got == [b"text"]
    assert pipe.is_fifo()


def test_errors_name_the_file_and_leave_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "page.html"
    path.write_text("old")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device.*page\.html") as caught:
        write_whole(path, "new")
    assert caught.value.errno == errno.ENOSPC
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_cannot_be_made_is_named_with_the_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError, match=r"page\.html"):
        write_whole(tmp_path / "file" / "below" / "page.html", "new")


def test_a_stamp_changes_with_every_way_to_change_a_file(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    first.write_text("one")
    stamps = [stamp_of(first, second)]
    assert stamp_of(first, second) == stamps[0]
    second.write_text("new")
    stamps.append(stamp_of(first, second))
    write_whole(first, "two")
    stamps.append(stamp_of(first, second))
    # As long, and with the times of the file before: what replaces a file has another inode.
    times = first.stat()
    other = tmp_path / "c"
    other.write_text("six")
    os.utime(other, ns=(times.st_atime_ns, times.st_mtime_ns))
    other.replace(first)
    stamps.append(stamp_of(first, second))
    first.unlink()
    stamps.append(stamp_of(first, second))
    assert len(set(stamps)) == len(stamps)
