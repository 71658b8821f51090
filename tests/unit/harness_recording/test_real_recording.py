"""The real pair, in small: what is recorded is what agent and verifier do with the same models."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from outrider.cloud.targets.llama_cpp import LlamaCppEngine
from outrider.edge.commands.compare import read_prompts
from outrider.edge.control.fixed import FixedControl
from outrider.edge.drafters.base import NORMALISED, as_proposals, propose_one
from outrider.edge.drafters.llama_cpp import LlamaDrafter
from outrider.harness.inline_target import InlineTarget
from outrider.harness.recording.format import DEPTH
from outrider.harness.recording.library import RecordingSet
from outrider.harness.recording.pair import Pair
from outrider.harness.replay_drafter import DeviceClock, ReplayDrafter
from outrider.harness.replay_target import ReplayTarget
from outrider.shared.models.store import default_store
from outrider.shared.sampling.choose import Chooser
from outrider.shared.sampling.options import Sampling
from unit.harness_recording.tiny_recordings import no_time, play, play_on

pytestmark = pytest.mark.models

DRAFT, TARGET = "qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b"
BENCH = Path(__file__).parents[3] / "prompts" / "bench.jsonl"
CHOSEN = ("code-02", "chat-01")


@pytest.fixture(scope="module")
def recordings() -> Iterator[RecordingSet]:
    prompts = [prompt for prompt in read_prompts([], BENCH) if prompt.id in CHOSEN]
    with contextlib.closing(Pair.load(TARGET, DRAFT, 256)) as pair:
        made = [pair.record(prompt, Sampling(temperature=1.0, seed=31, max_tokens=32)) for prompt in prompts]
    yield RecordingSet(made)


def instant(rows: int, sessions: int) -> float:
    return 0.0


def test_the_drafter_ranks_as_recorded_one_token_at_a_time(recordings: RecordingSet) -> None:
    async def differences() -> tuple[int, float]:
        wrong, largest = 0, 0.0
        drafter = LlamaDrafter(default_store().path(DRAFT), context_length=512)
        for recording in recordings:
            chooser = Chooser(recording.header.sampling, recording.seed, recording.prompt_ids, 151_936)
            session = drafter.open(recording.prompt_ids, chooser)
            for position in range(len(recording.answer_ids)):
                real = await propose_one(session, recording.answer_ids[:position], 64)
                recorded = as_proposals(recording.draft.candidates((position,), 64), 64)
                wrong += [proposal.token for proposal in real] != [proposal.token for proposal in recorded]
                for mine, theirs in zip(real, recorded, strict=True):
                    if mine.token == theirs.token:
                        largest = max(largest, abs(mine.probability - theirs.probability))
            await session.close()
        await drafter.close()
        return wrong, largest

    wrong, largest = asyncio.run(differences())
    assert wrong == 0
    assert largest < 1e-3, "half precision"


def test_off_the_path_the_drafter_says_nearly_what_it_says_alone(recordings: RecordingSet) -> None:
    """Many lanes share a pass there, and default kernels are not the same bits at every width."""

    async def differences() -> tuple[list[bool], list[float]]:
        agree: list[bool] = []
        gaps: list[float] = []
        drafter = LlamaDrafter(default_store().path(DRAFT), context_length=512)
        for recording in recordings:
            chooser = Chooser(recording.header.sampling, recording.seed, recording.prompt_ids, 151_936)
            session = drafter.open(recording.prompt_ids, chooser)
            ranking = recording.branches.ranking
            for index in range(0, len(ranking.ids), 3):
                position, rank = recording.branches.positions[index], recording.branches.ranks[index]
                text = [*recording.answer_ids[:position], int(recording.draft.ids[position, rank])]
                for depth in range(DEPTH):
                    recorded = as_proposals(ranking.candidates((index, depth), NORMALISED), 1)
                    if not recorded:
                        break
                    (real,) = await propose_one(session, text, 1)
                    agree.append(real.token == recorded[0].token)
                    gaps.append(abs(real.probability - recorded[0].probability))
                    text.append(recorded[0].token)
            await session.close()
        await drafter.close()
        return agree, gaps

    agree, gaps = asyncio.run(differences())
    print(f"{len(agree)} steps, agree {np.mean(agree):.4f}, gap median {np.median(gaps):.5f} max {np.max(gaps):.4f}")
    assert len(agree) > 30
    assert np.mean(agree) > 0.95
    assert np.median(gaps) < 0.02


def test_a_fixed_policy_meets_the_same_verdicts_as_with_the_real_pair(recordings: RecordingSet) -> None:
    requests = [recording.open_request() for recording in recordings]
    for control in (FixedControl(5, 1), FixedControl(3, 2)):
        real = asyncio.run(
            play_on(
                InlineTarget(
                    LlamaCppEngine(default_store().path(TARGET), context_length=256, max_slots=2, max_branches=8),
                    instant,
                ),
                LlamaDrafter(default_store().path(DRAFT), context_length=256),
                requests,
                control,
            )
        )
        again = play(
            lambda: ReplayTarget(recordings, instant),
            lambda: ReplayDrafter(recordings, DeviceClock(no_time)),
            requests,
            control,
        )
        for one, other, recording in zip(real, again, recordings, strict=True):
            assert tuple(one.ids) == tuple(other.ids) == recording.answer_ids
            for key in ("passes", "accepted", "checked", "accepted_histogram"):
                assert other.report[key] == one.report[key], (control, recording.header.id, key)
