"""Text that nobody has verified: given out at once, and what a reader has who follows the chunks is in the end the text
of the committed tokens.
"""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.edge.chunks import Chunk, ChunkAssembler, Retract
from outrider.edge.commands.paper import Pipe, Terminal
from outrider.shared.tiny import END, tiny_vocabulary
from outrider.shared.token_tree import CommittedToken, Origin
from outrider.shared.vocabulary import Vocabulary

# Beginnings and ends of characters, and letters of few kinds: chance finds stop texts and broken characters.
PIECES = [b"a", b"b", b"ab", "€".encode(), "€".encode()[:1], "€".encode()[1:], b"", b"\xff"]
STOP_ID = len(PIECES)
TOKENS = st.integers(0, STOP_ID)
FINAL = [origin for origin in Origin if origin is not Origin.UNVERIFIED]


def vocabulary() -> Vocabulary:
    return dataclasses.replace(tiny_vocabulary(), pieces=[*PIECES, b""], special_ids=frozenset())


class Reader:
    """Does what the docstring of `Chunk` asks for."""

    def __init__(self) -> None:
        self.text = ""
        self.token_ids: list[int] = []
        self.unverified = 0

    def follow(self, chunks: Sequence[Chunk]) -> None:
        for chunk in chunks:
            self.unverified -= chunk.verified
            assert self.unverified >= 0
            if chunk.retract is not None:
                assert self.text[chunk.retract.text_length :] == chunk.retract.withdrawn
                assert self.unverified == len(self.token_ids) - chunk.retract.token_count
                self.text = self.text[: chunk.retract.text_length]
                del self.token_ids[chunk.retract.token_count :]
                self.unverified = 0
            self.text += chunk.text
            self.token_ids += chunk.token_ids
            if chunk.origin is Origin.UNVERIFIED:
                self.unverified += len(chunk.token_ids)


@st.composite
def histories(draw: st.DrawFn) -> list[list[CommittedToken]]:
    """Commits, and between them what was said without a verifier: mostly what comes then, sometimes something else."""
    final = [CommittedToken(token, draw(st.sampled_from(FINAL))) for token in draw(st.lists(TOKENS, max_size=14))]
    history: list[list[CommittedToken]] = []
    at = 0
    while at < len(final):
        if draw(st.booleans()):
            right = draw(st.integers(0, len(final) - at))
            said = [*(one.token for one in final[at : at + right]), *draw(st.lists(TOKENS, max_size=4))]
            history += [[CommittedToken(token, Origin.UNVERIFIED)] for token in said if token != STOP_ID]
        count = draw(st.integers(1, 5))
        history.append(final[at : at + count])
        at += count
    return history


def play(
    history: Sequence[Sequence[CommittedToken]], stops: Sequence[str], *, unverified: bool = False
) -> tuple[ChunkAssembler, list[Chunk]]:
    assembler = ChunkAssembler(vocabulary(), frozenset({STOP_ID}), stops)
    chunks: list[Chunk] = []
    for tokens in history:
        chunks += assembler.push(tokens)
        if assembler.stopped:
            break
    return assembler, [*chunks, *assembler.flush(unverified=unverified)]


def only_final(history: Sequence[Sequence[CommittedToken]]) -> list[list[CommittedToken]]:
    return [list(tokens) for tokens in history if all(token.origin in FINAL for token in tokens)]


STOPS = st.lists(st.sampled_from(["ab", "b€", "aba", "€€"]), max_size=2)


@settings(max_examples=400, deadline=None)
@given(histories(), STOPS)
def test_whoever_follows_the_chunks_has_the_verified_text_in_the_end(
    history: list[list[CommittedToken]], stops: list[str]
) -> None:
    assembler, chunks = play(history, stops)
    plain, _ = play(only_final(history), stops)
    reader = Reader()
    reader.follow(chunks)
    assert (reader.text, reader.token_ids, reader.unverified) == (plain.text, plain.token_ids, 0)
    assert (assembler.text, assembler.token_ids, assembler.unverified_count) == (plain.text, plain.token_ids, 0)
    assert assembler.drafted_count == plain.drafted_count


@settings(max_examples=400, deadline=None)
@given(histories(), STOPS)
def test_a_pipe_gets_the_verified_text_and_nothing_else(history: list[list[CommittedToken]], stops: list[str]) -> None:
    _, chunks = play(history, stops)
    plain, _ = play(only_final(history), stops)
    stream = io.StringIO()
    pipe = Pipe(stream)
    for chunk in chunks:
        pipe.put(chunk)
        assert plain.text.startswith(stream.getvalue())
    pipe.end()
    assert stream.getvalue() == plain.text + "\n"


@settings(deadline=None)
@given(histories(), st.lists(st.sampled_from([0, 1, 2]), max_size=4), STOPS)
def test_an_answer_that_ends_unverified_shows_all_that_was_said(
    history: list[list[CommittedToken]], said: list[int], stops: list[str]
) -> None:
    """The text is that of the committed tokens, and of those after them, as if all had been committed."""
    before = only_final(history)
    alone = [CommittedToken(token, Origin.UNVERIFIED) for token in said]
    stop_seen = any(token.token == STOP_ID for tokens in before for token in tokens)
    if stop_seen:
        return
    assembler, chunks = play([*before, alone], stops, unverified=True)
    plain, _ = play([*before, [CommittedToken(token, Origin.CLOUD) for token in said]], stops)
    stream, reader = io.StringIO(), Reader()
    reader.follow(chunks)
    pipe = Pipe(stream)
    for chunk in chunks:
        pipe.put(chunk)
    pipe.end()
    assert (reader.text, reader.token_ids) == (plain.text, plain.token_ids) == (assembler.text, assembler.token_ids)
    assert stream.getvalue() == plain.text + "\n"
    assert reader.unverified <= assembler.unverified_count


def letters(text: str, origin: Origin) -> list[CommittedToken]:
    return [CommittedToken(byte, origin) for byte in text.encode()]


def test_a_difference_is_told_with_its_place_and_the_new_text() -> None:
    assembler = ChunkAssembler(tiny_vocabulary(), frozenset({END}), [])
    assembler.push(letters("one ", Origin.DRAFTED))
    assert assembler.push(letters("tree", Origin.UNVERIFIED)) == [
        Chunk("tree", list(b"tree"), Origin.UNVERIFIED),
    ]
    assert assembler.push(letters("two", Origin.CORRECTED)) == [
        Chunk("", [], Origin.CORRECTED, verified=1),
        Chunk("wo", list(b"wo"), Origin.CORRECTED, retract=Retract(5, 5, "ree")),
    ]
    assert assembler.text == "one two"


def test_a_terminal_dims_what_nobody_has_verified_and_says_what_does_not_stay() -> None:
    stream = io.StringIO()
    terminal = Terminal(stream)
    terminal.put(Chunk("one\ntwo ", list(b"one\ntwo "), Origin.CLOUD))
    terminal.put(Chunk("tree", list(b"tree"), Origin.UNVERIFIED))
    terminal.put(Chunk("", [], Origin.CLOUD, verified=1))
    terminal.put(Chunk("hree", list(b"hree"), Origin.CLOUD, retract=Retract(9, 9, "ree")))
    terminal.end()
    shown = stream.getvalue().split("\n")
    assert shown[:2] == ["one", "two \033[2mtree\033[0m"]
    assert "3 characters" in shown[2]
    assert shown[3:] == ["two three", ""]
