"""The shipped recordings: all there and readable, two draft models along the same answers, and prompts held out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from outrider.edge.commands.compare import read_prompts
from outrider.harness.recording.library import RecordingSet
from outrider.harness.recording.session import first_choices_right
from outrider.harness.simulation.scenario import SHIPPED_SETS, shipped_recordings
from outrider.shared.sampling.options import Sampling

PROMPTS = Path(__file__).parents[3] / "prompts"
GREEDY = {"temperature": 0.0, "max_tokens": 128}
NUCLEUS = {"temperature": 0.7, "top_p": 0.8}
# Prompts and way of sampling, of which seeds count up from 1.
SETS: dict[str, tuple[Path, dict[str, float]]] = {
    "greedy": (PROMPTS / "bench.jsonl", GREEDY),
    "nucleus": (PROMPTS / "bench.jsonl", {**NUCLEUS, "max_tokens": 128}),
    "full": (PROMPTS / "bench.jsonl", {"temperature": 1.0, "max_tokens": 128}),
    "long": (shipped_recordings("long_prompts.jsonl"), {**NUCLEUS, "max_tokens": 768}),
    "other": (PROMPTS / "other.jsonl", GREEDY),
    "greedy-q2": (PROMPTS / "bench.jsonl", GREEDY),
}
# Bytes of the two sets that came later; all of them are cloned and installed by everyone.
LATER_SETS_LIMIT = 5_000_000


@pytest.fixture(scope="module")
def sets() -> dict[str, RecordingSet]:
    return {name: RecordingSet.read(shipped_recordings(name)) for name in SETS}


def test_every_folder_of_recordings_can_be_named() -> None:
    folders = {path.name for path in shipped_recordings("greedy").parent.iterdir() if path.is_dir()}
    assert set(SHIPPED_SETS) == folders == set(SETS)


@pytest.mark.parametrize("name", SETS)
def test_each_set_holds_the_prompts_of_its_file_with_their_seeds(name: str, sets: dict[str, RecordingSet]) -> None:
    path, options = SETS[name]
    recorded = {r.header.id: (r.header.category, r.header.prompt, r.header.sampling) for r in sets[name]}
    assert recorded == {
        prompt.id: (prompt.category, prompt.prompt, Sampling.model_validate({**options, "seed": seed}))
        for seed, prompt in enumerate(read_prompts([], path), 1)
    }


def test_the_second_draft_model_is_led_along_the_same_answers(sets: dict[str, RecordingSet]) -> None:
    first, second = sets["greedy"], sets["greedy-q2"]
    assert second.header.draft.sha256 != first.header.draft.sha256
    for one, two in zip(first, second, strict=True):
        assert (one.header.id, one.header.target) == (two.header.id, two.header.target)
        assert one.header.target_settings == two.header.target_settings
        assert (one.prompt_ids, one.answer_ids) == (two.prompt_ids, two.answer_ids)
        for mine, theirs in ((one.target.ids, two.target.ids), (one.target.margin, two.target.margin)):
            assert np.array_equal(mine, theirs), f"{one.header.id}: the target ranks otherwise"
    assert right(second) < right(first), "a smaller file of the same model guesses worse"


def test_the_held_out_prompts_are_in_no_other_set(sets: dict[str, RecordingSet]) -> None:
    held_out = {recording.prompt_ids for recording in sets["other"]}
    assert len(held_out) == 24
    assert sets["other"].header.draft == sets["greedy"].header.draft
    for name in set(SETS) - {"other"}:
        assert held_out.isdisjoint(recording.prompt_ids for recording in sets[name])


def test_the_later_sets_stay_small() -> None:
    files = [path for name in ("other", "greedy-q2") for path in shipped_recordings(name).iterdir()]
    assert len(files) == 24 + 34
    assert sum(path.stat().st_size for path in files) < LATER_SETS_LIMIT


def right(recordings: RecordingSet) -> float:
    """The mean over answers of the share of first choices that are right."""
    return float(np.mean([first_choices_right(recording) for recording in recordings]))
