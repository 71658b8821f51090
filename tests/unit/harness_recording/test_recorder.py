"""Recording: the text is what the product commits, and every ranking is what the rule says at its place."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from outrider.cloud.targets.tiny import TinyEngine
from outrider.edge.commands.options import SamplingOptions
from outrider.edge.control.fixed import FixedControl
from outrider.harness.commands import record as command
from outrider.harness.inline_target import InlineTarget
from outrider.harness.recording.format import BRANCH_WIDTH, DEPTH, NO_TOKEN, WIDTH, Ranking, make_ranking
from outrider.harness.recording.library import RecordingSet
from outrider.harness.recording.recorder import record_answer
from outrider.harness.recording.tiny_rows import TinyDraftRows
from outrider.shared.errors import Reason
from outrider.shared.sampling.choose import Candidate, Chooser
from outrider.shared.sampling.options import Sampling
from outrider.shared.tiny import END, tiny_logits
from outrider.shared.vocabulary import Vocabulary
from support.refusal import refused
from unit.harness_recording.tiny_recordings import (
    DEVIATION,
    SAMPLINGS,
    TimedTiny,
    pass_ms,
    play,
    tiny_set,
)


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_the_recorded_answer_is_what_the_product_commits(sampling: str) -> None:
    recordings = tiny_set(sampling)
    played = play(
        lambda: InlineTarget(TinyEngine(), pass_ms),
        lambda: TimedTiny(DEVIATION),
        [recording.open_request() for recording in recordings],
        FixedControl(3, 1),
    )
    for one, recording in zip(played, recordings, strict=True):
        assert tuple(one.ids) == recording.answer_ids
        assert one.finish_reason == recording.header.finish_reason.value
    reasons = {recording.header.finish_reason.value for name in SAMPLINGS for recording in tiny_set(name)}
    assert reasons == {"stop", "length"}, "both ends occur in these tests"


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_rankings_are_the_rules_along_the_answer(sampling: str) -> None:
    for recording in tiny_set(sampling):
        chooser = Chooser(recording.header.sampling, recording.seed, recording.prompt_ids, 260)
        for position in range(len(recording.answer_ids)):
            answer = recording.answer_ids[:position]
            text = [*recording.prompt_ids, *answer]
            for ranking, deviation in ((recording.draft, DEVIATION), (recording.target, 0.0)):
                expected = chooser.rank(tiny_logits(text, deviation), answer, WIDTH)
                assert_row(ranking, (position,), expected, WIDTH)


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_continuations_follow_each_wrong_first_and_second_choice(sampling: str) -> None:
    for recording in tiny_set(sampling):
        chooser = Chooser(recording.header.sampling, recording.seed, recording.prompt_ids, 260)
        found = zip(recording.branches.positions.tolist(), recording.branches.ranks.tolist(), strict=True)
        starts = [
            (position, rank)
            for position, token in enumerate(recording.answer_ids)
            for rank in (0, 1)
            if recording.draft.ids[position, rank] not in (token, END)
        ]
        assert list(found) == starts
        for index, (position, rank) in enumerate(starts):
            answer = [*recording.answer_ids[:position], int(recording.draft.ids[position, rank])]
            for depth in range(DEPTH):
                expected = chooser.rank(tiny_logits([*recording.prompt_ids, *answer], DEVIATION), answer, BRANCH_WIDTH)
                shown = [] if END in answer else expected
                assert_row(recording.branches.ranking, (index, depth), shown, BRANCH_WIDTH)
                answer.append(expected[0].token)


class SpacesEnd(TinyEngine):
    """Its answers also end at a space, which both models often choose."""

    @property
    def vocabulary(self) -> Vocabulary:
        return dataclasses.replace(super().vocabulary, stop_ids=frozenset({END, ord(" ")}))


def test_nothing_hangs_below_a_guess_that_would_end_the_answer() -> None:
    engine, stops = SpacesEnd(), frozenset({END, ord(" ")})
    wrong_stops = below_stops = 0
    for prompt in range(97, 117):
        recorded = record_answer(engine, TinyDraftRows(DEVIATION), [prompt], Sampling(seed=1, max_tokens=30))
        assert not stops.intersection(recorded.answer_ids[:-1])
        positions, ranks = recorded.branches.positions.astype(int), recorded.branches.ranks
        assert not stops.intersection(recorded.draft.ids[positions, ranks].tolist())
        for position, token in enumerate(recorded.answer_ids):
            guesses = recorded.draft.ids[position, :2].tolist()
            wrong_stops += sum(guess in stops and guess != token for guess in guesses)
        for steps in recorded.branches.ranking.ids[:, :, 0].tolist():
            ends = [index for index, token in enumerate(steps) if token in stops]
            if ends:
                below_stops += DEPTH - 1 - ends[0]
                assert set(steps[ends[0] + 1 :]) <= {NO_TOKEN}
    assert wrong_stops > 5
    assert below_stops > 5


def assert_row(ranking: Ranking, index: tuple[int, ...], expected: list[Candidate], width: int) -> None:
    one = make_ranking([expected], width)
    assert np.array_equal(ranking.ids[index], one.ids[0])
    assert np.array_equal(ranking.log_probability[index], one.log_probability[0])
    assert np.array_equal(ranking.margin[index], one.margin[0])


def test_a_ranking_gives_its_candidates_back_within_half_precision() -> None:
    made = [Candidate(5, 0.9, 1.5), Candidate(7, 1e-4, -3.25), Candidate(9, 0.0, 2.0)]
    ranking = make_ranking([made, made[:1]], 4)
    again = ranking.candidates((0,), 4)
    assert [(c.token, c.margin) for c in again] == [(c.token, c.margin) for c in made]
    assert [c.probability for c in again] == pytest.approx([c.probability for c in made], rel=5e-3)
    assert [c.token for c in ranking.candidates((0,), 2)] == [5, 7]
    assert [c.token for c in ranking.candidates((1,), 4)] == [5]
    assert ranking.ids[1, 1:].tolist() == [NO_TOKEN] * 3


def test_a_prompt_that_leaves_no_room_is_refused() -> None:
    with refused(Reason.PROMPT_TOO_LONG, "20 prompt tokens, context 20"):
        record_answer(TinyEngine(context_length=20), TinyDraftRows(0.0), [97] * 20, Sampling(seed=1))


def record(folder: Path, **options: Any) -> int:
    prompts = folder / "prompts.jsonl"
    prompts.write_text(
        "".join(f'{{"id": "p{i}", "category": "{c}", "prompt": "text {i}"}}\n' for i, c in enumerate("abab"))
    )
    flags: dict[str, Any] = {"seed": 5, "max_tokens": 12, "temperature": 1.0} | options
    sampling = {"seed", "max_tokens", "temperature", "stop"} & flags.keys()
    made = SamplingOptions(**{key: flags.pop(key) for key in sampling})
    done: int = command.record(
        **dataclasses.asdict(made), prompts=prompts, out=folder / "out", draft="tiny:0.5", target="tiny", **flags
    )
    return done


def test_the_command_goes_on_where_it_was_interrupted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record(tmp_path, category=["b"], limit=1)
    first = (tmp_path / "out" / "p1.npz").read_bytes()
    record(tmp_path, json=True)
    shown = capsys.readouterr()
    assert '"recorded": 3, "skipped": 1' in shown.out
    assert shown.err.count("tokens") == 4
    recordings = RecordingSet.read(tmp_path / "out")
    assert [recording.header.id for recording in recordings] == ["p0", "p1", "p2", "p3"]
    assert [recording.seed for recording in recordings] == [5, 6, 7, 8], "a prompt's seed is its own"
    record(tmp_path / "out", json=True)
    assert (tmp_path / "out" / "p1.npz").read_bytes() == (tmp_path / "out" / "out" / "p1.npz").read_bytes() == first


@pytest.mark.parametrize("change", [{"temperature": 0.5}, {"seed": 6}, {"max_tokens": 13}])
def test_the_command_mixes_nothing_into_a_folder(tmp_path: Path, change: dict[str, Any]) -> None:
    record(tmp_path, limit=1)
    with refused(Reason.USAGE, "p0.npz was recorded with another sampling"):
        record(tmp_path, **change)


def test_the_command_refuses_what_it_cannot_record(tmp_path: Path) -> None:
    with refused(Reason.PROMPT_TOO_LONG, "p0", "context 16"):
        record(tmp_path, context=16)
    with refused(Reason.USAGE, "no prompt is left"):
        record(tmp_path, category=["zz"])
    with refused(Reason.USAGE, "--stop"):
        record(tmp_path, stop=["x"])
