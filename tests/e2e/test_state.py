"""What agents learn goes on from run to run in a file, which holds none of what was said."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from outrider.cloud.targets.tiny import TinyEngine
from outrider.edge import Agent, Sampling
from outrider.shared.errors import Reason
from support.process import json_lines, run_command
from support.refusal import refused
from support.serving import serving

TINY = "tiny:0.5"
TWO_TINY = ("--target", "tiny", "--drafter", TINY, "--control", "fixed")
SAMPLING = Sampling(max_tokens=60, logit_bias={256: -100.0})
# Every text in a state: its keys, its format and the names of what guessed.
WORDS = {
    "format", "outrider-state", "version", "shares", "calibrations", "weights", "precision", "corpus", "tiny-0.5",
    "lookup", "bandit", "pulls", "limits",
}  # fmt: skip


@pytest.fixture
async def verifier() -> AsyncIterator[str]:
    async with serving(TinyEngine(max_slots=2)) as address:
        yield address


def state_in(path: Path) -> Any:
    return json.loads(path.read_text())


def words_and_numbers(state: Any) -> tuple[set[str], list[float]]:
    if isinstance(state, str):
        return {state}, []
    if not isinstance(state, dict | list):
        return set(), [state]
    parts = list(state.values()) if isinstance(state, dict) else state
    words = set(state) if isinstance(state, dict) else set()
    numbers: list[float] = []
    for part in parts:
        found, more = words_and_numbers(part)
        words |= found
        numbers += more
    return words, numbers


async def test_two_agents_that_share_a_file_learn_what_one_learns_from_both_answers(
    verifier: str, tmp_path: Path
) -> None:
    both, one, first = (tmp_path / name for name in ("both.json", "one.json", "first.json"))
    async with Agent.connect(verifier, TINY, control="fixed", state=one) as agent:
        for prompt in ("a", "b"):
            await agent.answer(prompt, SAMPLING)
    for prompt in ("a", "b"):
        async with Agent.connect(verifier, TINY, control="fixed", state=str(both)) as agent:
            await agent.answer(prompt, SAMPLING)
        if prompt == "a":
            first.write_bytes(both.read_bytes())
    assert state_in(both) == state_in(one)
    assert state_in(both) != state_in(first)


async def test_a_file_holds_no_text_and_no_ids_however_much_was_answered(verifier: str, tmp_path: Path) -> None:
    corpus = tmp_path / "secret.txt"
    corpus.write_text("a secret that stays at home " * 9)
    sizes = set()
    for count in (1, 6):
        path = tmp_path / f"{count}.json"
        drafter = f"{TINY}+lookup:{corpus}"
        async with Agent.connect(verifier, drafter, control="fixed", state=path) as agent:
            for number in range(count):
                await agent.answer(f"a secret that stays at home {number}", SAMPLING)
        words, numbers = words_and_numbers(state_in(path))
        assert words == WORDS
        sizes.add(len(numbers))
        assert [number for number in numbers if number == int(number) and number != 0] == [1], "the version"
    assert len(sizes) == 1


async def test_a_learning_control_goes_on_where_it_was_and_learns_nothing_without_guesses(
    verifier: str, tmp_path: Path
) -> None:
    path = tmp_path / "state.json"
    long = SAMPLING.model_copy(update={"max_tokens": 300})
    found = []
    for _ in range(2):
        async with Agent.connect(verifier, TINY, control="learned", state=path) as agent:
            await agent.answer("a", long)
        found.append(state_in(path)["bandit"])
    async with Agent.connect(verifier, TINY, control="learned", state=path) as agent:
        await agent.streaming().answer("a", long)
    assert state_in(path)["bandit"] == found[1]
    first, second = found
    assert 0 < first["pulls"] < second["pulls"]
    for arms_before, arms_after in zip(first["limits"], second["limits"], strict=True):
        for before, after in zip(arms_before, arms_after, strict=True):
            assert after[: len(before)] == before
    assert any(arm for limit in first["limits"] for arm in limit), "it has credited something"


async def test_what_was_learned_before_an_error_is_kept(verifier: str, tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    with pytest.raises(ZeroDivisionError):
        async with Agent.connect(verifier, TINY, state=path) as agent:
            await agent.answer("a", SAMPLING)
            raise ZeroDivisionError
    assert "tiny-0.5" in state_in(path)["calibrations"]


async def test_an_agent_that_was_never_connected_leaves_the_file_alone(verifier: str, tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    with refused(Reason.USAGE):
        async with Agent.connect(verifier, "telepathy", state=path):
            pass
    assert not path.exists()


def test_a_second_run_of_a_command_goes_on_from_the_first(tmp_path: Path) -> None:
    shared, again = tmp_path / "state.json", tmp_path / "again.json"
    arguments = (*TWO_TINY, "--max-tokens", "60", "--state")
    answers = [json_lines(run_command("ask", "hi", *arguments, str(path), "--json").stdout) for path in (shared, again)]
    after_one = state_in(shared)
    assert after_one == state_in(again), "one answer teaches the same each time"
    answers.append(json_lines(run_command("ask", "hi", *arguments, str(shared), "--json").stdout))
    after_two = state_in(shared)["calibrations"]["tiny-0.5"]
    assert after_two["weights"] != after_one["calibrations"]["tiny-0.5"]["weights"]
    seen = [
        sum(row[i] for i, row in enumerate(one["precision"]))
        for one in (*after_one["calibrations"].values(), after_two)
    ]
    assert seen[1] > 1.2 * seen[0], "the second run adds to what the first one saw"
    assert len({tuple(answer["token_ids"]) for (answer,) in answers}) == 1, "the text is the target's own"
    for command, stdin in ((("chat",), "hi\n"), (("compare", "hi"), None)):
        before = shared.read_bytes()
        done = run_command(*command, *arguments, str(shared), "--json", stdin=stdin)
        assert (done.returncode, shared.read_bytes() == before) == (0, False)


def test_a_command_that_looks_up_in_a_file_needs_fewer_passes_for_the_same_text(tmp_path: Path) -> None:
    arguments = ("--target", "tiny", "--max-tokens", "80", "--logit-bias", "256=-100", "--json")
    (alone,) = json_lines(run_command("ask", "hi", *arguments, "--drafter", "lookup").stdout)
    text = tmp_path / "earlier answers.txt"
    text.write_text(alone["text"])
    (found,) = json_lines(run_command("ask", "hi", *arguments, "--drafter", f"lookup:{text}").stdout)
    assert found["token_ids"] == alone["token_ids"]
    assert found["passes"] * 3 <= alone["passes"]
    assert found["settings"]["drafter"] == f"lookup:{text}"
