"""Ranking with model files: sizes, the product's own drafter on the clock, and a model of another vocabulary."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from outrider.harness.drafter_ranking.candidates import candidates_of, size_of
from outrider.shared.cli import main
from outrider.shared.models.store import default_store


def drafters(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["drafters", "--json", "--limit", "2", *arguments]) == 0
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


def test_files_are_sized_timed_and_judged(
    capsys: pytest.CaptureFixture[str], tiny_q8_gguf: Path, tiny_draft_gguf: Path, tmp_path: Path
) -> None:
    itself = Path(shutil.copy(tiny_q8_gguf, tmp_path / "itself.gguf"))
    made = drafters(
        capsys,
        *("--target", str(tiny_q8_gguf), "--max-tokens", "12", "--context", "400"),
        *("--draft", str(tiny_draft_gguf), "--draft", str(itself)),
    )
    by_name = {entry["name"]: entry for entry in made["candidates"]}
    assert set(by_name) == {"draft", "itself"}
    assert by_name["itself"]["acceptance"] >= 0.95, "the same weights, with other kernels"
    assert by_name["draft"]["acceptance"] < by_name["itself"]["acceptance"]
    for entry in by_name.values():
        assert entry["draft_ms_source"] == "measured"
        assert entry["draft_ms"] > 0
        assert entry["file_bytes"] == Path(entry["draft"]).stat().st_size
        assert entry["parameter_ratio"] == 1.0
    assert by_name["itself"]["file_ratio"] == 1.0
    assert by_name["draft"]["file_ratio"] < 1, "F32 beside Q8_0"
    assert made["rule"]["pick"] == "itself", "of the same weights the smaller file is nearer to a tenth"


def test_files_of_one_name_are_told_apart_by_their_paths() -> None:
    found = candidates_of(["a/model.gguf", "b/model.gguf", "c/other.gguf", "a/model.gguf"], "tiny")
    assert [candidate.name for candidate in found] == ["a/model.gguf", "b/model.gguf", "other"]
    assert len({candidate.folder for candidate in found}) == 3
    assert all("/" not in candidate.folder for candidate in found)
    like_a_path = candidates_of(["a/model", "a_model"], "tiny")
    assert len({candidate.folder for candidate in like_a_path}) == 2


@pytest.mark.models
def test_the_real_pair_is_ranked_and_another_vocabulary_refused(capsys: pytest.CaptureFixture[str]) -> None:
    made = drafters(
        capsys,
        *("--target", "qwen2.5-coder-1.5b", "--category", "code", "--max-tokens", "12"),
        *("--draft", "smollm2-135m", "--draft", "qwen2.5-coder-0.5b"),
    )
    (entry,) = made["candidates"]
    assert entry["name"] == "qwen2.5-coder-0.5b"
    assert entry["acceptance"] > 0.5
    assert entry["file_bytes"] == default_store().spec("qwen2.5-coder-0.5b").size
    assert entry["parameter_ratio"] == pytest.approx(2.82, abs=0.01)
    assert entry["draft_ms"] > 1
    (refused,) = made["refused"]
    assert (refused["name"], refused["reason"]) == ("smollm2-135m", "VOCABULARY_MISMATCH")
    assert made["rule"]["held"] is None
    assert size_of("smollm2-135m").parameters == 134_515_008
