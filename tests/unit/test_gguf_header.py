"""Reading GGUF metadata: what the `gguf` package wrote is read back, and a damaged file is refused by one reason."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from outrider.shared.byte_level import byte_of_character
from outrider.shared.errors import OutriderError, Reason
from outrider.shared.gguf_header import MAX_KEYS, GgufHeader, Value, read_gguf_header
from outrider.shared.llama.runtime import LlamaModel
from outrider.shared.vocabulary_gguf import read_vocabulary, vocabulary_of_header
from support.refusal import refused

STRING, ARRAY, UINT8, UINT32 = 8, 9, 0, 4
NORMAL, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 3, 4, 5, 6
Write = Callable[[gguf.GGUFWriter], Any]


def write_gguf(path: Path, write: Write) -> Path:
    writer = gguf.GGUFWriter(path, "qwen2")
    write(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def add_values(writer: gguf.GGUFWriter) -> None:
    writer.add_uint8("u8", 200)
    writer.add_int8("i8", -100)
    writer.add_uint16("u16", 65_000)
    writer.add_int16("i16", -30_000)
    writer.add_uint32("u32", 2**32 - 1)
    writer.add_int32("i32", -(2**31))
    writer.add_uint64("u64", 2**64 - 1)
    writer.add_int64("i64", -(2**63))
    writer.add_float32("f32", 0.5)
    writer.add_float64("f64", 0.1)
    writer.add_bool("yes", True)
    writer.add_bool("no", False)
    writer.add_string("text", "grüße 🙂")
    writer.add_array("ids", [1, -2, 3])
    writer.add_array("scores", [0.5, -0.25])
    writer.add_array("flags", [True, False, True])
    writer.add_array("words", ["a", "", "Ġthe", "🙂"])
    writer.add_array("bytes", b"\x00\xff\x80")
    writer.add_tensor("weight", np.arange(64, dtype=np.float32))


EXPECTED: dict[str, Value] = {
    "general.architecture": b"qwen2",
    "u8": 200,
    "i8": -100,
    "u16": 65_000,
    "i16": -30_000,
    "u32": 2**32 - 1,
    "i32": -(2**31),
    "u64": 2**64 - 1,
    "i64": -(2**63),
    "f32": 0.5,
    "f64": 0.1,
    "yes": True,
    "no": False,
    "text": "grüße 🙂".encode(),
    "ids": [1, -2, 3],
    "scores": [0.5, -0.25],
    "flags": [True, False, True],
    "words": [b"a", b"", "Ġthe".encode(), "🙂".encode()],
    "bytes": [0, 255, 128],
}


@pytest.fixture(scope="module")
def values_gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a value of every kind and a tensor."""
    return write_gguf(tmp_path_factory.mktemp("gguf") / "values.gguf", add_values)


def key_value(key: bytes, kind: int, body: bytes) -> bytes:
    return struct.pack("<Q", len(key)) + key + struct.pack("<I", kind) + body


def raw_file(path: Path, *entries: bytes, count: int | None = None, magic: bytes = b"GGUF", version: int = 3) -> Path:
    head = struct.pack("<4sIQQ", magic, version, 0, len(entries) if count is None else count)
    path.write_bytes(head + b"".join(entries))
    return path


def test_values_of_every_kind_are_read_as_they_were_written(values_gguf: Path) -> None:
    header = read_gguf_header(values_gguf)
    assert header.version == 3
    assert header.values == EXPECTED
    assert [type(header.values[key]) for key in ("u8", "f32", "yes", "text")] == [int, float, bool, bytes]


def test_getters_give_their_kind_or_nothing(values_gguf: Path) -> None:
    header = read_gguf_header(values_gguf)
    assert header.text("text") == "grüße 🙂"
    assert (header.text("u8"), header.text("absent", "else")) == ("", "else")
    assert (header.integer("i8"), header.integer("text"), header.integer("absent")) == (-100, None, None)
    assert header.integers("ids") == [1, -2, 3]
    assert header.strings("words")[2] == "Ġthe".encode()
    for key in ("ids", "text", "absent"):
        assert header.strings(key) == []
    for key in ("words", "u8", "absent"):
        assert header.integers(key) == []


def test_a_copy_without_tensors_has_the_same_metadata_for_everybody(values_gguf: Path, tmp_path: Path) -> None:
    header = read_gguf_header(values_gguf)
    copy = tmp_path / "copy.gguf"
    copy.write_bytes(header.without_tensors())
    assert read_gguf_header(copy) == header
    assert copy.stat().st_size % 32 == 0
    theirs = gguf.GGUFReader(copy)
    assert len(theirs.tensors) == 0
    assert theirs.get_field("text").contents() == "grüße 🙂"
    assert theirs.get_field("words").contents() == ["a", "", "Ġthe", "🙂"]


def test_a_copy_of_version_2_stays_of_version_2(tmp_path: Path) -> None:
    header = read_gguf_header(raw_file(tmp_path / "two.gguf", key_value(b"k", UINT8, b"\x07"), version=2))
    copy = tmp_path / "copy.gguf"
    copy.write_bytes(header.without_tensors())
    assert (read_gguf_header(copy).version, read_gguf_header(copy).values) == (2, {"k": 7})


def test_truncation_anywhere_is_damage_and_nothing_else(values_gguf: Path, tmp_path: Path) -> None:
    data = values_gguf.read_bytes()
    metadata = 24 + len(read_gguf_header(values_gguf).raw)
    assert metadata < len(data)
    short = tmp_path / "short.gguf"
    for length in [*range(0, metadata, 3), metadata - 1]:
        short.write_bytes(data[:length])
        with refused(Reason.MODEL_CORRUPT, "short.gguf"):
            read_gguf_header(short)
    short.write_bytes(data[:metadata])
    assert read_gguf_header(short).values == EXPECTED


@given(data=st.data())
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_flipped_bytes_never_raise_anything_else(data: st.DataObject, values_gguf: Path, tmp_path: Path) -> None:
    content = bytearray(values_gguf.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, 500))] = data.draw(st.integers(0, 255))
    path = tmp_path / "flipped.gguf"
    path.write_bytes(content)
    try:
        read_gguf_header(path)
    except OutriderError as error:
        assert error.reason is Reason.MODEL_CORRUPT


HUGE = 2**63
NESTED = struct.pack("<IQ", ARRAY, 1) * 100_000


@pytest.mark.parametrize(
    "entry",
    [
        struct.pack("<Q", HUGE) + b"key",
        struct.pack("<Q", 2**64 - 1) + b"key",
        key_value(b"k", STRING, struct.pack("<Q", HUGE)),
        key_value(b"k", STRING, struct.pack("<Q", 40_000_000)),
        key_value(b"k", ARRAY, struct.pack("<IQ", UINT32, 2**64 - 1)),
        key_value(b"k", ARRAY, struct.pack("<IQ", UINT32, 50_000_000)),
        key_value(b"k", ARRAY, struct.pack("<IQ", STRING, 2**62)),
        key_value(b"k", ARRAY, struct.pack("<IQ", STRING, 50_000_000)),
        key_value(b"k", ARRAY, struct.pack("<IQ", ARRAY, 50_000_000)),
        key_value(b"k", ARRAY, NESTED),
        key_value(b"k", 7777, b"\0" * 32),
        key_value(b"k", ARRAY, struct.pack("<IQ", 7777, 1) + b"\0" * 32),
        key_value(b"\xff\xfe", UINT8, b"\x01"),
    ],
)
def test_absurd_lengths_and_kinds_are_damage_and_take_no_memory(entry: bytes, tmp_path: Path) -> None:
    path = raw_file(tmp_path / "absurd.gguf", entry)
    tracemalloc.start()
    try:
        with refused(Reason.MODEL_CORRUPT, "absurd.gguf"):
            read_gguf_header(path)
        assert tracemalloc.get_traced_memory()[1] < 4_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("count", [2, 100_001, 2**64 - 1])
def test_more_keys_than_there_are_is_damage(count: int, tmp_path: Path) -> None:
    with refused(Reason.MODEL_CORRUPT):
        read_gguf_header(raw_file(tmp_path / "keys.gguf", key_value(b"k", UINT8, b"\x01"), count=count))


def test_a_flood_of_keys_is_refused_even_if_they_are_all_there(tmp_path: Path) -> None:
    entries = key_value(b"k", UINT8, b"\x01") * (MAX_KEYS + 1)
    assert read_gguf_header(raw_file(tmp_path / "keys.gguf", entries, count=MAX_KEYS)).values == {"k": 1}
    with refused(Reason.MODEL_CORRUPT, f"{MAX_KEYS + 1} keys"):
        read_gguf_header(raw_file(tmp_path / "keys.gguf", entries, count=MAX_KEYS + 1))


def test_what_is_no_gguf_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.gguf"
    for content in (b"", b"GG", b"PK\x03\x04" + b"\0" * 60, b"{}" * 40):
        path.write_bytes(content)
        with refused(Reason.MODEL_CORRUPT, "other.gguf"):
            read_gguf_header(path)
    for magic, version in ((b"GGML", 3), (b"GGUF", 1), (b"GGUF", 4), (b"GGUF", 0x03000000)):
        with refused(Reason.MODEL_CORRUPT, f"version {version}"):
            read_gguf_header(raw_file(path, magic=magic, version=version))


def test_what_cannot_be_opened_is_unreadable(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.gguf", tmp_path):
        with refused(Reason.FILE_UNREADABLE, str(path)):
            read_gguf_header(path)


# Vocabularies.


def add_tiny_vocabulary(writer: gguf.GGUFWriter) -> None:
    spelling = sorted(byte_of_character(), key=byte_of_character().__getitem__)
    tokens = [*spelling, "th", "the", "<|end|>", "<é>", "[PAD0]", "[PAD1]"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types([NORMAL] * 258 + [CONTROL, USER_DEFINED, UNUSED, UNUSED])
    writer.add_token_merges(["t h", "th e"])
    writer.add_eos_token_id(258)
    writer.add_chat_template("{{ messages }}")


def test_a_copy_without_tensors_tokenizes_in_llama_cpp(tmp_path: Path) -> None:
    header = read_gguf_header(write_gguf(tmp_path / "tiny.gguf", add_tiny_vocabulary))
    copy = tmp_path / "copy.gguf"
    copy.write_bytes(header.without_tensors())
    model = LlamaModel(copy, vocabulary_only=True)
    try:
        vocabulary = read_vocabulary(copy)
        assert (model.width, vocabulary.size, vocabulary.padded_width) == (262, 260, 262)
        assert model.tokenize("the t") == [257, ord(" "), ord("t")]
        for text in ("thé 🙂\n\0", "<|end|>", ""):
            ids = model.tokenize(text)
            assert b"".join(vocabulary.pieces[i] for i in ids) == text.encode()
            assert 258 not in ids
    finally:
        model.close()


def test_a_real_models_tokenizer_is_the_same_without_its_tensors(tiny_gguf: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.gguf"
    copy.write_bytes(read_gguf_header(tiny_gguf).without_tensors())
    assert copy.stat().st_size < tiny_gguf.stat().st_size / 10
    assert read_vocabulary(copy).fingerprint == read_vocabulary(tiny_gguf).fingerprint
    whole, part = LlamaModel(tiny_gguf, vocabulary_only=True), LlamaModel(copy, vocabulary_only=True)
    try:
        text = "The thing in the sand, and another one.\n  42 naïve 🙂"
        assert whole.tokenize(text) == part.tokenize(text)
    finally:
        whole.close()
        part.close()


def test_vocabulary_spells_bytes_and_leaves_control_and_user_defined_text_alone(tmp_path: Path) -> None:
    vocabulary = read_vocabulary(write_gguf(tmp_path / "tiny.gguf", add_tiny_vocabulary))
    assert list(vocabulary.pieces[:256]) == [bytes([i]) for i in range(256)]
    assert list(vocabulary.pieces[256:]) == [b"th", b"the", b"<|end|>", "<é>".encode()]
    assert vocabulary.special_ids == vocabulary.stop_ids == {258}
    assert list(vocabulary.merges) == ["t h", "th e"]
    assert (vocabulary.normaliser, vocabulary.template) == ("gguf:gpt2:qwen2", "{{ messages }}")


def header_of(texts: list[bytes], types: list[int], model: bytes = b"gpt2", **more: Any) -> GgufHeader:
    values: dict[str, Value] = {
        "tokenizer.ggml.model": model,
        "tokenizer.ggml.tokens": list(texts),
        "tokenizer.ggml.token_type": list(types),
    }
    return GgufHeader(3, values | {f"tokenizer.ggml.{key}": value for key, value in more.items()}, b"")


def test_padding_at_the_end_is_cut_off_and_unused_ids_in_between_are_not() -> None:
    vocabulary = vocabulary_of_header(header_of([b"a", b"b", b"c", b"d", b"e"], [1, UNUSED, 1, UNUSED, UNUSED]), "f")
    assert (list(vocabulary.pieces), vocabulary.size, vocabulary.padded_width) == ([b"a", b"b", b"c"], 3, 5)
    without_types = vocabulary_of_header(header_of([b"a", b"b"], []), "f")
    assert (without_types.size, without_types.special_ids) == (2, frozenset())


@pytest.mark.parametrize("key", ["eos_token_id", "eot_token_id", "eom_token_id"])
@pytest.mark.parametrize("stop_id", [-1, 2, 3, 2**32 - 1])
def test_a_stop_id_outside_the_real_ids_is_damage(key: str, stop_id: int) -> None:
    header = header_of([b"a", b"b", b"pad"], [1, 1, UNUSED], b"gpt2", **{key: stop_id})
    with refused(Reason.MODEL_CORRUPT, f"stop id {stop_id}", "f.gguf"):
        vocabulary_of_header(header, "f.gguf")


def test_all_declared_ends_are_stop_ids() -> None:
    ends = {"eos_token_id": 0, "eot_token_id": 1, "eom_token_id": 1}
    assert vocabulary_of_header(header_of([b"a", b"b", b"c"], [3, 3, 3], b"gpt2", **ends), "f").stop_ids == {0, 1}


def test_a_file_without_a_tokenizer_is_unsupported_and_one_with_half_a_table_damaged() -> None:
    with refused(Reason.MODEL_UNSUPPORTED, "f.gguf"):
        vocabulary_of_header(GgufHeader(3, {}, b""), "f.gguf")
    with refused(Reason.MODEL_CORRUPT, "2 tokens but 1"):
        vocabulary_of_header(header_of([b"a", b"b"], [1]), "f.gguf")


def test_sentencepiece_pieces_spell_spaces_and_single_bytes() -> None:
    texts = ["▁the".encode(), b"<0x0A>", b"<s>", b"<0xFF>", "a▁b".encode()]
    vocabulary = vocabulary_of_header(header_of(texts, [NORMAL, BYTE, CONTROL, BYTE, USER_DEFINED], b"llama"), "f")
    assert list(vocabulary.pieces) == [b" the", b"\n", b"<s>", b"\xff", b"a b"]


@pytest.mark.parametrize(
    "header",
    [
        header_of([b"<0xZZ>"], [BYTE], b"llama"),
        header_of([b""], [BYTE], b"llama"),
        header_of([b"a"], [NORMAL], merges=[b"\xff\xfe"]),
    ],
)
def test_pieces_and_merges_that_spell_nothing_are_damage(header: GgufHeader) -> None:
    with refused(Reason.MODEL_CORRUPT, "f.gguf"):
        vocabulary_of_header(header, "f.gguf")
