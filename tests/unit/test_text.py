"""From ids to text that can be shown: the same however text is split into tokens, never taken back, and cut where
the ids are cut.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from outrider.edge.chunks import Chunk, ChunkAssembler
from outrider.edge.text import TextStream
from outrider.shared.tiny import END, USER, tiny_vocabulary
from outrider.shared.token_tree import CommittedToken, Origin
from outrider.shared.vocabulary import Vocabulary

# Letters of few kinds, so that stop strings overlap each other and themselves, and characters of 2 to 4 bytes.
ALPHABET = "aab\nä€🙂"
STOPS = st.lists(st.text(ALPHABET, min_size=1, max_size=5), max_size=3)


def vocabulary_of(pieces: Sequence[bytes], special_ids: Sequence[int] = ()) -> Vocabulary:
    """A vocabulary whose id i is piece i, so that any split of any text is a sequence of ids."""
    return dataclasses.replace(tiny_vocabulary(), pieces=list(pieces), special_ids=frozenset(special_ids))


def run(pieces: Sequence[bytes], stops: Sequence[str], special_ids: Sequence[int] = ()) -> tuple[list[str], int, bool]:
    """Texts released after each piece and at the end, the number of ids released, and whether a stop was found."""
    stream = TextStream(vocabulary_of(pieces, special_ids), stops)
    texts: list[str] = []
    count = 0
    for token in range(len(pieces)):
        released = stream.push(token)
        texts.append(released.text)
        count += released.token_count
        if stream.stopped:
            return texts, count, True
    released = stream.flush()
    return [*texts, released.text], count + released.token_count, False


def first_stop(data: bytes, stops: Sequence[str]) -> int | None:
    """Where the stop string that is complete first begins: read byte by byte, the longest that ends there."""
    for end in range(len(data) + 1):
        begins = [end - len(s.encode()) for s in stops if data[:end].endswith(s.encode())]
        if begins:
            return min(begins)
    return None


@st.composite
def splits(draw: st.DrawFn, data: bytes) -> list[bytes]:
    """`data` cut into pieces, some of them perhaps empty."""
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=12)))
    return [data[a:b] for a, b in pairwise([0, *cuts, len(data)])]


def check(pieces: Sequence[bytes], stops: Sequence[str]) -> None:
    data = b"".join(pieces)
    cut = first_stop(data, stops)
    expected = data[: len(data) if cut is None else cut].decode("utf-8", "replace")
    texts, count, stopped = run(pieces, stops)
    assert stopped == (cut is not None)
    shown = ""
    for text in texts:
        shown += text
        assert expected.startswith(shown), "shown and then taken back"
    assert shown == expected
    starts = [len(b"".join(pieces[:i])) for i in range(len(pieces))]
    if cut is None:
        assert count == len(pieces)
    else:
        ids = [i for i, start in enumerate(starts) if start < cut or (start == cut and not pieces[i])]
        assert ids == list(range(count))


@given(st.text(ALPHABET, max_size=20).flatmap(lambda text: splits(text.encode())), STOPS)
@settings(max_examples=400, deadline=None)
@example([b"a", b"b", b"c"], ["abc", "b"])
@example([b"abc"], ["abc", "b"])
@example([b"x", b"", b"xy"], ["xy"])
@example([b"aaa", b"ab"], ["aab"])
def test_text_and_ids_are_cut_alike_for_any_split_and_any_stop_strings(pieces: list[bytes], stops: list[str]) -> None:
    check(pieces, stops)


@given(st.binary(max_size=12).flatmap(splits), st.lists(st.sampled_from(["a", "é", "\x00", "\ufffd"]), max_size=2))
@settings(max_examples=300, deadline=None)
@example([b"\xc3"], [])
@example([b"\xf0\x9f", b"\x99"], [])
@example([b"\xe2\x82", b"a"], ["a"])
def test_bytes_that_are_no_text_become_replacement_characters(pieces: list[bytes], stops: list[str]) -> None:
    check(pieces, stops)


def test_a_character_split_over_tokens_waits_for_its_last_byte() -> None:
    for text in ("é", "€", "🙂"):
        pieces = [bytes([byte]) for byte in text.encode()]
        texts, count, _ = run(pieces, [])
        assert texts == [*[""] * (len(pieces) - 1), text, ""]
        assert count == len(pieces)


def test_an_incomplete_character_at_the_end_is_flushed_as_a_replacement() -> None:
    texts, count, _ = run([b"a", b"\xf0\x9f\x99"], [])
    assert texts == ["a", "", "\ufffd"]
    assert count == 2


@pytest.mark.parametrize("block", range(1, 7))
def test_a_stop_string_over_two_tokens_is_found_at_every_offset(block: int) -> None:
    for offset in range(2 * block + 1):
        data = b"x" * offset + b"STOP" + b"y" * block
        for inside in range(1, 4):
            # One cut inside the stop string, the rest in blocks.
            head, tail = data[: offset + inside], data[offset + inside :]
            pieces = [part[i : i + block] for part in (head, tail) for i in range(0, len(part), block)]
            texts, count, stopped = run(pieces, ["STOP"])
            assert stopped
            assert "".join(texts) == "x" * offset
            starts = [sum(map(len, pieces[:i])) for i in range(len(pieces))]
            assert count == sum(start < offset for start in starts)


def test_what_may_begin_a_stop_string_is_held_and_no_more_than_that() -> None:
    texts, count, stopped = run([b"one ", b"two S", b"T", b"ART ", b"STO"], ["STOP"])
    # The token that ends in a possible beginning waits as a whole, so that text and ids go out together.
    assert texts == ["one ", "", "", "two START ", "", "STO"]
    assert (count, stopped) == (5, False)


def test_without_stop_strings_nothing_is_held() -> None:
    texts, _, _ = run([b"STO", b"P"], [])
    assert texts == ["STO", "P", ""]


def test_control_ids_count_but_show_nothing() -> None:
    texts, count, _ = run([b"a", b"<|user|>", b"b"], ["<|user|>", "ba"], special_ids=[1])
    assert texts == ["a", "", "", "b"]
    assert count == 3


# Chunks.

ORIGINS = st.sampled_from([Origin.DRAFTED, Origin.CORRECTED, Origin.CLOUD])


def assemble(
    vocabulary: Vocabulary, stop: Sequence[str], commits: Sequence[Sequence[CommittedToken]], stop_id: int = END
) -> tuple[ChunkAssembler, list[Chunk]]:
    assembler = ChunkAssembler(vocabulary, frozenset({stop_id}), stop)
    chunks: list[Chunk] = []
    for commit in commits:
        chunks += assembler.push(commit)
        if assembler.stopped:
            break
    return assembler, [*chunks, *assembler.flush()]


def commits_of(data: st.DataObject, tokens: Sequence[CommittedToken]) -> Iterator[list[CommittedToken]]:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(tokens)), max_size=5)))
    return (list(tokens[a:b]) for a, b in pairwise([0, *cuts, len(tokens)]))


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_chunks_join_to_text_and_ids_with_the_origins_of_their_tokens(data: st.DataObject) -> None:
    pieces = data.draw(st.text(ALPHABET, max_size=16).flatmap(lambda text: splits(text.encode())))
    stops = data.draw(STOPS)
    origins = [data.draw(ORIGINS) for _ in pieces]
    tokens = [CommittedToken(i, origin) for i, origin in enumerate(origins)]
    commits = list(commits_of(data, tokens))
    assembler, chunks = assemble(vocabulary_of(pieces), stops, commits, stop_id=-1)
    texts, count, stopped = run(pieces, stops)
    assert assembler.stopped == stopped
    assert assembler.text == "".join(texts) == "".join(chunk.text for chunk in chunks)
    assert assembler.token_ids == list(range(count)) == [i for chunk in chunks for i in chunk.token_ids]
    for chunk in chunks:
        assert chunk.text or chunk.token_ids
        assert chunk.result is None
        assert all(origins[i] is chunk.origin for i in chunk.token_ids)


def test_a_chunk_is_a_run_of_one_origin() -> None:
    tokens = [
        CommittedToken(ord("a"), Origin.DRAFTED),
        CommittedToken(ord("b"), Origin.DRAFTED),
        CommittedToken(ord("c"), Origin.CORRECTED),
        CommittedToken(ord("d"), Origin.CLOUD),
    ]
    _, chunks = assemble(tiny_vocabulary(), [], [tokens, tokens[:1]])
    assert chunks == [
        Chunk("ab", [ord("a"), ord("b")], Origin.DRAFTED),
        Chunk("c", [ord("c")], Origin.CORRECTED),
        Chunk("d", [ord("d")], Origin.CLOUD),
        Chunk("a", [ord("a")], Origin.DRAFTED),
    ]


def test_a_stop_id_ends_the_answer_and_is_no_part_of_it() -> None:
    tokens = [CommittedToken(i, Origin.CLOUD) for i in (ord("a"), USER, END, ord("b"))]
    assembler, chunks = assemble(tiny_vocabulary(), [], [tokens])
    assert assembler.token_ids == [ord("a"), USER]
    assert "".join(chunk.text for chunk in chunks) == assembler.text == "a"
    assert not assembler.stopped, "that is what stop texts do"


def test_a_stop_text_in_mid_commit_drops_the_rest_of_the_commit() -> None:
    tokens = [CommittedToken(byte, Origin.DRAFTED) for byte in b"one.two.three"]
    assembler, chunks = assemble(tiny_vocabulary(), [".t"], [tokens])
    assert assembler.stopped
    assert chunks == [Chunk("one", list(b"one"), Origin.DRAFTED)]
    assert (assembler.text, assembler.token_ids) == ("one", list(b"one"))


def test_what_was_held_back_comes_out_when_the_answer_ends_after_all() -> None:
    tokens = [CommittedToken(byte, Origin.DRAFTED) for byte in b"on."]
    assembler = ChunkAssembler(tiny_vocabulary(), frozenset({END}), [".t"])
    assert assembler.push(tokens) == [Chunk("on", list(b"on"), Origin.DRAFTED)]
    assert assembler.flush() == [Chunk(".", list(b"."), Origin.DRAFTED)]
    assert assembler.text == "on."
