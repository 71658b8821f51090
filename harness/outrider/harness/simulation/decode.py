"""The edges of a run: every session is the product's own `Answer` over a link, with the recorded drafter. Which clock
and which kind of link it runs on is somebody else's.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count

from outrider.edge.answer import Answer, AnswerSetup
from outrider.edge.guesses.experience import Experience
from outrider.edge.guesses.sources import open_sources
from outrider.edge.recovery import Recovery
from outrider.harness.recording.format import Recording
from outrider.harness.replay_drafter import DeviceClock, ReplayDrafter
from outrider.harness.simulation.measures import AnswerTrace, Run
from outrider.harness.simulation.setup import Setup
from outrider.harness.usage import PassRecord
from outrider.shared.errors import OutriderError
from outrider.shared.link import EdgeLink
from outrider.shared.messages import Limits, VerifierInfo
from outrider.shared.token_tree import Origin

# Sessions start within this time, so that they do not march in step.
STAGGER_S = 1.0
_GOLDEN = 0.6180339887498949

OpenLink = Callable[[int], EdgeLink]
"""A new stream for a session, by its number."""


MakeDevice = Callable[[Setup], Sequence[ReplayDrafter]]
"""The drafters of the device of one session; they share its clock."""


def replaying_device(setup: Setup) -> Sequence[ReplayDrafter]:
    """A device that says what was recorded, in the setup's times."""
    clock = DeviceClock(setup.device.draft_ms)
    return [ReplayDrafter(recordings, clock) for recordings in (setup.recordings, *setup.further_recordings)]


async def decode(
    setup: Setup,
    info: VerifierInfo,
    open_link: OpenLink,
    passes: list[PassRecord],
    make_device: MakeDevice = replaying_device,
) -> Run:
    """Let all sessions answer until each has done its quota; those that are ahead go on with further answers, so that
    the load stays what it was. `passes` is what the target adds to.

    Raises what the product raises.
    """
    edges = [_Edge(setup, info, number, open_link, make_device(setup)) for number in range(setup.sessions)]
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(edge.run(), name=f"session-{edge.number}") for edge in edges]
            for edge in edges:
                await edge.quota_done.wait()
            for task in tasks:
                task.cancel()
    except ExceptionGroup as group_error:
        raise first_error(group_error) from None
    return Run(
        answers=tuple(trace for edge in edges for trace in edge.traces),
        passes=passes,
        guesses=[guess for edge in edges for guess in edge.guesses],
        other_tokens=sum(edge.other_tokens for edge in edges),
        other_accepted=sum(edge.other_accepted for edge in edges),
    )


def stagger_s(session: int) -> float:
    """When a session, by its number, starts."""
    return STAGGER_S * (session * _GOLDEN % 1.0)


def first_error(group: ExceptionGroup[Exception]) -> Exception:
    """The error to tell of several."""
    typed, _ = group.split(OutriderError)
    error: Exception = typed or group
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


class _Edge:
    """One device, which answers one prompt after the other."""

    def __init__(
        self, setup: Setup, info: VerifierInfo, number: int, open_link: OpenLink, device: Sequence[ReplayDrafter]
    ) -> None:
        self.number = number
        self.guesses = device[0].clock.guesses
        self.quota_done = asyncio.Event()
        self.traces: list[AnswerTrace] = []
        self.other_tokens = self.other_accepted = 0
        self._setup = setup
        self._info = info
        self._open_link = open_link
        self._drafters = {drafter.name: drafter for drafter in device} if setup.drafts else {}
        self._experience = Experience()

    async def run(self) -> None:
        """Answer until cancelled."""
        await asyncio.sleep(stagger_s(self.number))
        judged = self._setup.judged(self.number)
        for answer in count():
            if answer == judged:
                self.quota_done.set()
                if self._setup.sessions == 1:
                    return
            await self._answer(self._setup.recording(self.number, answer), is_judged=answer < judged)

    async def _answer(self, recording: Recording, is_judged: bool) -> None:
        loop = asyncio.get_running_loop()
        request = recording.open_request(self._setup.max_tokens)
        drafting = self._setup.drafting
        sources = open_sources(
            self._drafters,
            request,
            recording.header.vocabulary.size,
            self._experience,
            drafting.guess_options(),
            lookup=drafting.has_lookup,
        )
        answer = Answer(
            AnswerSetup(
                request=request,
                limits=self._info.limits,
                stop_ids=self._info.stop_ids,
                control=drafting.make_control(self._experience.bandit),
                eager=self._setup.is_eager,
            ),
            self._open_link(self.number),
            sources,
            self._recovery(),
        )
        asked_s = loop.time()
        updates: list[tuple[float, int]] = []
        accepted = 0
        try:
            async with contextlib.aclosing(answer.committed()) as commits:
                async for tokens in commits:
                    updates.append((loop.time(), len(tokens)))
                    accepted += sum(token.origin is Origin.DRAFTED for token in tokens)
        finally:
            trace = AnswerTrace(recording.header.id, asked_s, tuple(updates), accepted, answer.stats)
            if is_judged:
                self.traces.append(trace)
            else:
                self.other_tokens += trace.token_count
                self.other_accepted += accepted

    def _recovery(self) -> Recovery | None:
        """The way back after the link's cuts; a stream that breaks without one ends the run."""
        if not self._setup.link.cuts:
            return None
        verifier = _OneVerifier(self._info.limits, partial(self._open_link, self.number))
        return Recovery(verifier, seed=self._setup.seed)


class _OneVerifier:
    """The only verifier there is; see `Verifiers` in the edge's `recovery`."""

    count = 1

    def __init__(self, limits: Limits, open_stream: Callable[[], EdgeLink]) -> None:
        self._limits = limits
        self.open_stream = open_stream

    async def find(self, *, elsewhere: bool) -> Limits:
        """See `Verifiers.find`."""
        return self._limits

    async def pause(self, seconds: float) -> None:
        """See `Verifiers.pause`."""
        await asyncio.sleep(seconds)
