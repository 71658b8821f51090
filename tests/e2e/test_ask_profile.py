"""`outrider ask --profile` as a user runs it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from outrider.edge import Agent, Drafting, Experiment, Sampling
from outrider.edge.commands.profile_view import PROBE_TOKENS, profile_report
from support.process import json_lines, run_command
from support.serving import serving

ASK = ("ask", "hello", "--target", "tiny", "--max-tokens", "60")
PARTS = {"draft_only", "draft_and_wait", "pass_only", "queue_only", "link_only", "idle"}


def profiled(*arguments: str) -> dict[str, Any]:
    done = run_command(*ASK, *arguments, "--profile", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    (answer,) = json_lines(done.stdout)
    return answer


@pytest.mark.parametrize(
    "arguments",
    [
        ("--drafter", "tiny:0.5", "--control", "fixed"),
        ("--drafter", "tiny:0.5", "--control", "ratio", "--pace", "eager"),
        ("--drafter", "none"),
    ],
)
def test_the_parts_add_up_to_the_answers_seconds(arguments: tuple[str, ...]) -> None:
    answer = profiled(*arguments)
    profile = answer["profile"]
    assert set(profile["parts_ms"]) == PARTS
    assert sum(profile["parts_ms"].values()) == pytest.approx(1000 * answer["seconds"], abs=0.06)
    for key in ("draft_ms", "pass_ms", "queue_ms", "link_ms"):
        assert profile[key] == answer[key]
    both = profile["parts_ms"]["draft_and_wait"]
    assert profile["parts_ms"]["draft_only"] + both == pytest.approx(profile["draft_ms"], abs=0.01)
    assert profile["parts_ms"]["pass_only"] <= profile["pass_ms"] + 0.01
    assert profile["parts_ms"]["link_only"] <= profile["link_ms"] + 0.01
    assert profile["advice"].endswith(".")


def test_guesses_are_compared_with_passes_and_the_answer_with_streaming() -> None:
    answer = profiled("--drafter", "tiny:0.5", "--control", "fixed")
    profile = answer["profile"]
    expected = profile["draft_ms_per_guess"] / profile["mean_pass_ms"]
    assert profile["draft_verify_ratio"] == pytest.approx(expected, abs=1e-3)
    assert profile["gain"] == pytest.approx(profile["streaming_seconds"] / answer["seconds"], abs=0.01)
    assert profile["streaming_ms_per_token"] > 0
    assert "streaming" in profile["advice"]


async def test_what_an_answer_is_compared_with_has_no_guesses_and_is_the_same_text() -> None:
    sampling = Sampling(max_tokens=40, temperature=1.0)
    async with serving() as address, Agent.connect(address, "tiny:0.5", control="fixed") as agent:
        ids = agent.chat_template.prompt_ids([{"role": "user", "content": "hello"}])
        answer = await agent.answer("hello", sampling)
        again = sampling.model_copy(update={"seed": answer.stats["seed"]})
        alone = await agent.streaming().answer("hello", again)
        assert alone.token_ids == answer.token_ids
        assert alone.stats["settings"]["pace"] == "eager"
        assert (alone.stats["drafted"], alone.stats["draft_model"]) == (0, "none")
        assert alone.stats["passes"] == len(alone.committed_ids) > PROBE_TOKENS
        assert answer.stats["drafted"] > 0
        assert (await agent.answer("hello", sampling)).stats["drafted"] > 0, "the agent itself goes on guessing"

        measured = (await profile_report(agent, ids, again, answer)).measured
    assert measured.streaming_ms is not None
    assert measured.tokens == len(answer.committed_ids)
    assert measured.prompt_s < measured.seconds


async def test_the_comparison_is_no_answer_of_an_experiment(tmp_path: Path) -> None:
    log = tmp_path / "ab.jsonl"
    experiment = Experiment("none of it", 0.0, Drafting("none"), log)
    async with serving() as address, Agent.connect(address, "tiny:0.5", experiment=experiment) as agent:
        ids = agent.chat_template.prompt_ids([{"role": "user", "content": "hello"}])
        answer = await agent.answer("hello", Sampling(max_tokens=40))
        report = await profile_report(agent, ids, Sampling(max_tokens=40), answer)
    assert report.measured.streaming_ms is not None
    assert len(log.read_text().splitlines()) == 1


async def test_a_verifier_that_says_no_to_the_comparison_leaves_the_rest_of_the_report() -> None:
    async with serving() as address, Agent.connect(address, "tiny:0.5", control="fixed") as agent:
        ids = agent.chat_template.prompt_ids([{"role": "user", "content": "hello"}])
        answer = await agent.answer("hello", Sampling(max_tokens=40))
        report = await profile_report(agent, ids * 1000, Sampling(max_tokens=40), answer)
    assert report.measured.streaming_ms is None
    assert report.json()["gain"] is None
    assert report.json()["advice"]


def test_without_a_drafter_there_is_nothing_to_compare() -> None:
    profile = profiled("--drafter", "none")["profile"]
    assert (profile["draft_ms"], profile["draft_verify_ratio"], profile["gain"]) == (0, None, None)
    assert "Nothing was guessed" in profile["advice"]


def test_the_table_goes_to_stderr_and_the_answer_stays_as_it_is() -> None:
    common = (*ASK, "--drafter", "tiny:0.5")
    plain, told = run_command(*common), run_command(*common, "--profile")
    assert (plain.returncode, plain.stderr) == (0, "")
    assert (told.returncode, told.stdout) == (0, plain.stdout)
    lines = told.stderr.splitlines()
    assert [line.split("  ")[0] for line in lines[:8]] == [
        "where the time went", "drafting only", "drafting while waiting", "waiting for a pass", "waiting in the queue",
        "waiting for the link", "idle", "the answer",
    ]  # fmt: skip
    assert "Draft over verify:" in told.stderr
    assert told.stderr.isascii(), "plain, as it is no terminal"
    (without,) = json_lines(run_command(*common, "--json").stdout)
    assert "profile" not in without
