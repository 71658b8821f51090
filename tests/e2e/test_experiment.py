"""An experiment on live answers over real gRPC: an arm changes how tokens come, never which; the log misses none."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from outrider.cloud.targets.tiny import TinyEngine
from outrider.edge import Agent, Drafting, Experiment, Sampling, private_verifier
from outrider.edge.drafters.tiny import TinyDrafter, TinyDraftSession
from outrider.edge.experiment import Arms, parse_arm
from outrider.shared.cli import main
from outrider.shared.errors import Reason
from outrider.shared.sampling.choose import Chooser
from support.process import json_lines, run_command
from support.refusal import refused
from support.serving import serving

TINY = "tiny:0.5"
ARM_A = Drafting(TINY)
PLAIN = parse_arm("plain", ARM_A)
ARMS = ("plain", "gamma=2,pace=eager", "branch=2,gamma=3", "drafter=none,pace=patient")
SAMPLINGS = (Sampling(max_tokens=60), Sampling(max_tokens=60, temperature=1.0, seed=7))
LONG = Sampling(max_tokens=300, logit_bias={256: -100.0})
PROMPT = "a secret that stays at home"
LINE_KEYS = {
    "version", "experiment", "arm", "time", "model", "draft_model", "settings", "tokens", "seconds", "ttft_ms",
    "passes", "drafted", "accepted", "uplink_bytes", "downlink_bytes", "finish_reason", "error",
}  # fmt: skip


@pytest.fixture
async def verifier() -> AsyncIterator[str]:
    async with serving(TinyEngine(max_slots=2)) as address:
        yield address


def experiment(share: float, arm: str = "plain", log: Path | None = None) -> Experiment:
    return Experiment("trial", share, parse_arm(arm, ARM_A), log)


def logged(path: Path) -> list[dict[str, Any]]:
    return json_lines(path.read_text())


@pytest.mark.parametrize("arm", ARMS)
async def test_the_text_does_not_depend_on_the_arm(verifier: str, arm: str) -> None:
    async with (
        Agent.connect(verifier, drafter=TINY, experiment=experiment(0.0, arm)) as always_a,
        Agent.connect(verifier, drafter=TINY, experiment=experiment(1.0, arm)) as always_b,
    ):
        for sampling in SAMPLINGS:
            a, b = await always_a.answer(PROMPT, sampling), await always_b.answer(PROMPT, sampling)
            assert (a.stats["arm"], b.stats["arm"]) == ("a", "b")
            assert a.stats["experiment"] == b.stats["experiment"] == "trial"
            assert b.token_ids == a.token_ids
            assert (b.text, b.finish_reason) == (a.text, a.finish_reason)


async def test_each_arm_is_drafted_as_it_says_and_reports_it(verifier: str) -> None:
    async with Agent.connect(verifier, drafter=TINY, experiment=experiment(0.0)) as agent:
        drafted = (await agent.answer(PROMPT, LONG)).stats
    async with Agent.connect(verifier, drafter=TINY, experiment=experiment(1.0)) as agent:
        plain = (await agent.answer(PROMPT, LONG)).stats
    async with Agent.connect(verifier, drafter=TINY, experiment=experiment(1.0, "gamma=2,branch=2")) as agent:
        other = (await agent.answer(PROMPT, LONG)).stats
    assert (drafted["draft_model"], drafted["settings"]["gamma"], drafted["settings"]["pace"]) == (
        "tiny-0.5", None, "patient",
    )  # fmt: skip
    assert drafted["drafted"] > 0
    assert (plain["draft_model"], plain["settings"]["drafter"], plain["settings"]["pace"]) == ("none", "none", "eager")
    assert (plain["drafted"], plain["passes"]) == (0, 300)
    assert plain["rounds"] < 100, "an eager verifier is not asked for each token"
    assert (other["draft_model"], other["settings"]["gamma"], other["settings"]["branch"]) == ("tiny-0.5", 2, 2)
    assert len(other["accepted_histogram"]) <= 3


async def test_a_scripted_drafter_is_told_its_text_in_the_arm_that_uses_it_and_silent_in_the_other(
    verifier: str,
) -> None:
    for share, passes in ((0.0, 50), (1.0, 300)):
        trial = Experiment("x", share, Drafting("none"))
        async with Agent.connect(verifier, drafter="scripted:right", control="fixed", experiment=trial) as agent:
            assert (await agent.answer(PROMPT, LONG)).stats["passes"] == passes


async def test_without_an_experiment_nothing_is_said_of_arms(verifier: str) -> None:
    async with Agent.connect(verifier, drafter=TINY) as agent:
        assert {"arm", "experiment"}.isdisjoint((await agent.answer(PROMPT, LONG)).stats)


def test_the_share_of_requests_goes_the_other_way_whatever_seeds_the_program_sets() -> None:
    """20,000 requests: 0.2 within five standard deviations, odds of a false alarm 6 in 10 million."""
    arms = Arms(ARM_A, experiment(0.2))
    picked = Counter(arms.pick().label for _ in range(20_000))
    assert abs(picked["b"] - 4000) < 5 * (20_000 * 0.2 * 0.8) ** 0.5
    draws = []
    for _ in range(2):
        random.seed(1)
        draws.append([arms.pick().label for _ in range(200)])
    assert draws[0] != draws[1]


async def test_each_answer_adds_one_line_that_holds_counts_and_no_text(verifier: str, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    async with Agent.connect(verifier, drafter=TINY, experiment=experiment(0.5, log=log)) as agent:
        results = [await agent.answer(PROMPT, Sampling(max_tokens=40, seed=n, temperature=1.0)) for n in range(24)]
    lines = logged(log)
    assert {result.stats["arm"] for result in results} == {"a", "b"}, "one in 8 million draws has one arm only"
    for line, result in zip(lines, results, strict=True):
        assert set(line) == LINE_KEYS
        assert line["experiment"] == "trial"
        assert (line["error"], line["finish_reason"]) == (None, result.finish_reason)
        for key in LINE_KEYS & set(result.stats) - {"settings", "ttft_ms"}:
            assert line[key] == result.stats[key]
        assert line["ttft_ms"] == result.stats["ttft_ms"] > 0
        assert line["settings"] == {k: result.stats["settings"][k] for k in line["settings"]}
        assert set(line["settings"]) == {"drafter", "control", "gamma", "branch", "pace", "draft_temperature"}
    written = log.read_text()
    assert PROMPT not in written
    assert all(len(result.text) > 3 and json.dumps(result.text)[1:-1] not in written for result in results)
    assert "[" not in written, "nothing in a line is a list"


@pytest.mark.parametrize("share", [0.0, 1.0])
async def test_an_answer_that_is_left_or_cancelled_is_logged_as_such(
    verifier: str, tmp_path: Path, share: float
) -> None:
    log = tmp_path / "log.jsonl"
    async with Agent.connect(verifier, drafter=TINY, experiment=experiment(share, log=log)) as agent:
        stream = agent.stream(PROMPT, LONG)
        await anext(stream)
        await stream.aclose()
        (left,) = logged(log)

        began = asyncio.Event()

        async def read() -> None:
            async for _ in agent.stream(PROMPT, LONG):
                began.set()

        reading = asyncio.create_task(read())
        await began.wait()
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        _, cancelled = logged(log)

        stream = agent.stream(PROMPT, LONG)
        while (await anext(stream)).result is None:
            pass
        await stream.aclose()
        *_, whole = logged(log)
    for line in (left, cancelled):
        assert (line["finish_reason"], line["error"]) == ("cancelled", None)
        assert 0 < line["tokens"] < 300
        assert line["passes"] > 0
        assert line["seconds"] > line["ttft_ms"] / 1000 > 0
    assert (whole["finish_reason"], whole["tokens"]) == ("length", 300)


async def test_a_refused_answer_is_logged_with_its_reason(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    async with (
        serving(TinyEngine(context_length=64)) as address,
        Agent.connect(address, drafter=TINY, experiment=experiment(1.0, log=log)) as agent,
    ):
        with refused(Reason.PROMPT_TOO_LONG):
            await agent.answer("x" * 100)
    (line,) = logged(log)
    assert (line["arm"], line["finish_reason"], line["error"]) == ("b", None, "PROMPT_TOO_LONG")
    assert (line["tokens"], line["ttft_ms"]) == (0, None)


async def test_an_answer_whose_verifier_ends_is_logged_with_what_there_was_of_it(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    endless = Sampling(max_tokens=90_000, logit_bias={256: -100.0})
    async with private_verifier(["--target", "tiny", "--context", "100000"]) as address:
        connected = Agent.connect(address, drafter=TINY, experiment=experiment(0.0, log=log))
        agent = await connected.__aenter__()
        stream = agent.stream(PROMPT, endless)
        await anext(stream)
    with refused(Reason.VERIFIER_UNREACHABLE):
        async for _ in stream:
            pass
    await connected.__aexit__(None, None, None)
    (line,) = logged(log)
    assert (line["error"], line["finish_reason"]) == ("VERIFIER_UNREACHABLE", None)
    assert line["tokens"] > 0
    assert line["passes"] > 0


async def test_a_drafter_that_cannot_begin_fails_its_own_arm_only(
    verifier: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(self: TinyDrafter, prompt_ids: Sequence[int], chooser: Chooser) -> TinyDraftSession:
        raise MemoryError

    monkeypatch.setattr(TinyDrafter, "open", failing)
    log = tmp_path / "log.jsonl"
    async with Agent.connect(verifier, drafter=TINY, experiment=experiment(0.0, log=log)) as agent:
        with pytest.raises(MemoryError):
            await agent.answer(PROMPT)
    async with Agent.connect(verifier, drafter=TINY, experiment=experiment(1.0, log=log)) as agent:
        await agent.answer(PROMPT, LONG)
    failed, plain = logged(log)
    assert (failed["arm"], failed["error"], failed["tokens"], failed["seconds"]) == ("a", "INTERNAL", 0, 0)
    assert (plain["arm"], plain["error"], plain["tokens"]) == ("b", None, 300)


async def test_an_answer_that_waited_for_a_free_session_is_one_line(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    async with (
        serving(TinyEngine(max_slots=1)) as address,
        Agent.connect(address, drafter=TINY, experiment=experiment(0.5, log=log)) as agent,
    ):
        results = await asyncio.gather(*(agent.answer(prompt, LONG) for prompt in ("left", "right")))
    lines = logged(log)
    assert Counter(line["arm"] for line in lines) == Counter(result.stats["arm"] for result in results)
    assert all((line["error"], line["tokens"]) == (None, 300) for line in lines)


async def test_a_log_that_cannot_be_written_costs_no_answer_and_is_said_once(
    verifier: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trial = experiment(0.5, log=tmp_path / "missing" / "log.jsonl")
    async with Agent.connect(verifier, drafter=TINY, experiment=trial) as agent:
        answers = [(await agent.answer(PROMPT, LONG)).token_ids for _ in range(3)]
    assert answers[0] == answers[1] == answers[2] != []
    said = [record.levelname for record in caplog.records if record.name == "outrider.edge.experiment_log"]
    assert said == ["WARNING"]
    assert "missing" in caplog.text


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"share": 1.5}, "share = 1.5: expected a number from 0 to 1"),
        ({"share": -0.1}, "share = -0.1"),
        ({"share": float("nan")}, "share = nan"),
        ({"share": "0.2"}, "share = '0.2'"),
        ({"share": True}, "share = True"),
        ({"name": " "}, "name = ' '"),
        ({"name": "a\nb"}, "name = 'a\\nb'"),
        ({"arm_b": "plain"}, "arm_b = 'plain': expected a Drafting"),
        ({"log": 3}, "log = 3"),
        ({"arm_b": Drafting(control="magic")}, "'magic'"),
        ({"arm_b": Drafting(gamma=0)}, "gamma = 0"),
        ({"arm_b": Drafting(pace="slow")}, "'slow'"),
    ],
)
def test_values_that_are_not_possible_are_refused_by_key_and_value(changes: dict[str, Any], named: str) -> None:
    with refused(Reason.USAGE, named):
        dataclasses.replace(Experiment("x", 0.5, PLAIN), **changes)


async def test_a_drafter_of_its_own_and_a_round_past_the_window_are_refused_for_arm_b(verifier: str) -> None:
    for drafter in ("tiny:0", "llama:qwen2.5-coder-0.5b"):
        with refused(Reason.USAGE, f"drafter = {drafter!r}", f"expected {TINY!r} or 'none'"):
            async with Agent.connect(verifier, drafter=TINY, experiment=Experiment("x", 0.5, Drafting(drafter))):
                pass
    with refused(Reason.USAGE, "500"):
        async with Agent.connect(verifier, drafter=TINY, experiment=experiment(0.5, "gamma=500")):
            pass


def test_an_arm_is_said_by_what_differs_from_the_other() -> None:
    base = Drafting(TINY, gamma=7, branch=2, pace="patient")
    assert parse_arm("plain", base) == Drafting("none", gamma=7, branch=2, pace="eager")
    changed = Drafting(TINY, "fixed", gamma=3, branch=2, pace="eager")
    assert parse_arm("control=fixed, gamma=3,pace=eager", base) == changed
    assert parse_arm("drafter=none", base) == Drafting("none", gamma=7, branch=2, pace="patient")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--experiment-share", "2"], "share = 2.0"),
        (["--experiment-share", "some"], "--experiment-share"),
        (["--experiment-arm", "plain"], "--experiment-arm 'plain': expected --experiment-share"),
        (["--experiment-log", "x"], "--experiment-log 'x': expected --experiment-share"),
        (["--experiment-share", "0.5", "--experiment-arm", ""], "expected plain or KEY=VALUE"),
        (["--experiment-share", "0.5", "--experiment-arm", "gamma"], "'gamma': expected plain or KEY=VALUE"),
        (["--experiment-share", "0.5", "--experiment-arm", "speed=3"], "'speed=3'"),
        (["--experiment-share", "0.5", "--experiment-arm", "gamma=x"], "gamma = 'x': expected a whole number"),
        (["--experiment-share", "0.5", "--experiment-arm", "gamma=1,gamma=2"], "gamma is given twice"),
        (["--experiment-share", "0.5", "--experiment-arm", "gamma=0"], "gamma = 0"),
        (["--experiment-share", "0.5", "--experiment-arm", "pace=slow"], "'slow'"),
        (["--experiment-share", "0.5", "--experiment-name", ""], "name = ''"),
    ],
)
@pytest.mark.parametrize("command", [["ask", "hi"], ["chat"]])
def test_bad_options_are_refused_before_anything_starts(
    command: list[str], options: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, *options, "--json"]) == 2
    (said,) = json_lines(capsys.readouterr().out)
    assert said["error"]["reason"] == "USAGE"
    assert named in said["error"]["message"]


def test_ask_and_chat_take_part_and_the_log_is_compared(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    tiny = ("--target", "tiny", "--drafter", TINY, "--max-tokens", "20", "--json", "--experiment-log", str(log))
    # Fixed: other policies follow how busy this machine is, and so do their tokens a pass.
    chat = ("chat", *tiny, "--control", "fixed", "--experiment-arm", "plain")
    lines = "one\ntwo\nthree\n"
    for share, arm in (("0", "a"), ("1", "b")):
        done = run_command(*chat, "--experiment-share", share, stdin=lines)
        turns = json_lines(done.stdout)
        assert [(turn["experiment"], turn["arm"]) for turn in turns] == [("plain", arm)] * 3
    named = ("--experiment-arm", "gamma=2,pace=eager", "--experiment-name", "shorter")
    (answer,) = json_lines(run_command("ask", "hi", *tiny, "--experiment-share", "1", *named).stdout)
    assert (answer["experiment"], answer["arm"], answer["settings"]["gamma"]) == ("shorter", "b", 2)
    done = run_command("experiment", str(log), "--json")
    plain, shorter = json_lines(done.stdout)
    assert done.returncode == 0
    assert (plain["experiment"], plain["arms"]["a"]["answers"], plain["arms"]["b"]["answers"]) == ("plain", 3, 3)
    assert plain["comparison"]["tokens_per_pass"]["ratio"]["high"] < 1
    assert plain["arms"]["b"]["tokens_per_pass"] == 1.0
    assert (shorter["experiment"], shorter["distinguishable"]) == ("shorter", None)
