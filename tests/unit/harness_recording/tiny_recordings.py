"""Recordings of the pseudo model, and answers played over the in-memory link on the virtual clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from outrider.cloud.target import Target
from outrider.cloud.verifier import Verifier, VerifierConfig
from outrider.edge.answer import Answer, AnswerSetup
from outrider.edge.commands.compare import BenchPrompt
from outrider.edge.control.fixed import FixedControl
from outrider.edge.drafters.base import Drafter, Proposal
from outrider.edge.drafters.tiny import TinyDrafter, TinyDraftSession
from outrider.edge.guesses.experience import Experience
from outrider.edge.guesses.sources import Sources
from outrider.harness import virtual_time
from outrider.harness.links import LinkProfile
from outrider.harness.memory_link import MemoryPort
from outrider.harness.recording.format import Recording
from outrider.harness.recording.library import RecordingSet
from outrider.harness.recording.pair import Pair
from outrider.shared.messages import Open
from outrider.shared.sampling.choose import Chooser
from outrider.shared.sampling.options import Sampling
from outrider.shared.token_tree import Origin
from outrider.shared.vocabulary import Vocabulary

DEVIATION = 0.6
TOKENS = 48
SAMPLINGS = {
    "greedy": Sampling(max_tokens=TOKENS, seed=21),
    "nucleus": Sampling(max_tokens=TOKENS, seed=22, temperature=0.7, top_p=0.8),
    "full": Sampling(max_tokens=TOKENS, seed=23, temperature=1.0),
}
PROMPTS = (
    BenchPrompt("one", "code", "a second prompt"),
    BenchPrompt("two", "code", "fourth"),
    BenchPrompt("three", "chat", "ünïcode 你好"),
)
DRAFT_MS, ROW_MS = 3.0, 1.0


def draft_ms(rows: int, busy_s: float) -> float:
    """What a guess costs in these tests."""
    return DRAFT_MS


def no_time(rows: int, busy_s: float) -> float:
    """A drafter without a clock."""
    return 0.0


def pass_ms(rows: int, sessions: int) -> float:
    """What a pass costs in these tests."""
    return 40.0 + ROW_MS * rows + sessions


@cache
def tiny_set(name: str = "greedy") -> RecordingSet:
    """Recordings of all prompts under the sampling of that name."""
    pair = Pair.load("tiny", f"tiny:{DEVIATION}", 512)
    return RecordingSet([pair.record(prompt, SAMPLINGS[name]) for prompt in PROMPTS])


def tiny_recording(name: str = "greedy", index: int = 0) -> Recording:
    """One of them."""
    return tiny_set(name).recordings[index]


class TimedTiny(TinyDrafter):
    """The tiny drafter with the time that the replayed one takes."""

    def open(self, prompt_ids: Sequence[int], chooser: Chooser) -> TinyDraftSession:
        return _TimedSession(list(prompt_ids), chooser, DEVIATION)


class _TimedSession(TinyDraftSession):
    async def propose(self, texts: Sequence[Sequence[int]], count: int) -> list[list[Proposal]]:
        await asyncio.sleep(DRAFT_MS / 1000)
        return await super().propose(texts, count)


@dataclass(frozen=True)
class Played:
    """What one answer looked like from the edge."""

    ids: list[int]
    finish_reason: str
    report: dict[str, Any]
    gaps: list[float]
    seconds: float


def play(
    make_target: Callable[[], Target],
    make_drafter: Callable[[], Drafter],
    requests: Sequence[Open],
    control: FixedControl,
    *,
    eager: bool = False,
    rtt_ms: float = 30.0,
) -> list[Played]:
    """Play the answers one after the other on one verifier."""
    return virtual_time.run(play_on(make_target(), make_drafter(), requests, control, eager, rtt_ms))


async def play_on(
    target: Target,
    drafter: Drafter,
    requests: Sequence[Open],
    control: FixedControl,
    eager: bool = False,
    rtt_ms: float = 0.0,
) -> list[Played]:
    """The same on the loop that runs, with a target and a drafter that may have threads."""
    played: list[Played] = []
    verifier = Verifier(target, VerifierConfig())
    vocabulary: Vocabulary = target.vocabulary
    async with verifier.running(), MemoryPort.listening(verifier) as port:
        for request in requests:
            link = port.connect(LinkProfile.model_validate({"rtt_ms": rtt_ms}), seed=1)
            chooser = Chooser(request.sampling, request.seed, request.prompt_ids, vocabulary.size)
            draft = drafter.open(request.prompt_ids, chooser)
            setup = AnswerSetup(request, verifier.info().limits, verifier.info().stop_ids, control, eager)
            answer = Answer(setup, link, Sources.of({drafter.name: draft}, request, Experience()))
            committed = [token async for tokens in answer.committed() for token in tokens]
            assert answer.finish_reason is not None
            ids = list(answer.tree.committed)
            drafted = sum(token.origin is Origin.DRAFTED for token in committed)
            report = answer.stats.report(len(ids), drafted)
            played.append(Played(ids, answer.finish_reason.value, report, answer.gaps, answer.stats.seconds))
    await drafter.close()
    return played
