"""Answers whose streams break: they go on over another stream, at the same verifier or at another one, with the same
text.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from outrider.cloud.parking import ParkingLimits
from outrider.cloud.quotas import Quota, Quotas
from outrider.cloud.targets.tiny import TinyEngine
from outrider.cloud.verifier import Verifier, VerifierConfig
from outrider.edge.answer import Answer
from outrider.edge.recovery import Patience, Recovery
from outrider.harness.inline_target import InlineTarget
from outrider.harness.links import Cut, LinkProfile
from outrider.harness.memory_link import MemoryEdgeLink, MemoryPort
from outrider.harness.virtual_time import run
from outrider.shared.errors import OutriderError, Reason
from outrider.shared.link import EdgeLink
from outrider.shared.messages import (
    CloudMessage,
    Commit,
    Finished,
    FinishReason,
    GoAway,
    Grow,
    Limits,
    Opened,
    Resume,
    TokenHash,
)
from outrider.shared.sampling.options import Sampling
from outrider.shared.tiny import END
from simulation.world import Task, drain, forty_ms, make_answer, target_alone

LONG = Sampling(max_tokens=48, logit_bias={END: -100.0})
SAMPLED = Sampling(max_tokens=48, temperature=0.8, logit_bias={END: -100.0})
STEADY = LinkProfile.of_rtt(40)


@dataclass
class Replicas:
    """Verifiers of one target, as an edge knows them."""

    ports: list[MemoryPort]
    infos: list[Limits]
    link: LinkProfile
    at: int = 0
    down: set[int] = field(default_factory=set)
    found: list[int] = field(default_factory=list)

    @property
    def count(self) -> int:
        return len(self.ports)

    def open_stream(self) -> EdgeLink:
        return self.ports[self.at].connect(self.link, seed=1)

    async def find(self, *, elsewhere: bool) -> Limits:
        for offset in range(self.count):
            index = (self.at + elsewhere + offset) % self.count
            if index not in self.down:
                self.at = index
                self.found.append(index)
                return self.infos[index]
        raise OutriderError(Reason.VERIFIER_UNREACHABLE, "none is there.")

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


@contextlib.asynccontextmanager
async def replicas(
    count: int = 1,
    link: LinkProfile = STEADY,
    slots: int = 2,
    parking: ParkingLimits | None = None,
    quota: Quota | None = None,
) -> AsyncIterator[tuple[Replicas, list[Verifier]]]:
    async with contextlib.AsyncExitStack() as stack:
        verifiers = []
        ports = []
        quotas = Quotas(quota or Quota())
        for _ in range(count):
            target = InlineTarget(TinyEngine(max_slots=slots), forty_ms)
            verifier = Verifier(target, VerifierConfig(parking=parking or ParkingLimits(), quotas=quotas))
            await stack.enter_async_context(verifier.running())
            ports.append(await stack.enter_async_context(MemoryPort.listening(verifier)))
            verifiers.append(verifier)
        yield Replicas(ports, [verifier.info().limits for verifier in verifiers], link), verifiers


def begin(task: Task, here: Replicas, verifier: Verifier, patience: Patience | None = None) -> Answer:
    return make_answer(task, verifier.info(), here.open_stream(), recovery=Recovery(here, patience, seed=1))


TASKS = [
    Task(seed=seed, sampling=sampling, eager=eager, control=control, gamma=4 if control == "fixed" else None)
    for seed, sampling in enumerate((LONG, SAMPLED))
    for eager in (False, True)
    for control in ("fixed", "ratio", "proportional")
]


@pytest.mark.parametrize("task", TASKS)
def test_an_answer_over_a_link_that_is_cut_again_and_again_is_the_targets_own(task: Task) -> None:
    cuts = tuple(Cut(at_s=0.31 * n, edge_notice_ms=20 * (n % 3), cloud_notice_ms=30 * (n % 2)) for n in range(1, 5))

    async def main() -> Answer:
        async with replicas(link=STEADY.model_copy(update={"cuts": cuts})) as (here, [verifier]):
            answer = begin(task, here, verifier)
            assert await drain(answer) == target_alone(task)
            assert verifier.unused_slots == 2
            return answer

    stats = run(main(), limit_s=100).stats
    assert stats.streams > 2


def test_a_session_is_resumed_with_its_cache() -> None:
    """The verifier computes nothing twice: as many prefill passes as without a cut, and the rest is reused."""

    async def main(link: LinkProfile) -> Answer:
        async with replicas(link=link) as (here, [verifier]):
            answer = begin(Task(sampling=LONG), here, verifier)
            await drain(answer)
            return answer

    whole, cut = run(main(STEADY)), run(main(STEADY.model_copy(update={"cuts": (Cut(at_s=0.5),)})))
    assert cut.tree.committed == whole.tree.committed
    assert cut.stats.prefill_passes == whole.stats.prefill_passes
    assert cut.stats.reused_tokens > len(Task().request().prompt_ids)


def test_what_was_committed_while_nobody_listened_is_not_lost() -> None:
    """The commit of the pass that ran when the link broke comes with Opened."""

    async def main() -> tuple[Opened, list[int]]:
        async with replicas() as (here, [_verifier]):
            task = Task(sampling=LONG)
            link = here.open_stream()
            assert isinstance(link, MemoryEdgeLink)
            await link.send(task.request())
            opened = await link.receive()
            assert isinstance(opened, Opened)
            await link.send(Grow(1, 0, run_to=8))
            await asyncio.sleep(0.2)
            link.cut()
            await asyncio.sleep(1)
            prompt = task.request().prompt_ids
            link = here.open_stream()
            await link.send(Resume(opened.session_id, 1, 0, TokenHash(prompt).value))
            resumed = await link.receive()
            assert isinstance(resumed, Opened)
            await link.close()
            return resumed, target_alone(task)

    resumed, alone = run(main())
    assert 0 < len(resumed.missing_ids) < 8, "nothing runs while it is suspended"
    assert list(resumed.missing_ids) == alone[: len(resumed.missing_ids)]


def test_the_highest_attempt_wins_and_the_other_stream_is_told() -> None:
    async def main() -> None:
        async with replicas() as (here, _):
            task = Task(sampling=LONG)
            start = TokenHash(task.request().prompt_ids).value
            first = here.open_stream()
            await first.send(task.request())
            opened = await first.receive()
            assert isinstance(opened, Opened)
            second = here.open_stream()
            await second.send(Resume(opened.session_id, 2, 0, start))
            assert isinstance(await second.receive(), Opened)
            with pytest.raises(OutriderError) as told:
                while await first.receive():
                    pass
            assert told.value.reason is Reason.SUPERSEDED
            for attempt in (1, 2):
                late = here.open_stream()
                await late.send(Resume(opened.session_id, attempt, 0, start))
                with pytest.raises(OutriderError) as refused:
                    await late.receive()
                assert refused.value.reason is Reason.SUPERSEDED
            await second.send(Grow(1, 0, run_to=LONG.max_tokens))
            tokens: list[int] = []
            while not isinstance(message := await second.receive(), Finished):
                tokens += message.tokens if isinstance(message, Commit) else ()
            assert tokens == target_alone(task)
            # Finished may have been lost too: it is said again.
            again = here.open_stream()
            await again.send(Resume(opened.session_id, 3, 0, start))
            reopened = await again.receive()
            assert isinstance(reopened, Opened)
            assert list(reopened.missing_ids) == tokens
            assert await again.receive() == message
            await second.close()
            await again.close()

    run(main())


@pytest.mark.parametrize(
    ("session_id", "length", "text_hash"),
    [("0" * 32, 0, None), (None, 1, None), (None, 0, 12345), (None, 2**32 - 1, None)],
)
def test_a_session_that_is_not_the_edges_is_not_found(
    session_id: str | None, length: int, text_hash: int | None
) -> None:
    async def main() -> None:
        async with replicas() as (here, _):
            task = Task(sampling=LONG)
            first = here.open_stream()
            await first.send(task.request())
            opened = await first.receive()
            assert isinstance(opened, Opened)
            link = here.open_stream()
            start = TokenHash(task.request().prompt_ids).value
            await link.send(
                Resume(session_id or opened.session_id, 1, length, start if text_hash is None else text_hash)
            )
            with pytest.raises(OutriderError) as refused:
                await link.receive()
            assert refused.value.reason is Reason.SESSION_NOT_FOUND
            await first.close()

    run(main())


@pytest.mark.parametrize("task", TASKS[:4])
def test_another_verifier_finishes_what_a_dead_one_began(task: Task) -> None:
    async def main() -> Answer:
        async with replicas(2) as (here, verifiers):
            answer = begin(task, here, verifiers[0])
            decoding = asyncio.create_task(drain(answer))
            await asyncio.sleep(0.7)
            here.down.add(0)
            for link in here.ports[0]._links:
                link.cut()
            here.ports[0].refuse()
            assert await decoding == target_alone(task)
            return answer

    answer = run(main(), limit_s=100)
    assert answer.stats.streams > 1


@pytest.mark.parametrize(("notice_ms", "found", "streams"), [(100, [], 2), (3_000, [1], 2)])
def test_a_session_is_resumed_where_it_is_unless_nothing_was_heard_from_there_for_long(
    notice_ms: float, found: list[int], streams: int
) -> None:
    """To try a verifier that has fallen silent takes seconds more; another one is asked first."""
    cut = Cut(at_s=0.6, edge_notice_ms=notice_ms, cloud_notice_ms=notice_ms)

    async def main() -> None:
        link = STEADY.model_copy(update={"cuts": (cut,)})
        async with replicas(2, link=link) as (here, verifiers):
            task = Task(sampling=LONG)
            answer = begin(task, here, verifiers[0])
            here.link = STEADY
            assert await drain(answer) == target_alone(task)
            assert (here.found, answer.stats.streams) == (found, streams)

    run(main(), limit_s=100)


def test_a_verifier_that_is_told_to_stop_sends_its_edges_on() -> None:
    async def main() -> None:
        async with replicas(2) as (here, verifiers):
            task = Task(sampling=LONG, eager=True)
            answer = begin(task, here, verifiers[0])
            decoding = asyncio.create_task(drain(answer))
            await asyncio.sleep(0.5)
            loop = asyncio.get_running_loop()
            began_s = loop.time()
            await verifiers[0].drain(5)
            assert loop.time() - began_s < 1
            assert await decoding == target_alone(task)
            assert here.found == [1]
            refused = here.ports[0].connect(STEADY, 1)
            await refused.send(task.request())
            with pytest.raises(OutriderError) as told:
                await refused.receive()
            assert told.value.reason is Reason.DRAINING

    run(main(), limit_s=100)


def test_go_away_comes_before_the_last_commit() -> None:
    async def main() -> list[object]:
        async with replicas() as (here, [verifier]):
            link = here.open_stream()
            await link.send(Task(sampling=LONG).request())
            await link.send(Grow(1, 0, run_to=1000))
            await asyncio.sleep(0.3)
            drained = asyncio.create_task(verifier.drain(5))
            said: list[object] = []
            while (message := await link.receive()) is not None:
                said.append(message)
            await link.close()
            await drained
            return said

    said = run(main())
    assert isinstance(said[-2], GoAway)
    assert isinstance(said[-1], Commit), "the running pass was not in vain"


def test_without_any_verifier_the_answer_ends_when_patience_does() -> None:
    async def main() -> float:
        async with replicas() as (here, [verifier]):
            answer = begin(Task(sampling=LONG), here, verifier, Patience(limit_s=7))
            decoding = asyncio.create_task(drain(answer))
            await asyncio.sleep(0.5)
            here.down.add(0)
            for link in here.ports[0]._links:
                link.cut()
            here.ports[0].refuse()
            began_s = asyncio.get_running_loop().time()
            with pytest.raises(OutriderError) as ended:
                await decoding
            assert ended.value.reason is Reason.VERIFIER_UNREACHABLE
            assert answer.tree.committed == target_alone(Task(sampling=LONG))[: answer.tree.committed_length]
            return asyncio.get_running_loop().time() - began_s

    assert 3 < run(main(), limit_s=100) <= 7


def test_suspended_sessions_make_room_for_their_own_caller_and_after_a_while_for_others() -> None:
    from outrider.cloud.principal import Principal

    async def main() -> None:
        async with replicas(slots=1, parking=ParkingLimits(suspended_s=60, grace_s=5)) as (here, [verifier]):
            link = here.open_stream()
            await link.send(Task(sampling=LONG).request())
            assert isinstance(await link.receive(), Opened)
            assert isinstance(link, MemoryEdgeLink)
            link.cut()
            await asyncio.sleep(0.1)
            own, other = Principal("anonymous"), Principal("other")
            assert verifier._parking.give_up(other) is None
            await asyncio.sleep(6)
            assert verifier._parking.give_up(other) is not None
            assert verifier._parking.give_up(own) is None

    run(main())


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("after", [1, 5])
def test_an_answer_that_is_left_early_ends_its_session(task: Task, after: int) -> None:
    """The link may be slow to take Close in: nothing turns in circles meanwhile."""

    async def main() -> None:
        async with replicas() as (here, [verifier]):
            answer = begin(task, here, verifier)
            async with contextlib.aclosing(answer.committed()) as commits:
                for _ in range(after):
                    await anext(commits)
            await asyncio.sleep(1)
            assert verifier.unused_slots == 2

    run(main(), limit_s=100)


class LosesFinished:
    """A link that breaks between the last commit and Finished."""

    def __init__(self, inner: EdgeLink) -> None:
        self._inner = inner
        self.send = inner.send
        self.close = inner.close

    @property
    def sent_bytes(self) -> int:
        return self._inner.sent_bytes

    @property
    def received_bytes(self) -> int:
        return self._inner.received_bytes

    async def receive(self) -> CloudMessage | None:
        message = await self._inner.receive()
        if isinstance(message, Finished):
            raise OutriderError(Reason.VERIFIER_UNREACHABLE, "the connection broke.")
        return message


@pytest.mark.parametrize("is_back", [False, True])
@pytest.mark.parametrize("bias", [-100.0, 30.0])
def test_an_answer_whose_end_is_known_needs_no_further_word(is_back: bool, bias: float) -> None:
    """The last token says that it is complete; a verifier that knows nothing of it could only refuse to go on."""
    task = Task(sampling=Sampling(max_tokens=12, logit_bias={END: bias}))

    async def main() -> Answer:
        async with replicas() as (here, [verifier]):
            link = LosesFinished(here.open_stream())
            answer = make_answer(task, verifier.info(), link, recovery=Recovery(here, Patience(limit_s=1), seed=1))
            if not is_back:
                here.down.add(0)
                here.ports[0].refuse()
            assert await drain(answer) == target_alone(task)
            return answer

    answer = run(main(), limit_s=100)
    assert answer.finish_reason is (FinishReason.STOP if answer.tree.committed[-1] == END else FinishReason.LENGTH)
    assert answer.stats.streams == 1


@pytest.mark.parametrize(("slots", "quota"), [(1, Quota()), (2, Quota(sessions=1))])
def test_an_answer_without_room_waits_for_some(slots: int, quota: Quota) -> None:
    """Whether the verifier has no slot or the caller has all that it may."""
    tasks = [Task(seed=seed, sampling=Sampling(max_tokens=12, logit_bias={END: -100.0})) for seed in range(2)]

    async def main() -> list[int]:
        async with replicas(slots=slots, quota=quota) as (here, [verifier]):
            answers = [begin(task, here, verifier) for task in tasks]
            assert await asyncio.gather(*map(drain, answers)) == [target_alone(task) for task in tasks]
            return sorted(answer.stats.streams for answer in answers)

    assert run(main(), limit_s=100)[1] > 1
