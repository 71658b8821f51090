"""The product on a virtual clock with tiny models: the agent's and the verifier's own code over a simulated link."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

from outrider.cloud.session import SessionLimits
from outrider.cloud.targets.tiny import TinyEngine
from outrider.cloud.verifier import Verifier, VerifierConfig
from outrider.edge.answer import Answer, AnswerSetup
from outrider.edge.drafters.tiny import TinyDrafter
from outrider.edge.drafting import Drafting
from outrider.edge.guesses.draft_temperature import AUTO
from outrider.edge.guesses.experience import Experience
from outrider.edge.guesses.sources import Sources
from outrider.edge.recovery import Recovery
from outrider.harness import tiny_answers
from outrider.harness.inline_target import InlineTarget, PassCost
from outrider.harness.links import LinkProfile
from outrider.harness.memory_link import MemoryPort, Observer
from outrider.harness.tiny_answers import PacedDraft, chooser_of
from outrider.shared.link import EdgeLink
from outrider.shared.messages import Open, VerifierInfo
from outrider.shared.sampling.options import Sampling


def forty_ms(rows: int, sessions: int) -> float:
    """A 70B target on four A100."""
    return 40.0 + 0.19 * max(0, rows - 90) + 0.04 * (sessions - 1)


@dataclass(frozen=True)
class Task:
    """One answer to decode. There is a drafter for each deviation (0 is always right), and a step of each takes
    `draft_ms`; `extras` are the other parts of a drafter's description, such as a lookup.
    """

    seed: int = 1
    sampling: Sampling = field(default_factory=lambda: Sampling(max_tokens=40))
    gamma: int | None = None
    branch: int | None = None
    eager: bool = False
    deviation: float = 0.5
    draft_ms: float = 8.0
    control: str = "fixed"
    further_deviations: tuple[float, ...] = ()
    extras: tuple[str, ...] = ()
    draft_temperature: float | str = AUTO

    def drafting(self) -> Drafting:
        """How it is drafted."""
        return Drafting(
            drafter="+".join(("tiny", *self.extras)),
            control=self.control,
            gamma=self.gamma,
            branch=self.branch,
            pace="eager" if self.eager else "patient",
            draft_temperature=self.draft_temperature,
        )

    def request(self, committed_ids: Sequence[int] = ()) -> Open:
        """Its Open message."""
        prompt = (257, *b"seed %d" % self.seed, 256, 258)
        return Open(prompt, self.sampling, self.seed, self.sampling.max_tokens, tuple(committed_ids))


def target_alone(task: Task) -> list[int]:
    """The answer without any of the product around the model."""
    return tiny_answers.target_alone(task.request())


def make_answer(
    task: Task,
    info: VerifierInfo,
    link: EdgeLink,
    committed_ids: Sequence[int] = (),
    experience: Experience | None = None,
    recovery: Recovery | None = None,
) -> Answer:
    """The agent's own loop over `link`, with tiny drafters."""
    request, drafting = task.request(committed_ids), task.drafting()
    sessions = {
        f"tiny-{deviation:g}": PacedDraft(
            TinyDrafter(deviation).open(request.prompt_ids, chooser_of(request)), task.draft_ms
        )
        for deviation in (task.deviation, *task.further_deviations)
    }
    setup = AnswerSetup(request, info.limits, info.stop_ids, drafting.make_control(), task.eager)
    sources = Sources.of(
        sessions, request, experience or Experience(), drafting.guess_options(), lookup=drafting.has_lookup
    )
    return Answer(setup, link, sources, recovery)


async def drain(answer: Answer) -> list[int]:
    """Run `answer` to its end; what it committed."""
    async with contextlib.aclosing(answer.committed()) as commits:
        async for _ in commits:
            pass
    return list(answer.tree.committed)


@dataclass
class World:
    """A verifier over the tiny model and a port to it."""

    verifier: Verifier
    port: MemoryPort

    async def answer(
        self,
        task: Task,
        profile: LinkProfile,
        observer: Observer | None = None,
        experience: Experience | None = None,
    ) -> Answer:
        """Decode `task` to its end."""
        link = self.port.connect(profile, task.seed, observer)
        answer = make_answer(task, self.verifier.info(), link, experience=experience)
        await drain(answer)
        return answer


@contextlib.asynccontextmanager
async def world(slots: int = 4, pass_ms: PassCost = forty_ms, lookup_nodes: int = 0) -> AsyncIterator[World]:
    """Run a verifier inside the context."""
    config = VerifierConfig(session=SessionLimits(lookup_nodes=lookup_nodes))
    verifier = Verifier(InlineTarget(TinyEngine(max_slots=slots), pass_ms), config)
    async with verifier.running(), MemoryPort.listening(verifier) as port:
        yield World(verifier, port)
