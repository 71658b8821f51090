"""A handle goes on at the target it was made with and at no other, whatever differs, and says what does."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from outrider.cloud.target import EngineTarget
from outrider.cloud.targets.tiny import TinyEngine
from outrider.cloud.verifier import Verifier, VerifierConfig
from outrider.edge.resume_handle import ResumeHandle
from outrider.shared.errors import Reason
from outrider.shared.messages import Open, VerifierInfo
from outrider.shared.sampling.options import Sampling
from support.refusal import refused

REQUEST = Open((257, 104, 258), Sampling(max_tokens=9, seed=4), seed=4, max_tokens=9, stop_ids=(100,))


@pytest.fixture
async def info() -> VerifierInfo:
    return Verifier(EngineTarget(TinyEngine()), VerifierConfig()).info()


async def test_at_its_own_target_it_is_the_rest_of_the_answer(info: VerifierInfo) -> None:
    assert ResumeHandle.of(REQUEST, (97, 98), info).request(info) == replace(
        REQUEST, committed_ids=(97, 98), target_digest=info.target_digest
    )


@pytest.mark.parametrize("name", ["model", "revision", "engine", "numerics"])
async def test_another_target_is_refused_naming_the_field(info: VerifierInfo, name: str) -> None:
    with refused(Reason.TARGET_DIFFERS, f"{name} "):
        ResumeHandle.of(REQUEST, (97,), info).request(replace(info, **{name: "another"}))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["pieces", "special_ids", "stop_ids"])
async def test_a_vocabulary_of_the_same_size_is_refused_naming_the_field(info: VerifierInfo, name: str) -> None:
    other = replace(info, fingerprint=replace(info.fingerprint, **{name: "0" * 32}))  # type: ignore[arg-type]
    with refused(Reason.TARGET_DIFFERS, f"{name} "):
        ResumeHandle.of(REQUEST, (97,), info).request(other)


async def test_a_context_of_another_length_may_end_the_text_elsewhere(info: VerifierInfo) -> None:
    other = replace(info, limits=replace(info.limits, context_length=64))
    with refused(Reason.TARGET_DIFFERS, "context_length '"):
        ResumeHandle.of(REQUEST, (97,), info).request(other)


async def test_only_its_user_can_read_it_at_any_moment(info: VerifierInfo, tmp_path: Path) -> None:
    path = tmp_path / "handle.json"
    ResumeHandle.of(REQUEST, (97,), info).save(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert ResumeHandle.load(path) == ResumeHandle.of(REQUEST, (97,), info)


async def test_an_answer_with_nothing_left_has_no_handle(info: VerifierInfo, tmp_path: Path) -> None:
    path = tmp_path / "handle.json"
    handle = ResumeHandle.of(REQUEST, (97,), info)
    path.write_text(handle.model_copy(update={"committed_ids": (97,) * 9}).model_dump_json())
    with refused(Reason.FILE_UNREADABLE, "9 committed ids"):
        ResumeHandle.load(path)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "handle.json")
    with refused(Reason.FILE_UNREADABLE, "no regular file"):
        ResumeHandle.load(tmp_path / "handle.json")
