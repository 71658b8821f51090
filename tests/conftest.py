"""Fixtures that several test folders share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

pytest.register_assert_rewrite("conformance.engine_suite")

# People's runs explore; a change is judged by the same examples every time.
settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")


@pytest.fixture(scope="session")
def tiny_hf_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of the tiny random model as `transformers` saves it."""
    from support.tiny_model import build_model, save_hf

    return save_hf(build_model(), tmp_path_factory.mktemp("tiny-hf"))


@pytest.fixture(scope="session")
def tiny_gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same model as a GGUF file in F32, whose rows llama.cpp does not compute alike at all widths."""
    from support.tiny_model import build_model, save_gguf

    return save_gguf(build_model(), tmp_path_factory.mktemp("tiny-gguf") / "tiny.gguf")


@pytest.fixture(scope="session")
def tiny_q8_gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same model in Q8_0, for which llama.cpp's rows were found bit-equal at every width: a target."""
    from gguf import GGMLQuantizationType

    from support.tiny_model import build_model, save_gguf

    path = tmp_path_factory.mktemp("tiny-q8") / "tiny-q8.gguf"
    return save_gguf(build_model(), path, GGMLQuantizationType.Q8_0)


@pytest.fixture(scope="session")
def tiny_draft_gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A perturbed copy of the tiny model, right about seven times in ten: a draft model."""
    from support.tiny_model import build_model, perturbed, save_gguf

    return save_gguf(perturbed(build_model(), sigma=0.03), tmp_path_factory.mktemp("tiny-draft") / "draft.gguf")
