"""The `transformers` engine against the suite, over a tiny random model; what it refuses; and that its two sources,
a directory and a GGUF file, are one model to it and to llama.cpp.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from conformance.engine_suite import EngineConformance
from outrider.cloud.targets.base import ROOT_PARENT, Engine, SlotRows
from outrider.cloud.targets.transformers import TransformersEngine
from outrider.cloud.targets.transformers_load import AttentionName
from outrider.shared import vocabulary_gguf, vocabulary_hf
from outrider.shared.errors import OutriderError, Reason
from outrider.shared.tokenizer_asset import TokenizerFormat, unpack_files
from support import tiny_model


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """The model is too small to share out, and threads that spin slow each other down on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def engine_of(tiny_hf_dir: Path) -> Callable[[AttentionName], TransformersEngine]:
    """Loads one engine for each attention, as loading probes."""

    @cache
    def load(attention: AttentionName) -> TransformersEngine:
        return TransformersEngine(tiny_hf_dir, attention=attention, context_length=300, max_nodes=32)

    return load


class TransformersConformance(EngineConformance):
    # fp32 over pass shapes: at most 3e-5 was seen on logits of ±12.
    bit_exact = False
    tolerance = 2e-4
    attention: AttentionName

    @pytest.fixture
    def engine(self, engine_of: Callable[[AttentionName], TransformersEngine]) -> Engine:
        """Emptied only: whatever other tests left in the cells must not matter."""
        engine = engine_of(self.attention)
        for slot in range(engine.spec.max_slots):
            engine.rewind(slot, 0)
        return engine


class TestTransformersEngineSdpa(TransformersConformance):
    attention = "sdpa"


class TestTransformersEngineEager(TransformersConformance):
    attention = "eager"


def test_fp32_declares_what_the_probe_found(tiny_hf_dir: Path) -> None:
    spec = TransformersEngine(tiny_hf_dir, context_length=128).spec
    assert (spec.numerics, spec.near_tie_gap) in {("fast", 1e-3), ("exact", 0.0)}
    assert spec.settings["dtype"] == "fp32"


def test_half_precision_is_never_declared_exact(tiny_hf_dir: Path) -> None:
    spec = TransformersEngine(tiny_hf_dir, dtype="bf16", context_length=64, max_nodes=16).spec
    assert spec.numerics == "fast"
    assert spec.near_tie_gap >= 0.25


def test_last_position_and_last_node_of_a_full_slot_are_served(tiny_hf_dir: Path) -> None:
    engine = TransformersEngine(tiny_hf_dir, context_length=32, max_nodes=16, max_branches=16, max_slots=1)
    text = list(range(31))
    rows = engine.forward([SlotRows(0, text, range(16), [ROOT_PARENT] * 16)])[0]
    kept = rows.row(15).copy()
    engine.keep(0, [15])
    assert engine.cached_length(0) == 32
    assert np.abs(kept - engine.plain_logits([*text, 15])[-1]).max() < 1e-3


def test_directory_and_gguf_hold_one_model_and_one_vocabulary(tiny_hf_dir: Path, tiny_gguf: Path) -> None:
    from_dir = TransformersEngine(tiny_hf_dir, context_length=64)
    from_gguf = TransformersEngine(tiny_gguf, context_length=64)
    text = [int(t) for t in np.random.default_rng(3).integers(0, from_dir.vocabulary.size, 48)]
    mine, theirs = from_dir.plain_logits(text), from_gguf.plain_logits(text)
    assert np.abs(mine - theirs).max() < 1e-4
    left, right = from_dir.vocabulary, from_gguf.vocabulary
    assert left.fingerprint.first_difference(right.fingerprint) in {None, "normaliser"}
    for name in ("pieces", "special_ids", "merges", "template", "stop_ids", "real_width", "padded_width"):
        assert getattr(left.fingerprint, name) == getattr(right.fingerprint, name), name
    assert left.size == len(tiny_model.tiny_tokenizer().tokens)
    assert left.stop_ids == {left.pieces.index(b"<|im_end|>")}


@pytest.mark.parametrize("tied", [False, True])
def test_llama_cpp_computes_the_same_logits_from_the_gguf(tmp_path: Path, tied: bool) -> None:
    llama_cpp = pytest.importorskip("llama_cpp")
    model = tiny_model.build_model(tied=tied)
    path = tiny_model.save_gguf(model, tmp_path / "tiny.gguf")
    directory = tiny_model.save_hf(model, tmp_path / "hf")
    engine = TransformersEngine(directory, context_length=64, probe=False)
    text = [int(t) for t in np.random.default_rng(4).integers(0, engine.vocabulary.size, 60)]
    # Keys and values in fp32: its default of 16 bits alone costs 1e-2.
    llama = llama_cpp.Llama(str(path), n_ctx=64, logits_all=True, type_k=0, type_v=0, n_threads=1, verbose=False)
    llama.eval(text)
    assert np.abs(llama.scores[: len(text)] - engine.plain_logits(text)).max() < 1e-3
    llama.close()


def test_llama_cpp_and_hf_tokenize_alike(tiny_hf_dir: Path, tiny_gguf: Path) -> None:
    llama_cpp = pytest.importorskip("llama_cpp")
    from tokenizers import Tokenizer

    llama = llama_cpp.Llama(str(tiny_gguf), vocab_only=True, verbose=False)
    hf = Tokenizer.from_file(str(tiny_hf_dir / "tokenizer.json"))
    text = "<|im_start|>user\nthe thing and the other's 12 naïve\n\nwords<|im_end|>\n"
    assert llama.tokenize(text.encode(), add_bos=False, special=True) == hf.encode(text).ids
    llama.close()


def test_draft_is_a_moderately_good_guesser(tiny_hf_dir: Path, tiny_draft_gguf: Path) -> None:
    target = TransformersEngine(tiny_hf_dir, context_length=256, probe=False)
    draft = TransformersEngine(tiny_draft_gguf, context_length=256, probe=False)
    size, right, total, distinct = target.vocabulary.size, 0, 0, set[int]()
    for seed in range(6):
        text, append = list(b"hello %d" % seed), list(b"hello %d" % seed)
        start = len(text)
        target.rewind(0, 0)
        for _ in range(60):
            append = [int(target.forward([SlotRows(0, append)])[0].row(ROOT_PARENT)[:size].argmax())]
            text += append
        guesses = draft.plain_logits(text)[start - 1 : -1, :size].argmax(axis=1)
        right += int((guesses == np.array(text[start:])).sum())
        total += 60
        distinct |= set(text[start:])
    assert 0.5 < right / total < 0.9
    assert len(distinct) > 40, "the greedy text is degenerate"


def _edit_json(name: str, **values: Any) -> Callable[[Path], None]:
    def edit(directory: Path) -> None:
        content = json.loads((directory / name).read_text())
        for key, value in values.items():
            if isinstance(value, dict):
                content[key] = {**content[key], **value}
            else:
                content[key] = value
        (directory / name).write_text(json.dumps(content))

    return edit


def _cut(name: str, share: float) -> Callable[[Path], None]:
    def cut(directory: Path) -> None:
        content = (directory / name).read_bytes()
        (directory / name).write_bytes(content[: int(len(content) * share)])

    return cut


def _sliding(directory: Path) -> None:
    _edit_json("config.json", layer_types=["full_attention", "full_attention", "sliding_attention"],
               use_sliding_window=True, sliding_window=32)(directory)  # fmt: skip


def _deeper(directory: Path) -> None:
    _edit_json("config.json", num_hidden_layers=4, layer_types=["full_attention"] * 4)(directory)


def _mamba(directory: Path) -> None:
    (directory / "config.json").write_text('{"model_type": "mamba", "hidden_size": 64, "num_hidden_layers": 3}')


REFUSED: dict[str, tuple[Callable[[Path], None], Reason, str]] = {
    "sliding": (_sliding, Reason.MODEL_UNSUPPORTED, "sliding-window"),
    "recurrent": (_mamba, Reason.MODEL_UNSUPPORTED, "recurrent"),
    "encoder-decoder": (_edit_json("config.json", model_type="t5"), Reason.MODEL_UNSUPPORTED, "encoder-decoder"),
    "unknown kind": (_edit_json("config.json", model_type="nonesuch"), Reason.MODEL_UNSUPPORTED, "nonesuch"),
    "short": (_edit_json("config.json", max_position_embeddings=32), Reason.MODEL_UNSUPPORTED, "32 positions"),
    "no tokenizer": (lambda d: (d / "tokenizer.json").unlink(), Reason.MODEL_UNSUPPORTED, "no tokenizer.json"),
    "sentencepiece": (
        _edit_json("tokenizer.json", model={"type": "Unigram"}),
        Reason.MODEL_UNSUPPORTED,
        "byte-level BPE",
    ),
    "tokenizer not JSON": (_cut("tokenizer.json", 0.5), Reason.MODEL_CORRUPT, "not JSON"),
    "tokenizer without vocabulary": (_edit_json("tokenizer.json", model={"vocab": None}), Reason.MODEL_CORRUPT, "mal"),
    "more ids than rows": (
        _edit_json("tokenizer.json", added_tokens=[{"id": 900, "content": "x", "special": True}]),
        Reason.MODEL_CORRUPT,
        "901 ids",
    ),
    "weights cut": (_cut("model.safetensors", 0.6), Reason.MODEL_CORRUPT, "model: "),
    "weights missing": (_deeper, Reason.MODEL_CORRUPT, "weights are missing"),
    "no weights": (lambda d: (d / "model.safetensors").unlink(), Reason.FILE_UNREADABLE, "model.safetensors"),
    "no config": (lambda d: (d / "config.json").unlink(), Reason.FILE_UNREADABLE, "no config.json"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_directory_is_refused_by_name(case: str, tiny_hf_dir: Path, tmp_path: Path) -> None:
    damage, reason, message = REFUSED[case]
    directory = Path(shutil.copytree(tiny_hf_dir, tmp_path / "model"))
    damage(directory)
    with pytest.raises(OutriderError, match=message) as raised:
        TransformersEngine(directory, context_length=64)
    assert raised.value.reason is reason, raised.value.detail


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5])
def test_damaged_gguf_is_refused(share: float, tiny_gguf: Path, tmp_path: Path) -> None:
    path = tmp_path / "cut.gguf"
    content = tiny_gguf.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(OutriderError) as raised:
        TransformersEngine(path, context_length=64)
    assert raised.value.reason is Reason.MODEL_CORRUPT, raised.value.detail


def test_tokenizer_travels_in_the_form_of_its_source(tiny_hf_dir: Path, tiny_gguf: Path, tmp_path: Path) -> None:
    engine = TransformersEngine(tiny_hf_dir, context_length=64, probe=False)
    assert engine.tokenizer_asset.format is TokenizerFormat.HUGGING_FACE
    files = unpack_files(engine.tokenizer_asset.data)
    assert files["tokenizer.json"] == (tiny_hf_dir / "tokenizer.json").read_text("utf-8")
    for name, text in files.items():
        (tmp_path / name).write_text(text, "utf-8")
    assert vocabulary_hf.read_vocabulary(tmp_path).fingerprint == engine.vocabulary.fingerprint
    asset = TransformersEngine(tiny_gguf, context_length=64, probe=False).tokenizer_asset
    assert asset.format is TokenizerFormat.GGUF
    (tmp_path / "tokenizer.gguf").write_bytes(asset.data)
    assert vocabulary_gguf.read_vocabulary(tmp_path / "tokenizer.gguf") == vocabulary_gguf.read_vocabulary(tiny_gguf)


def test_missing_source_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OutriderError) as raised:
        TransformersEngine(tmp_path / "nothing", context_length=64)
    assert raised.value.reason is Reason.FILE_UNREADABLE


def test_vocabulary_is_read_alike_in_the_forms_that_files_come_in(tiny_hf_dir: Path, tmp_path: Path) -> None:
    directory = Path(shutil.copytree(tiny_hf_dir, tmp_path / "model"))
    expected = vocabulary_hf.read_vocabulary(directory)
    assert expected.template == tiny_model.TEMPLATE
    assert expected.normaliser.startswith("hf:")
    content = json.loads((directory / "tokenizer.json").read_text())
    content["model"]["merges"] = [m.split(" ") for m in content["model"]["merges"]]
    (directory / "tokenizer.json").write_text(json.dumps(content))
    settings = json.loads((directory / "tokenizer_config.json").read_text())
    (directory / "chat_template.jinja").write_text(settings.pop("chat_template"))
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
    assert vocabulary_hf.read_vocabulary(directory) == expected
    _edit_json("generation_config.json", eos_token_id=[277, 279])(directory)
    assert vocabulary_hf.read_vocabulary(directory).stop_ids == {277, 279}


def test_importing_other_cloud_modules_and_vocabularies_does_not_import_torch() -> None:
    import subprocess
    import sys

    code = (
        "import sys, outrider.cloud.targets.tiny, outrider.cloud.targets.contract, "
        f"{vocabulary_hf.__name__}, {vocabulary_gguf.__name__}; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
