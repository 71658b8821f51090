"""Several callers over one verifier on the virtual clock: shares of passes, tokens a second, edges that do not read."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.cloud.principal import Principal
from outrider.cloud.quotas import Quota, Quotas
from outrider.cloud.scheduler import PassLimits, Scheduler
from outrider.cloud.session import SessionLimits
from outrider.cloud.targets.tiny import TinyEngine
from outrider.cloud.verifier import Verifier, VerifierConfig
from outrider.edge.answer import Answer
from outrider.harness.inline_target import InlineTarget
from outrider.harness.links import LinkProfile
from outrider.harness.memory_link import MemoryPort
from outrider.harness.virtual_time import run
from outrider.shared.errors import OutriderError, Reason
from outrider.shared.link import CloudLink
from outrider.shared.messages import CloudMessage, Commit, EdgeMessage, Finished, Grow, Open
from outrider.shared.sampling.options import Sampling
from outrider.shared.tiny import END
from simulation.world import Task, drain, make_answer, target_alone

PASS_MS, RTT_MS = 40.0, 20.0
LINK = LinkProfile.of_rtt(RTT_MS)
LONG = Sampling(max_tokens=1000, logit_bias={END: -100.0})


class As:
    """The verifier as one caller finds it."""

    def __init__(self, verifier: Verifier, name: str) -> None:
        self._verifier = verifier
        self._principal = Principal(name)

    async def serve(self, link: CloudLink) -> None:
        """See `Verifier.serve`."""
        await self._verifier.serve(link, self._principal)


@contextlib.asynccontextmanager
async def verifier_for(
    names: Sequence[str], config: VerifierConfig, slots: int, pass_ms: float = PASS_MS
) -> AsyncIterator[tuple[Verifier, dict[str, MemoryPort]]]:
    """A verifier inside the context, and where each caller reaches it."""
    target = InlineTarget(TinyEngine(max_slots=slots, context_length=2048), lambda rows, sessions: pass_ms)
    verifier = Verifier(target, config)
    async with verifier.running(), contextlib.AsyncExitStack() as stack:
        ports = {name: await stack.enter_async_context(MemoryPort.listening(As(verifier, name))) for name in names}
        yield verifier, ports


async def stream(port: MemoryPort, seed: int, seconds: float) -> list[float]:
    """When the tokens came of an eager answer without guesses that is left after so long."""
    loop, link, times = asyncio.get_running_loop(), port.connect(LINK, seed), list[float]()
    await link.send(replace(Task(seed=seed, sampling=LONG).request()))
    await link.send(Grow(1, 0, run_to=1000))
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while not isinstance(message := await link.receive(), Finished):
                times += [loop.time()] * len(message.tokens) if isinstance(message, Commit) else []
    await link.close()
    return times


def stream_all(
    counts: dict[str, int], config: VerifierConfig, seconds: float = 10.0, pass_ms: float = PASS_MS
) -> dict[str, list[list[float]]]:
    """So many streams of each caller at once; when the tokens of each came."""

    async def main() -> dict[str, list[list[float]]]:
        seeds = itertools.count()
        async with verifier_for(list(counts), config, sum(counts.values()), pass_ms) as (_, ports):
            names = [name for name, count in counts.items() for _ in range(count)]
            streams = [stream(ports[name], next(seeds), seconds) for name in names]
            times: dict[str, list[list[float]]] = {name: [] for name in counts}
            for name, came in zip(names, await asyncio.gather(*streams), strict=True):
                times[name].append(came)
            return times

    return run(main(), limit_s=200.0)


def steady(times: list[list[float]]) -> list[list[float]]:
    """What came once all prompts had been read."""
    return [[when for when in each if when > 4.0] for each in times]


def config_of(max_rows: int = 512, quotas: dict[str, Quota] | None = None, **session: float) -> VerifierConfig:
    limits = SessionLimits(max_run_ahead=2000, **session)  # type: ignore[arg-type]
    return VerifierConfig(PassLimits(max_rows=max_rows), limits, quotas=Quotas(principals=quotas or {}))


def test_one_caller_with_many_sessions_does_not_slow_down_another_with_one() -> None:
    times = stream_all({"greedy": 50, "modest": 1}, config_of(max_rows=16))
    (modest,) = steady(times["modest"])
    gaps = [after - before for before, after in pairwise(modest)]
    assert max(gaps) == pytest.approx(PASS_MS / 1000), "it is in every pass"
    counts = [len(each) for each in steady(times["greedy"])]
    assert sum(counts) == pytest.approx(15 * len(modest), abs=15), "nothing of the passes is wasted"
    assert max(counts) - min(counts) <= 2, "and the others' turns are as they were"


def test_shares_go_by_weight_where_there_is_no_room_for_all() -> None:
    quotas = {"heavy": Quota(weight=3), "light": Quota(weight=1)}
    times = stream_all({"heavy": 20, "light": 20}, config_of(8, quotas))
    heavy, light = (sum(map(len, steady(times[name]))) for name in ("heavy", "light"))
    assert heavy / light == pytest.approx(3.0, rel=0.02)


def test_with_room_for_all_weights_make_no_difference() -> None:
    quotas = {"heavy": Quota(weight=100), "light": Quota(weight=0.01)}
    times = stream_all({"heavy": 5, "light": 5}, config_of(512, quotas))
    assert len({tuple(each) for group in times.values() for each in group}) == 1


def test_tokens_a_second_slow_a_caller_down_to_its_rate_and_nobody_else() -> None:
    quotas = {"slow": Quota(tokens_per_s=20, burst_tokens=40)}
    times = stream_all({"slow": 4, "fast": 1}, config_of(512, quotas), seconds=10.0, pass_ms=10.0)
    slow = sorted(itertools.chain(*times["slow"]))
    # Half a round trip passes before the bucket is first asked, and half before a token is seen.
    assert len(slow) == pytest.approx(40 + 20 * 10, abs=3)
    counts = [len(each) for each in times["slow"]]
    assert max(counts) - min(counts) <= 4, "its sessions share what there is"
    (fast,) = times["fast"]
    assert len(fast) > 950


def test_a_verifier_that_waits_for_a_bucket_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two looks a token: one that makes a pass, one that finds the bucket empty."""
    looks = 0
    hold_s = Scheduler._hold_s

    def counted(self: Scheduler) -> float | None:
        nonlocal looks
        looks += 1
        return hold_s(self)

    monkeypatch.setattr(Scheduler, "_hold_s", counted)
    times = stream_all({"slow": 10}, config_of(512, {"slow": Quota(tokens_per_s=5)}), seconds=20.0)
    tokens = sum(map(len, times["slow"]))
    assert tokens == pytest.approx(105, abs=3)
    assert looks < 3 * tokens + 50


class _Deaf:
    """An edge that asks for everything and reads nothing: writing to it blocks."""

    def __init__(self, request: Open) -> None:
        self._messages: list[EdgeMessage] = [request, Grow(1, 0, run_to=2000)]
        self.taken = 0
        self.last_s = 0.0
        self.reads = asyncio.Event()

    async def receive(self) -> EdgeMessage | None:
        """See `CloudLink.receive`."""
        if not self._messages:
            await asyncio.get_running_loop().create_future()
        return self._messages.pop(0)

    async def send(self, message: CloudMessage) -> None:
        """See `CloudLink.send`."""
        await self.reads.wait()
        if isinstance(message, Commit):
            self.taken += 1
            self.last_s = asyncio.get_running_loop().time()


def test_an_edge_that_does_not_read_is_decoded_no_further_and_then_ended() -> None:
    async def main() -> tuple[int, int, float, Reason]:
        loop = asyncio.get_running_loop()
        async with verifier_for([], config_of(max_unread=10, send_limit_s=30.0), 1) as (verifier, _):
            link = _Deaf(Task(sampling=LONG).request())
            served = asyncio.create_task(verifier.serve(link))
            await asyncio.sleep(20.0)
            (session,) = verifier._sessions
            assert session.outbox is not None
            passes, waiting = verifier._scheduler.passes, session.outbox.qsize()
            with pytest.raises(OutriderError) as caught:
                await served
            assert verifier._scheduler.passes == passes
            return passes, waiting, loop.time(), caught.value.reason

    passes, waiting, ended_s, reason = run(main(), limit_s=200.0)
    assert waiting == 10
    assert passes == 10
    assert reason is Reason.SESSION_IDLE
    assert ended_s == pytest.approx(30.0)


@pytest.mark.parametrize("max_unread", [1, 2, 64])
def test_an_edge_that_reads_late_misses_nothing(max_unread: int) -> None:
    async def main() -> tuple[int, float]:
        async with verifier_for([], config_of(max_unread=max_unread), 1) as (verifier, _):
            link = _Deaf(replace(Task(sampling=LONG).request(), max_tokens=300))
            served = asyncio.create_task(verifier.serve(link))
            await asyncio.sleep(10.0)
            link.reads.set()
            await served
            return link.taken, link.last_s

    taken, ended_s = run(main(), limit_s=200.0)
    assert taken == 300
    assert ended_s == pytest.approx(10.0 + (300 - max_unread) * PASS_MS / 1000, abs=0.2)


class _StuckTarget(InlineTarget):
    """Its first pass takes 300 seconds."""

    def __init__(self) -> None:
        super().__init__(TinyEngine(), lambda rows, sessions: 300_000.0)


def test_a_pass_that_takes_too_long_is_told_of_and_so_is_its_end() -> None:
    async def main() -> list[float]:
        verifier = Verifier(_StuckTarget(), VerifierConfig(PassLimits(pass_limit_s=120.0)))
        times, loop = list[float](), asyncio.get_running_loop()
        async with verifier.running(), MemoryPort.listening(verifier) as port:
            link = port.connect(LINK, 1)
            await link.send(Task(sampling=LONG).request())
            await link.send(Grow(1, 0, run_to=1))
            began_s = loop.time() + RTT_MS / 2000
            for is_serving in (True, False):
                assert await verifier.vitals.serving_is_not(is_serving) is not is_serving
                times.append(loop.time() - began_s)
            await link.close()
            return times

    assert run(main(), limit_s=2000.0) == pytest.approx([120.0, 300.0], abs=0.02)


@given(
    max_rows=st.integers(1, 40),
    throttle_rows=st.none() | st.integers(1, 20),
    max_unread=st.sampled_from([1, 3, 64]),
    quotas=st.lists(
        st.builds(
            Quota,
            weight=st.floats(0.1, 10),
            live_nodes=st.sampled_from([None, 1000]),
            tokens_per_s=st.sampled_from([None, 3.0, 50.0]),
        ),
        min_size=1,
        max_size=3,
    ),
    tasks=st.lists(
        st.builds(
            Task,
            seed=st.integers(0, 2**32),
            sampling=st.sampled_from([Sampling(max_tokens=16), Sampling(max_tokens=24, temperature=0.8)]),
            eager=st.booleans(),
            control=st.sampled_from(["fixed", "ratio"]),
            deviation=st.sampled_from([0.0, 0.5, 50.0]),
            draft_ms=st.sampled_from([1.0, 8.0]),
        ),
        min_size=1,
        max_size=6,
    ),
)
@settings(max_examples=20, deadline=None)
def test_under_any_quotas_each_answer_is_the_targets_own(
    max_rows: int, throttle_rows: int | None, max_unread: int, quotas: list[Quota], tasks: list[Task]
) -> None:
    named = {f"caller {number}": quota for number, quota in enumerate(quotas)}
    config = VerifierConfig(
        PassLimits(max_rows=max_rows, throttle_rows=throttle_rows),
        SessionLimits(max_unread=max_unread),
        quotas=Quotas(principals=named),
    )

    async def main() -> list[Answer]:
        async with verifier_for(list(named), config, len(tasks)) as (verifier, ports):
            chosen = zip(tasks, itertools.cycle(ports.values()), strict=False)
            answers = [make_answer(task, verifier.info(), port.connect(LINK, task.seed)) for task, port in chosen]
            await asyncio.gather(*map(drain, answers))
            return answers

    for task, answer in zip(tasks, run(main(), limit_s=500.0), strict=True):
        assert answer.tree.committed == target_alone(task), task
        answer.tree.check_integrity()
