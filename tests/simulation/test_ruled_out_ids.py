"""What an answer's options rule out appears at no position, whoever proposes it: a drafter that knows nothing of the
options or has others, and lookups in a prompt that is full of it; not even in what is said without a verifier.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest

from outrider.edge.answer import Answer, AnswerSetup
from outrider.edge.control.base import Control
from outrider.edge.drafters.base import DraftSession, Proposal
from outrider.edge.drafters.tiny import TinyDrafter
from outrider.edge.drafting import CONTROLS, Drafting
from outrider.edge.guesses.experience import Experience
from outrider.edge.guesses.sources import Sources
from outrider.edge.recovery import Patience, Recovery
from outrider.harness.links import Cut, LinkProfile
from outrider.harness.memory_link import MemoryPort
from outrider.harness.tiny_answers import PacedDraft, chooser_of, target_alone
from outrider.harness.virtual_time import run
from outrider.shared.errors import OutriderError, Reason
from outrider.shared.link import EdgeLink
from outrider.shared.messages import Limits, Open
from outrider.shared.sampling.options import Sampling
from outrider.shared.tiny import END
from outrider.shared.token_tree import Origin
from simulation.world import World, drain, world

STEADY = LinkProfile.of_rtt(20)
SPACE, LENGTH = ord(" "), 60
# The space is what the model likes best by far.
WITHOUT_SPACE = {SPACE: -100.0, END: -100.0}
SAMPLINGS = {
    "greedy": Sampling(max_tokens=LENGTH, logit_bias=WITHOUT_SPACE),
    "sampled": Sampling(max_tokens=LENGTH, temperature=1.0, logit_bias=WITHOUT_SPACE),
    "top-k": Sampling(max_tokens=LENGTH, temperature=1.0, top_k=3, logit_bias=WITHOUT_SPACE),
    "min-p": Sampling(max_tokens=LENGTH, temperature=1.5, min_p=0.2, logit_bias=WITHOUT_SPACE),
    "penalties": Sampling(max_tokens=LENGTH, temperature=0.7, presence_penalty=2.0, logit_bias=WITHOUT_SPACE),
}
# What the edge takes the options to be.
OTHERS = {
    "none of them": Sampling(max_tokens=LENGTH),
    "hot": Sampling(max_tokens=LENGTH, temperature=3.0),
    "one candidate": Sampling(max_tokens=LENGTH, temperature=1.0, top_k=1),
    "only the space": Sampling(max_tokens=LENGTH, logit_bias={SPACE: 100.0}),
}


def request_of(sampling: Sampling, prompt: bytes = b"ruled out") -> Open:
    return Open((257, *prompt, 256, 258), sampling, 9, sampling.max_tokens)


class _Stubborn:
    """Proposes the space and nothing else, and is sure of it."""

    def __init__(self) -> None:
        self.asked_count = 0

    async def propose(self, texts: Sequence[Sequence[int]], count: int) -> list[list[Proposal]]:
        """See `DraftSession.propose`."""
        self.asked_count += len(texts)
        await asyncio.sleep(0.001)
        return [[Proposal(SPACE, 0.99)] for _ in texts]

    async def close(self) -> None:
        """See `DraftSession.close`."""


def answer_of(
    here: World, request: Open, session: DraftSession, control: Control, link: LinkProfile = STEADY, *, eager: bool
) -> Answer:
    info = here.verifier.info()
    sources = Sources.of({"odd": session}, request, Experience())
    setup = AnswerSetup(request, info.limits, info.stop_ids, control, eager)
    return Answer(setup, here.port.connect(link, seed=1), sources)


@pytest.mark.parametrize("eager", [False, True], ids=["patient", "eager"])
@pytest.mark.parametrize("control", CONTROLS)
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_an_id_that_the_drafter_always_proposes_and_the_options_forbid_is_nowhere(
    sampling: str, control: str, eager: bool
) -> None:
    request, session = request_of(SAMPLINGS[sampling]), _Stubborn()

    async def main() -> Answer:
        async with world() as here:
            answer = answer_of(here, request, session, Drafting("tiny", control).make_control(), eager=eager)
            await drain(answer)
            return answer

    answer = run(main())
    assert answer.stats.drafted > 0, "it was proposed to the target, too"
    assert SPACE not in answer.tree.committed
    assert answer.tree.committed == target_alone(request)
    assert len(answer.tree.committed) == LENGTH


@pytest.mark.parametrize("theirs", OTHERS)
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_a_drafter_with_other_options_than_the_target_changes_no_id(sampling: str, theirs: str) -> None:
    request = request_of(SAMPLINGS[sampling])
    session = TinyDrafter(0.5).open(request.prompt_ids, chooser_of(replace(request, sampling=OTHERS[theirs])))

    async def main() -> Answer:
        async with world() as here:
            control = Drafting("tiny", "fixed", gamma=4, branch=2).make_control()
            answer = answer_of(here, request, PacedDraft(session, 1.0), control, eager=False)
            await drain(answer)
            return answer

    answer = run(main())
    assert answer.stats.drafted > 0
    assert answer.tree.committed == target_alone(request)


@dataclass
class _Unreachable:
    """The only verifier there is, over a link that leads to it no more."""

    port: MemoryPort
    link: LinkProfile
    count: int = 1

    def open_stream(self) -> EdgeLink:
        """See `Verifiers.open_stream`."""
        return self.port.connect(self.link, seed=1)

    async def find(self, *, elsewhere: bool) -> Limits:
        """See `Verifiers.find`."""
        raise OutriderError(Reason.VERIFIER_UNREACHABLE)

    async def pause(self, seconds: float) -> None:
        """See `Verifiers.pause`."""
        await asyncio.sleep(seconds)


class _SoonFull:
    """A drafter whose context is full after some tokens of answer."""

    def __init__(self, inner: DraftSession, room: int) -> None:
        self._inner = inner
        self._room = room

    async def propose(self, texts: Sequence[Sequence[int]], count: int) -> list[list[Proposal]]:
        """See `DraftSession.propose`."""
        proposals = await self._inner.propose(texts, count)
        return [said if len(text) < self._room else [] for text, said in zip(texts, proposals, strict=True)]

    async def close(self) -> None:
        """See `DraftSession.close`."""
        await self._inner.close()


@pytest.mark.parametrize("room", [10, 20, LENGTH])
@pytest.mark.parametrize("control", CONTROLS)
def test_nor_does_a_lookup_bring_it_into_what_is_said_without_a_verifier(control: str, room: int) -> None:
    """After each run of letters that the answer may hold, the prompt has one that it may not; with a drafter that has
    room for all of the answer and with one that has to leave the rest to nobody.
    """
    allowed, forbidden = b"ab", ord("x")
    sampling = Sampling(
        max_tokens=LENGTH, temperature=8.0, logit_bias={**dict.fromkeys(allowed, 300.0), forbidden: -100.0, END: -100.0}
    )
    runs = [bytes(allowed[number >> bit & 1] for bit in range(7)) + b"x" for number in range(128)]
    request = request_of(sampling, b"".join(runs))
    alone: list[int] = []

    async def main(cut_s: float) -> None:
        link = STEADY.model_copy(update={"cuts": (Cut(at_s=cut_s, outage_ms=600_000),)})
        async with world() as here:
            drafting = Drafting("tiny+lookup", control)
            inner = TinyDrafter(0.5).open(request.prompt_ids, chooser_of(request))
            sessions = {"tiny": PacedDraft(_SoonFull(inner, room), 20.0)}
            sources = Sources.of(sessions, request, Experience(), drafting.guess_options(), lookup=True)
            info = here.verifier.info()
            setup = AnswerSetup(
                request, info.limits, info.stop_ids, drafting.make_control(), eager=False, goes_on_alone=True
            )
            recovery = Recovery(_Unreachable(here.port, link), Patience(limit_s=2.0), seed=1)
            answer = Answer(setup, here.port.connect(link, seed=1), sources, recovery)
            may_end = contextlib.suppress(OutriderError) if room < LENGTH else contextlib.nullcontext()
            with may_end:
                async with contextlib.aclosing(answer.committed()) as commits:
                    async for tokens in commits:
                        alone.extend(token.token for token in tokens if token.origin is Origin.UNVERIFIED)
            assert answer.is_unverified == (room == LENGTH)
            assert not answer.stats.draft_error

    for tenths in range(2, 12):
        run(main(tenths / 10), limit_s=1000)
    assert len(alone) > room / 2
    assert set(alone) <= set(allowed)
