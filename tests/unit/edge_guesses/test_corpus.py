"""The text of `--drafter lookup:FILE`: which it is, what is read of it, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from outrider.edge.drafting import Drafting
from outrider.edge.experiment import Arms, Experiment
from outrider.edge.guesses.corpus import MAX_BYTES, load_corpus
from outrider.edge.tokenizer import JsonTokenizer
from outrider.shared.corpus_index import followed
from outrider.shared.errors import Reason
from outrider.shared.tiny import TINY_PADDED_WIDTH, tiny_tokenizer_files
from support.refusal import refused


@pytest.fixture
def tokenizer(tmp_path: Path) -> JsonTokenizer:
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    for name, content in tiny_tokenizer_files().items():
        (folder / name).write_text(content)
    return JsonTokenizer(folder, TINY_PADDED_WIDTH)


def next_after(text: bytes, path: Path, tokenizer: JsonTokenizer) -> bytes:
    """What the file at `path` says comes after `text`; the tiny tokens are bytes."""
    corpus = load_corpus(path, tokenizer)
    recent = b""
    for byte in text:
        recent = followed(recent, byte)
    return bytes(corpus.continuation(corpus.find(recent), 9)[0])


@pytest.mark.parametrize(
    ("drafter", "models", "has_lookup", "corpus"),
    [
        ("none", (), False, None),
        ("llama:a+ngrams", ("llama:a",), False, None),
        ("lookup", (), True, None),
        ("lookup:a.txt", (), True, "a.txt"),
        ("lookup+lookup:a.txt", (), True, "a.txt"),
        ("lookup:a.txt+lookup:a.txt", (), True, "a.txt"),
        ("llama:a+lookup:C:/b c.txt+ngrams", ("llama:a",), True, "C:/b c.txt"),
    ],
)
def test_a_corpus_is_part_of_what_drafts(
    drafter: str, models: tuple[str, ...], has_lookup: bool, corpus: str | None
) -> None:
    drafting = Drafting(drafter)
    drafting.make_control()
    assert (drafting.models, drafting.has_lookup) == (models, has_lookup)
    assert drafting.corpus == (None if corpus is None else Path(corpus))
    assert not drafting.is_eager or drafter == "none"


@pytest.mark.parametrize("drafter", ["lookup:", "lookup:a+lookup:b", "lookup:a+lookup:", "llama:x+lookup:"])
def test_none_and_two_are_refused(drafter: str) -> None:
    with refused(Reason.USAGE, drafter):
        Drafting(drafter).make_control()


def test_the_arms_of_an_experiment_share_one() -> None:
    for arm in ("lookup:a", "lookup", "none"):
        Arms(Drafting("lookup:a"), Experiment("x", 0.5, Drafting(arm)))
    for arm_a, arm_b in (("lookup:a", "lookup:b"), ("lookup", "lookup:b"), ("none", "lookup:b")):
        with refused(Reason.USAGE, "lookup:b", arm_a):
            Arms(Drafting(arm_a), Experiment("x", 0.5, Drafting(arm_b)))


def test_a_mark_at_its_beginning_and_returns_at_the_ends_of_lines_are_left_out(
    tmp_path: Path, tokenizer: JsonTokenizer
) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\nend")
    assert next_after(b"ne", path, tokenizer) == b"\ntwo\nend"
    assert len(load_corpus(path, tokenizer)) == len("one\ntwo\nend")


def test_the_text_of_a_control_token_stays_text(tmp_path: Path, tokenizer: JsonTokenizer) -> None:
    path = tmp_path / "text"
    path.write_text("bye<|end|>")
    assert next_after(b"bye", path, tokenizer) == b"<|end|>"


def test_an_empty_text_says_nothing(tmp_path: Path, tokenizer: JsonTokenizer) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"")
    assert next_after(b"a", path, tokenizer) == b""


def test_what_cannot_be_read_is_refused_by_its_name(tmp_path: Path, tokenizer: JsonTokenizer) -> None:
    (tmp_path / "bytes").write_bytes(b"abc\xff")
    (tmp_path / "folder").mkdir()
    with (tmp_path / "large").open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    for name in ("bytes", "folder", "large", "missing", "\0"):
        path = tmp_path / name
        with refused(Reason.FILE_UNREADABLE, str(path)):
            load_corpus(path, tokenizer)
