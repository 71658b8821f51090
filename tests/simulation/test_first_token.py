"""The pass that reads the prompt's end gives the first token too, if the edge has said by then that it may."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest

from outrider.cloud.scheduler import FIRST_WORD_S
from outrider.cloud.session import SessionLimits
from outrider.cloud.target import PassResult, PassWork
from outrider.cloud.targets.contract import side_branches
from outrider.cloud.targets.tiny import TinyEngine
from outrider.cloud.verifier import Verifier, VerifierConfig
from outrider.harness.inline_target import InlineTarget
from outrider.harness.links import LinkProfile
from outrider.harness.memory_link import MemoryPort
from outrider.harness.virtual_time import run
from outrider.shared.messages import Commit, Finished, Grow, Open
from outrider.shared.sampling.options import Sampling
from outrider.shared.tiny import END
from simulation.world import Task, target_alone

PASS_MS, RTT_MS = 40.0, 20.0
WORD_MS = 1000 * FIRST_WORD_S
TASK = Task(sampling=Sampling(max_tokens=6, logit_bias={END: -100.0}))
EAGER = Grow(1, 0, run_to=6)


class WatchedTarget(InlineTarget):
    """Passes of 40 ms over the tiny model; keeps what each held."""

    def __init__(self) -> None:
        super().__init__(TinyEngine(), lambda rows, sessions: PASS_MS)
        self.passes: list[list[PassWork]] = []

    async def run_pass(self, work: Sequence[PassWork]) -> Sequence[PassResult]:
        """See `Target.run_pass`."""
        self.passes.append(list(work))
        return await super().run_pass(work)


@dataclass(frozen=True)
class Heard:
    """What an edge heard: the milliseconds from Open to the first commit, that commit, how the answer ended, and the
    whole text.
    """

    first_ms: float
    first: Commit
    finished: Finished
    tokens: list[int]


async def speak(port: MemoryPort, request: Open, *words: Grow, after_ms: float = 0.0) -> Heard:
    """Send Open and then `words`, so long after it; hear the answer to its end."""
    loop = asyncio.get_running_loop()
    link = port.connect(LinkProfile.of_rtt(RTT_MS), request.seed)
    began_s = loop.time()
    await link.send(request)
    await asyncio.sleep(after_ms / 1000)
    for word in words:
        await link.send(word)
    commits: list[Commit] = []
    tokens: list[int] = []
    first_ms = 0.0
    while not isinstance(message := await link.receive(), Finished):
        if isinstance(message, Commit):
            first_ms = first_ms or 1000 * (loop.time() - began_s)
            commits.append(message)
            guessed = [token for word in words for token in word.tokens]
            accepted = message.committed_length - message.base - len(message.tokens)
            tokens += [*guessed[message.base : message.base + accepted], *message.tokens]
    await link.close()
    return Heard(first_ms, commits[0], message, tokens)


def hear(
    target: WatchedTarget, *words: Grow, after_ms: float = 0.0, request: Open | None = None, prefill_chunk: int = 256
) -> Heard:
    """See `speak`, with a verifier of its own."""

    async def main() -> Heard:
        verifier = Verifier(target, VerifierConfig(session=SessionLimits(prefill_chunk=prefill_chunk)))
        async with verifier.running(), MemoryPort.listening(verifier) as port:
            return await speak(port, request or TASK.request(), *words, after_ms=after_ms)

    return run(main(), limit_s=100.0)


def rows(target: WatchedTarget) -> list[int]:
    """Rows of each pass."""
    return [sum(item.rows.count for item in work) for work in target.passes]


PROMPT = len(TASK.request().prompt_ids)


@pytest.mark.parametrize("after_ms", [0.0, WORD_MS - 1])
def test_credit_that_follows_open_brings_the_first_token_with_the_prompts_pass(after_ms: float) -> None:
    target = WatchedTarget()
    heard = hear(target, EAGER, after_ms=after_ms)
    assert heard.first_ms == pytest.approx(RTT_MS + after_ms + PASS_MS)
    assert heard.tokens == target_alone(TASK)
    assert rows(target) == [PROMPT, 1, 1, 1, 1, 1]
    assert (heard.finished.passes, heard.finished.prefill_passes) == (6, 0)
    assert heard.first.pass_ns == PASS_MS * 1e6


def test_a_prompt_does_not_wait_long_for_a_word() -> None:
    """A patient edge speaks when it has guesses; the prompt has been read by then."""
    target = WatchedTarget()
    heard = hear(target, EAGER, after_ms=WORD_MS + PASS_MS)
    assert heard.first_ms == pytest.approx(RTT_MS + WORD_MS + 2 * PASS_MS)
    assert heard.tokens == target_alone(TASK)
    assert rows(target) == [PROMPT - 1, 1, 1, 1, 1, 1, 1]
    assert (heard.finished.passes, heard.finished.prefill_passes) == (6, 1)
    assert heard.first.pass_ns == 2 * PASS_MS * 1e6


@pytest.mark.parametrize("chunk", [5, 6, 7, 12])
def test_a_prompt_of_several_chunks_gives_its_token_with_the_last(chunk: int) -> None:
    target = WatchedTarget()
    heard = hear(target, EAGER, prefill_chunk=chunk)
    assert heard.tokens == target_alone(TASK)
    reading = rows(target)[:-5]
    assert sum(reading) == PROMPT
    assert max(reading) <= chunk
    assert len(reading) == -(-PROMPT // chunk)
    assert heard.finished.prefill_passes == len(reading) - 1
    assert heard.first_ms == pytest.approx(RTT_MS + len(reading) * PASS_MS)


@pytest.mark.parametrize("chunk", [256, PROMPT + 3, PROMPT])
def test_guesses_at_hand_are_checked_by_the_prompts_pass_as_a_chain_that_fits(chunk: int) -> None:
    """The likelier of two siblings came first; the other one would have the prompt computed twice."""
    right = target_alone(TASK)
    guess = Grow(1, 0, (0, 0, 1, 3), (right[0], (right[0] + 1) % END, right[1], right[2]), run_to=6)
    target = WatchedTarget()
    heard = hear(target, guess, prefill_chunk=chunk)
    held = target.passes[0][0].rows
    assert len(held.append) == PROMPT
    assert held.count <= chunk
    assert list(held.node_tokens) == right[: min(3, chunk - PROMPT)]
    assert side_branches(held.node_parents) == 0
    assert heard.first.committed_length == len(held.node_tokens) + 1
    assert heard.first_ms == pytest.approx(RTT_MS + PASS_MS)


def test_what_is_left_of_a_kept_prefix_is_read_with_the_first_token() -> None:
    """The second answer continues the first one's text."""

    async def main() -> tuple[Heard, Heard, list[list[PassWork]]]:
        target = WatchedTarget()
        verifier = Verifier(target, VerifierConfig())
        async with verifier.running(), MemoryPort.listening(verifier) as port:
            first = await speak(port, TASK.request(), EAGER)
            session_id = next(iter(verifier._parking._places))
            before = len(target.passes)
            longer = (*TASK.request().prompt_ids, *first.tokens, 65, 66, 67)
            request = replace(TASK.request(), prompt_ids=longer, prefix_of=session_id)
            return first, await speak(port, request, EAGER), target.passes[before:]

    first, second, passes = run(main(), limit_s=100.0)
    assert [item.rows.count for item in passes[0]] == [1 + 3], "the last token of the first answer was never read"
    assert second.first_ms == pytest.approx(RTT_MS + PASS_MS)
    assert len(second.tokens) == len(first.tokens)


def test_a_prompt_that_comes_while_others_decode_goes_along_with_their_next_pass() -> None:
    """Nobody's pass waits for a word, and no prompt waits for a pass longer than it has to."""

    async def main() -> tuple[Heard, Heard, list[list[PassWork]]]:
        target = WatchedTarget()
        verifier = Verifier(target, VerifierConfig())
        async with verifier.running(), MemoryPort.listening(verifier) as port:
            busy = replace(TASK, sampling=Sampling(max_tokens=30, logit_bias={END: -100.0}))
            other = asyncio.create_task(speak(port, busy.request(), replace(EAGER, run_to=30)))
            # Its passes begin each 40 ms from 10 ms on: this Open arrives a millisecond before one.
            await asyncio.sleep((3 * PASS_MS - 1) / 1000)
            late = await speak(port, replace(TASK.request(), seed=2), EAGER, after_ms=WORD_MS - 2)
            return await other, late, target.passes

    other, late, passes = run(main(), limit_s=100.0)
    assert late.first_ms == pytest.approx(RTT_MS + 1 + 2 * PASS_MS)
    assert late.finished.prefill_passes == 1
    assert len(other.tokens) == 30
    assert len(passes) == 30
