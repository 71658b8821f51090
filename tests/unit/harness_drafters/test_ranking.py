"""Ranking draft models: the order, the refusals, what is kept and what `outrider drafters` says, with pseudo models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from outrider.harness.drafter_ranking.choice import fastest_choice
from outrider.harness.drafter_ranking.prompts import DEFAULT_LIMIT, shipped_prompts
from outrider.harness.recording.library import RecordingSet
from outrider.harness.recording.pair import Pair
from outrider.harness.recording.recording_target import RecordingTarget
from outrider.harness.recording.session import seeded_prompts
from outrider.harness.recording.store import write_recording
from outrider.shared.cli import main
from outrider.shared.errors import OutriderError, Reason
from outrider.shared.sampling.options import Sampling

Capture = pytest.CaptureFixture[str]

SHORT = ("--target", "tiny", "--limit", "2", "--max-tokens", "16", "--temperature", "1", "--seed", "3")
GOOD, FAIR, POOR = "tiny:0.2", "tiny:0.6", "tiny:2"
TIMES = tuple(word for name in (GOOD, FAIR, POOR) for word in ("--draft-ms", f"{name}=10"))
THREE = ("--draft", POOR, "--draft", GOOD, "--draft", FAIR, *TIMES)


def run(capsys: Capture, *arguments: str) -> tuple[int, str, str]:
    code = main(["drafters", *arguments])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def answer(capsys: Capture, *arguments: str) -> dict[str, Any]:
    code, out, _ = run(capsys, "--json", *SHORT, *arguments)
    assert code == 0, out
    made: dict[str, Any] = json.loads(out)
    return made


def test_at_equal_speed_the_drafter_that_is_right_more_often_comes_first(capsys: Capture) -> None:
    made = answer(capsys, *THREE)
    entries = made["candidates"]
    assert [entry["name"] for entry in entries] == [GOOD, FAIR, POOR]
    for key, ascending in (("ms_per_token", True), ("acceptance", False), ("speedup", False)):
        values = [entry[key] for entry in entries]
        assert values == sorted(values, reverse=not ascending)
    assert all(entry["acceptance_of_two"] >= entry["acceptance"] for entry in entries)


def test_a_slow_drafter_falls_behind_one_that_is_wrong_more_often(capsys: Capture) -> None:
    made = answer(capsys, "--draft", GOOD, "--draft", FAIR, "--draft-ms", f"{GOOD}=200", "--draft-ms", f"{FAIR}=5")
    assert [entry["name"] for entry in made["candidates"]] == [FAIR, GOOD]


def test_the_best_flags_are_no_slower_than_any_the_plan_tries(capsys: Capture, tmp_path: Path) -> None:
    made = answer(capsys, *THREE, "--out", str(tmp_path), "--target-ms", "25", "--rtt-ms", "60")
    best = {entry["name"]: entry["ms_per_token"] for entry in made["candidates"]}
    folder = next(path for path in tmp_path.iterdir() if path.name.startswith("tiny_0.2"))
    scenario = ("--recordings", str(folder), "--draft-ms", "10", "--target-ms", "25", "--rtt-ms", "60")
    for gamma, pace in (("2", "eager"), ("3", "patient"), ("8", "patient")):
        assert main(["simulate", *scenario, "--gamma", gamma, "--pace", pace, "--baselines", "none", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["ms_per_token"] >= best[GOOD]


def test_json_holds_everything_the_table_and_the_verdict_are_made_of(capsys: Capture) -> None:
    made = answer(capsys, *THREE)
    assert set(made) == {
        *("target", "prompts", "tokens", "sampling", "scenario", "streaming", "candidates", "refused", "rule")
    }
    assert set(made["rule"]) == {
        *("wanted_ratio", "pick", "pick_ratio", "near", "fastest", "slower_by", "held", "sentence")
    }
    first = made["candidates"][0]
    assert set(first) == {
        *("draft", "name", "file_bytes", "file_ratio", "parameters", "parameter_ratio"),
        *("acceptance", "acceptance_of_two", "acceptance_by_category"),
        *("draft_ms", "prompt_token_ms", "draft_ms_p95", "draft_ms_source", "guesses_timed"),
        *("ms_per_token", "speedup", "accelerator_ms_per_token", "flags", "best"),
    }
    assert first["draft_ms"] == 10
    assert first["draft_ms_source"] == "given"
    best = first["best"]
    gamma = "" if best["gamma"] is None else f" --gamma {best['gamma']}"
    assert first["flags"] == f"--control {best['control']}{gamma} --pace {best['pace']}"
    assert first["ms_per_token"] == best["ms_per_token"]
    streaming_ms = made["streaming"]["ms_per_token"]
    assert first["speedup"] == pytest.approx(streaming_ms / best["ms_per_token"], abs=1e-4)
    assert made["rule"]["fastest"] == first["name"]


def test_a_candidate_without_a_given_time_is_timed_here(capsys: Capture) -> None:
    made = answer(capsys, "--draft", GOOD)
    (entry,) = made["candidates"]
    assert entry["draft_ms_source"] == "measured"
    assert 0 < entry["draft_ms"] < 100
    assert entry["guesses_timed"] > 0


def test_the_text_shows_the_order_and_ends_with_the_rules_sentence(capsys: Capture) -> None:
    code, out, err = run(capsys, *SHORT, *THREE)
    assert code == 0
    lines = out.splitlines()
    named = [line.split()[0] for line in lines if line.startswith("tiny:")]
    assert named == [GOOD, FAIR, POOR]
    assert "10.0 given" in out
    assert lines[-1].startswith("The 1:10 rule picks none")
    assert f"{POOR}: [1/2]" in err
    assert "[1/2]" not in out


def test_a_candidate_that_cannot_draft_is_listed_and_does_not_stop_the_others(capsys: Capture, tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF\x03\x00\x00\x00 cut short")
    drafts = ("--draft", str(broken), "--draft", "no-such-model", "--draft", GOOD)
    made = answer(capsys, *drafts)
    assert [entry["name"] for entry in made["candidates"]] == [GOOD]
    assert [(entry["name"], entry["reason"]) for entry in made["refused"]] == [
        ("broken", "MODEL_CORRUPT"),
        ("no-such-model", "MODEL_UNKNOWN"),
    ]
    assert made["refused"][0]["draft"] == str(broken)
    _, out, err = run(capsys, *SHORT, *drafts)
    assert "no-such-model: MODEL_UNKNOWN: " in out
    assert "broken: cannot draft" in err


def test_without_any_that_can_draft_the_command_fails_and_still_says_why(capsys: Capture) -> None:
    code, out, _ = run(capsys, "--json", *SHORT, "--draft", "no-such-model")
    assert code == 5
    made = json.loads(out)
    assert made["error"]["reason"] == "DRAFTER_UNUSABLE"
    assert made["refused"][0]["reason"] == "MODEL_UNKNOWN"
    assert made["candidates"] == []
    code, out, err = run(capsys, *SHORT, "--draft", "no-such-model")
    assert code == 5
    assert "no-such-model: MODEL_UNKNOWN" in out
    assert "error: DRAFTER_UNUSABLE" in err


def test_an_interrupted_run_goes_on_and_ends_as_one_that_was_not(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "kept"
    whole = answer(capsys, *THREE, "--out", str(tmp_path / "whole"))
    written: list[Path] = []

    def write(recording: Any, path: Path) -> int:
        if len(written) == 3:
            raise KeyboardInterrupt
        written.append(path)
        return write_recording(recording, path)

    with monkeypatch.context() as patch:
        patch.setattr("outrider.harness.drafter_ranking.recorder.write_recording", write)
        assert run(capsys, *SHORT, *THREE, "--out", str(kept))[0] == 130
    times = {path: path.stat().st_mtime_ns for path in written}
    assert answer(capsys, *THREE, "--out", str(kept)) == whole
    assert {path: path.stat().st_mtime_ns for path in written} == times, "nothing is recorded twice"
    for path in kept.rglob("*.npz"):
        assert path.read_bytes() == (tmp_path / "whole" / path.relative_to(kept)).read_bytes()


def test_the_target_answers_once_and_is_not_loaded_for_what_is_there(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes = []
    load = RecordingTarget.load

    def watched(name: str, context_length: int) -> RecordingTarget:
        target = load(name, context_length)
        forward = target.engine.forward

        def counted(work: Any) -> Any:
            passes.append(1)
            return forward(work)

        monkeypatch.setattr(target.engine, "forward", counted)
        return target

    monkeypatch.setattr(RecordingTarget, "load", watched)
    made = answer(capsys, *THREE, "--out", str(tmp_path))
    assert len(passes) == made["tokens"] + len(made["prompts"]), "a pass a token, and one for each prompt"

    def never(*_: object) -> None:
        raise AssertionError("loaded")

    monkeypatch.setattr(RecordingTarget, "load", never)
    assert answer(capsys, *THREE, "--out", str(tmp_path)) == made


def test_a_known_answer_gives_the_recording_that_computing_it_gives() -> None:
    seeded = seeded_prompts(shipped_prompts(), Sampling(temperature=1.0, seed=1, max_tokens=12), (), 3, "here")
    first, other = Pair.load("tiny", GOOD, 600), Pair.load("tiny", POOR, 600)
    for prompt, sampling in seeded:
        known = first.record(prompt, sampling)
        alone, reused = other.record(prompt, sampling), other.record(prompt, sampling, known)
        for name in ("header", "prompt_ids", "answer_ids"):
            assert getattr(alone, name) == getattr(reused, name)
        for name in ("draft", "target"):
            one, two = getattr(alone, name), getattr(reused, name)
            assert (one.ids == two.ids).all()
            assert (one.margin == two.margin).all()


def test_a_folder_of_other_recordings_ends_the_run(capsys: Capture, tmp_path: Path) -> None:
    answer(capsys, "--draft", GOOD, "--out", str(tmp_path))
    code, out, _ = run(capsys, "--json", *SHORT, "--draft", GOOD, "--out", str(tmp_path), "--seed", "4")
    assert code == 2
    assert "recorded with another sampling" in json.loads(out)["error"]["message"]


def test_a_target_that_cannot_be_loaded_is_no_candidates_fault(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, _ = run(capsys, "--json", "--target", "no-such-model", "--draft", GOOD)
    assert code == 5
    assert json.loads(out)["error"]["reason"] == "MODEL_UNKNOWN"

    def fail(*_: object) -> None:
        raise OutriderError(Reason.MODEL_UNSUPPORTED, "not here")

    monkeypatch.setattr(RecordingTarget, "load", fail)
    code, out, _ = run(capsys, "--json", *SHORT, "--draft", GOOD)
    assert code == 5
    assert json.loads(out)["error"]["reason"] == "MODEL_UNSUPPORTED"
    assert "refused" not in json.loads(out)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--draft-ms", "other=5"), "expected NAME=MS with NAME of tiny:0.2"),
        (("--draft-ms", f"{GOOD}=fast"), "expected milliseconds"),
        (("--draft-ms", f"{GOOD}=-1"), "expected milliseconds"),
        (("--draft-ms", f"{GOOD}=nan"), "expected milliseconds"),
        (("--stop", "x"), "--stop"),
        (("--category", "zz"), "no prompt is left"),
        (("--link", "zz"), "no profile 'zz'"),
        (("--max-tokens", "1"), "max-tokens"),
    ],
)
def test_what_cannot_be_meant_is_refused(capsys: Capture, arguments: tuple[str, ...], words: str) -> None:
    code, out, _ = run(capsys, "--json", *SHORT, "--draft", GOOD, *arguments)
    assert code == 2
    error = json.loads(out)["error"]
    assert error["reason"] == "USAGE"
    assert words in error["message"]


def test_of_a_scenario_the_hardware_counts_and_the_rest_is_named(capsys: Capture, tmp_path: Path) -> None:
    path = tmp_path / "far.toml"
    path.write_text('recordings = "full"\nlimit = 1\nmax_tokens = 3\ntarget_ms = 70\nrtt_ms = 90\ngamma = 9\n')
    code, out, err = run(capsys, str(path), "--json", *SHORT, "--draft", GOOD, "--rtt-ms", "30")
    assert code == 0
    made = json.loads(out)
    assert (made["scenario"]["target_ms"], made["scenario"]["rtt_ms"]) == (70, 30)
    assert made["streaming"]["answers"] == 2
    assert made["streaming"]["tokens"] == made["tokens"] > 6
    assert "not used here: recordings, limit, max_tokens, gamma" in err


def test_the_first_shipped_prompts_are_one_of_each_category() -> None:
    pool = shipped_prompts()
    assert len(pool) == 34
    assert len({prompt.category for prompt in pool[:DEFAULT_LIMIT]}) == DEFAULT_LIMIT
    assert all(prompt.prompt for prompt in pool)


def test_no_out_leaves_nothing_behind(capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    seen: list[int] = []

    def spy(setup: Any) -> Any:
        assert isinstance(setup.recordings, RecordingSet)
        seen.append(len(list(tmp_path.rglob("*.npz"))))
        return fastest_choice(setup)

    monkeypatch.setattr("outrider.harness.drafter_ranking.ranking.fastest_choice", spy)
    answer(capsys, "--draft", GOOD)
    assert seen == [2]
    assert list(tmp_path.iterdir()) == []
