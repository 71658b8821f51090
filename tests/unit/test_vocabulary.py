"""The identity of a tokenizer: whatever differs is found and named, and what may differ is let through."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from outrider.shared.errors import Reason
from outrider.shared.tiny import TINY_SIZE, tiny_vocabulary
from outrider.shared.vocabulary import Fingerprint, Vocabulary
from support.refusal import refused

FIELDS = ("pieces", "special_ids", "merges", "normaliser", "template", "stop_ids", "real_width", "padded_width")


def make(**changes: Any) -> Vocabulary:
    vocabulary = dataclasses.replace(tiny_vocabulary(), merges=("a b", "ab c"), normaliser="gguf:qwen2")
    return dataclasses.replace(vocabulary, **changes)


def pieces_with(**changes: Any) -> tuple[bytes, ...]:
    pieces = list(tiny_vocabulary().pieces)
    for index, piece in changes.items():
        pieces[int(index[1:])] = piece
    return tuple(pieces)


def difference(other: Vocabulary, *ignore: str) -> str | None:
    """What tells `other` from the reference, which must be the same seen from either side."""
    found = make().fingerprint.first_difference(other.fingerprint, frozenset(ignore))
    assert found == other.fingerprint.first_difference(make().fingerprint, frozenset(ignore))
    return found


CHANGES = [
    ({"pieces": pieces_with(_65=b"B", _66=b"A")}, "pieces"),
    ({"pieces": pieces_with(_65=b"AB", _66=b"")}, "pieces"),
    ({"pieces": (*tiny_vocabulary().pieces, b"new")}, "real_width"),
    ({"pieces": tiny_vocabulary().pieces[:-1]}, "real_width"),
    ({"special_ids": frozenset({256, 257, 258})}, "special_ids"),
    ({"special_ids": frozenset({65, 256, 257, 258, 259})}, "special_ids"),
    ({"merges": ("ab c", "a b")}, "merges"),
    ({"merges": ("a b",)}, "merges"),
    ({"merges": ("a bab c",)}, "merges"),
    ({"normaliser": "gguf:llama-bpe"}, "normaliser"),
    ({"template": "{{ messages }}"}, "template"),
    ({"stop_ids": frozenset({257})}, "stop_ids"),
    ({"stop_ids": frozenset({256, 257})}, "stop_ids"),
    ({"stop_ids": frozenset()}, "stop_ids"),
]


@pytest.mark.parametrize(("changes", "name"), CHANGES)
def test_what_differs_is_named(changes: dict[str, Any], name: str) -> None:
    assert difference(make(**changes)) == name


@pytest.mark.parametrize(("changes", "name"), CHANGES)
def test_what_is_ignored_does_not_matter(changes: dict[str, Any], name: str) -> None:
    ignored = ("real_width", "pieces") if name == "real_width" else (name,)
    assert difference(make(**changes), *ignored) is None
    others = set(FIELDS) - set(ignored)
    assert difference(make(**changes), *others) == name


def test_two_swapped_ids_of_one_size_are_not_compatible() -> None:
    swapped = make(pieces=pieces_with(_97=b"b", _98=b"a"))
    assert (swapped.size, swapped.padded_width) == (make().size, make().padded_width)
    assert difference(swapped) == "pieces"


def test_a_head_padded_to_another_width_is_compatible() -> None:
    padded = make(padded_width=512)
    assert padded.fingerprint != make().fingerprint
    assert difference(padded) is None


def test_unknown_fields_fit_everything() -> None:
    bare = make(merges=(), normaliser="", template="")
    assert (bare.fingerprint.merges, bare.fingerprint.normaliser, bare.fingerprint.template) == ("", "", "")
    assert difference(bare) is None


def test_normalisers_are_compared_within_one_format_only() -> None:
    assert difference(make(normaliser="hf:llama-bpe")) is None
    assert difference(make(normaliser="gguf:qwen2 ")) == "normaliser"
    hf = make(normaliser="hf:a").fingerprint
    assert hf.first_difference(make(normaliser="hf:b").fingerprint) == "normaliser"
    assert hf.first_difference(make(normaliser="hf:a").fingerprint) is None


def test_the_widest_difference_is_named_first() -> None:
    other = make(pieces=(b"x",), special_ids=frozenset(), merges=("x y",), template="x", stop_ids=frozenset({0}))
    assert difference(other) == "real_width"
    assert difference(other, "real_width") == "pieces"


def test_fingerprint_has_every_field_and_is_stable_over_containers() -> None:
    print_ = make().fingerprint
    assert {field.name for field in dataclasses.fields(Fingerprint)} == set(FIELDS)
    assert (print_.real_width, print_.padded_width) == (260, 264)
    digests = (print_.pieces, print_.special_ids, print_.merges, print_.template, print_.stop_ids)
    assert all(len(digest) == 32 for digest in digests)
    assert print_.normaliser.startswith("gguf:")
    assert "qwen2" not in print_.normaliser
    again = make(pieces=list(make().pieces), merges=list(make().merges), special_ids=frozenset([259, 258, 257, 256]))
    assert again.fingerprint == print_


@pytest.mark.parametrize("token", [-1, TINY_SIZE, TINY_SIZE + 3, 2**31 - 1, 2**40])
@pytest.mark.parametrize("index", [0, 2])
def test_an_id_outside_the_real_vocabulary_is_refused_by_place_and_value(token: int, index: int) -> None:
    ids = [0, TINY_SIZE - 1, 5]
    ids[index] = token
    with refused(Reason.TOKEN_OUT_OF_RANGE, f"prompt[{index}] = {token}", f"size {TINY_SIZE}"):
        make().check_ids(ids, "prompt")


def test_ids_of_the_real_vocabulary_pass() -> None:
    make().check_ids(range(TINY_SIZE), "prompt")
    make().check_ids((), "prompt")
    make().check_ids({7: -100.0}, "logit_bias")
