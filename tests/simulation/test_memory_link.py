"""The link in memory has the semantics of the gRPC one: bytes, ends, errors, cuts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from outrider.cloud.targets.tiny import TinyEngine
from outrider.edge.link import ANSWER_TIMEOUT_S, VerifierClient
from outrider.harness.links import Cut, Direction, LinkProfile, Stall
from outrider.harness.memory_link import Flight, MemoryEdgeLink, MemoryPort, connect
from outrider.harness.virtual_time import run
from outrider.shared.convert import PROMPT_PART_IDS, edge_message_to_pb
from outrider.shared.errors import OutriderError, Reason
from outrider.shared.link import CloudLink, EdgeLink
from outrider.shared.messages import (
    Close,
    CloudMessage,
    Commit,
    EdgeMessage,
    Finished,
    FinishReason,
    Grow,
    Open,
    Opened,
)
from outrider.shared.sampling.options import Sampling
from simulation.world import Task, drain, make_answer, world
from support.refusal import refused
from support.serving import serving

OPEN = Open((257, 104, 105, 258), Sampling(max_tokens=40), 3, 40)
OPENED = Opened("0" * 32, 0, 7, 256, 40)
TWENTY = LinkProfile.of_rtt(20)


class Script:
    """A server that does what a test says."""

    def __init__(self, play: Callable[[CloudLink], Awaitable[None]]) -> None:
        self._play = play

    async def serve(self, link: CloudLink) -> None:
        """See `Server.serve`."""
        await self._play(link)


def now() -> float:
    return asyncio.get_running_loop().time()


def played(
    play: Callable[[CloudLink], Awaitable[None]],
    main: Callable[[MemoryEdgeLink], Awaitable[None]],
    profile: LinkProfile = TWENTY,
) -> None:
    """Run both ends of one stream on a virtual clock."""

    async def both() -> None:
        async with MemoryPort.listening(Script(play)) as port:
            link = port.connect(profile, 1)
            await main(link)
            await link.close()

    run(both())


def test_messages_of_all_kinds_arrive_as_they_were_after_one_way() -> None:
    up: list[EdgeMessage] = [OPEN, Grow(1, 0, (0, 1, 1), (5, 6, 7), 9), Grow(4, 2), Close()]
    down: list[CloudMessage] = [
        OPENED, Commit(0, 2, (8,), 3, 99, 2, 5, 6, 70, (0.5, 0.25)), Finished(FinishReason.STOP, 3, 1),
    ]  # fmt: skip
    got: list[tuple[EdgeMessage | None, float]] = []

    async def play(link: CloudLink) -> None:
        for _ in up:
            got.append((await link.receive(), now()))
        for message in down:
            await link.send(message)

    async def main(link: MemoryEdgeLink) -> None:
        for message in up:
            await link.send(message)
        answers = [(await link.receive(), now()) for _ in down]
        assert answers == [(message, 0.02) for message in down]
        assert await link.receive() is None
        assert await link.receive() is None, "an end is an end"
        assert link.sent_bytes == sum(part.ByteSize() for message in up for part in edge_message_to_pb(message))
        assert link.received_bytes > 0
        assert link.overhead_bytes == 66 * (len(up) + len(down))

    played(play, main)
    assert got == [(message, 0.01) for message in up]


def test_a_long_prompt_travels_in_parts() -> None:
    prompt = tuple(n % 250 for n in range(2 * PROMPT_PART_IDS + 5))
    flights: list[Flight] = []

    async def play(link: CloudLink) -> None:
        message = await link.receive()
        assert isinstance(message, Open)
        assert message.prompt_ids == prompt

    async def main() -> None:
        async with MemoryPort.listening(Script(play)) as port:
            link = port.connect(LinkProfile(up_mbit=1), 1, flights.append)
            await link.send(Open(prompt, Sampling(), 1, 40))
            assert await link.receive() is None
            assert now() == pytest.approx((link.sent_bytes + 3 * 66) * 8e-6)
            await link.close()

    run(main())
    assert [flight.direction for flight in flights] == [Direction.UP] * 3
    assert sum(flight.size_bytes for flight in flights) > len(prompt)


def test_messages_sent_at_once_and_through_jitter_stay_in_order() -> None:
    profile = LinkProfile.of_rtt(
        40, jitter="exponential", jitter_ms=15, jitter_slot_ms=1, up_mbit=0.5,
        loss_probability=0.1, loss_stall_ms=50, stalls=(Stall(at_s=0.1, length_ms=30, every_s=0.2),),
    )  # fmt: skip
    got: list[int] = []

    async def play(link: CloudLink) -> None:
        while isinstance(message := await link.receive(), Grow):
            got.append(message.first_id)

    async def main(link: MemoryEdgeLink) -> None:
        for first_id in range(1, 400):
            await link.send(Grow(first_id, 0))
            await asyncio.sleep(0.001 * (first_id % 3))
        await link.send(Close())
        assert await link.receive() is None

    played(play, main, profile)
    assert got == list(range(1, 400))


def test_close_lets_what_was_sent_arrive_and_ends_the_other_side() -> None:
    got: list[object] = []

    async def play(link: CloudLink) -> None:
        while (message := await link.receive()) is not None:
            got.append(message)
        got.append(now())
        await link.send(OPENED)

    async def main(link: MemoryEdgeLink) -> None:
        await link.send(OPEN)
        await link.close()
        await link.close()
        sent_bytes = link.sent_bytes
        await link.send(Close())
        assert link.sent_bytes > sent_bytes, "as over gRPC: counted, and dropped"
        assert await link.receive() is None

    played(play, main)
    assert got == [OPEN, 0.01]


def test_close_wakes_a_reader() -> None:
    async def play(link: CloudLink) -> None:
        await link.receive()

    async def main(link: MemoryEdgeLink) -> None:
        reading = asyncio.create_task(link.receive())
        await asyncio.sleep(1)
        await link.close()
        assert await reading is None

    played(play, main)


def test_an_error_of_the_verifier_comes_after_what_it_sent() -> None:
    async def play(link: CloudLink) -> None:
        await link.receive()
        await link.send(OPENED)
        raise OutriderError(Reason.CAPACITY_EXHAUSTED, "4 sessions are open.", retry_after_s=1.5)

    async def main(link: MemoryEdgeLink) -> None:
        await link.send(OPEN)
        assert await link.receive() == OPENED
        for _ in range(2):
            with refused(Reason.CAPACITY_EXHAUSTED, "says: All sessions are taken", "4 sessions are open.") as _:
                await link.receive()
        await link.send(Grow(1, 0))
        with pytest.raises(OutriderError) as caught:
            await link.receive()
        assert (caught.value.from_peer, caught.value.retry_after_s) == (True, 1.5)

    played(play, main)


def test_a_fault_of_the_verifier_reaches_the_edge_without_its_text() -> None:
    async def play(link: CloudLink) -> None:
        raise ValueError("secret")

    async def main(link: MemoryEdgeLink) -> None:
        with refused(Reason.INTERNAL, "Incident") as _:
            await link.receive()
        with pytest.raises(OutriderError) as caught:
            await link.receive()
        assert "secret" not in caught.value.message

    played(play, main)


@pytest.mark.parametrize(("edge_ms", "cloud_ms"), [(0, 0), (0, 400), (700, 0)])
def test_a_cut_loses_what_flies_and_each_side_sees_the_end_after_its_notice(edge_ms: float, cloud_ms: float) -> None:
    seen: list[object] = []

    async def play(link: CloudLink) -> None:
        seen.append(await link.receive())
        await link.send(OPENED)
        await asyncio.sleep(0.085)
        await link.send(Commit(0, 0, (1,), 1, 1))
        seen.append(await link.receive())
        seen.append(now())

    async def main(link: MemoryEdgeLink) -> None:
        await link.send(OPEN)
        assert await link.receive() == OPENED
        await asyncio.sleep(0.075)
        await link.send(Grow(1, 0))
        with refused(Reason.VERIFIER_UNREACHABLE, "broke"):
            await link.receive()
        assert now() == pytest.approx(0.1 + edge_ms / 1000)

    cut = Cut(at_s=0.1, edge_notice_ms=edge_ms, cloud_notice_ms=cloud_ms)
    played(play, main, TWENTY.model_copy(update={"cuts": (cut,)}))
    assert seen == [OPEN, None, pytest.approx(0.1 + cloud_ms / 1000)]


def test_what_had_arrived_before_a_cut_can_still_be_read() -> None:
    async def play(link: CloudLink) -> None:
        await link.send(OPENED)
        await link.receive()

    async def main(link: MemoryEdgeLink) -> None:
        await asyncio.sleep(1)
        link.cut()
        assert await link.receive() == OPENED
        with refused(Reason.VERIFIER_UNREACHABLE):
            await link.receive()

    played(play, main)


def test_during_an_outage_new_streams_break_at_once_and_later_ones_live() -> None:
    profile = TWENTY.model_copy(update={"cuts": (Cut(at_s=1, outage_ms=500),)})

    async def play(link: CloudLink) -> None:
        await link.receive()

    async def main() -> None:
        async with MemoryPort.listening(Script(play)) as port:
            for at_s, lives in ((0.5, True), (1.2, False), (1.6, True)):
                await asyncio.sleep(at_s - now())
                link = port.connect(profile, 1)
                await link.send(OPEN)
                if lives:
                    assert await link.receive() is None
                else:
                    with refused(Reason.VERIFIER_UNREACHABLE):
                        await link.receive()
                await link.close()

    run(main())


def test_silence_has_a_limit() -> None:
    async def play(link: CloudLink) -> None:
        await link.receive()

    async def main(link: MemoryEdgeLink) -> None:
        with refused(Reason.VERIFIER_UNREACHABLE, "no word"):
            await link.receive()
        assert now() == ANSWER_TIMEOUT_S

    played(play, main)


def test_a_port_that_closes_ends_streams_that_will_not() -> None:
    ended: list[float] = []

    async def play(link: CloudLink) -> None:
        try:
            await asyncio.sleep(1e5)
        finally:
            ended.append(now())

    async def main() -> None:
        async with MemoryPort.listening(Script(play)) as port:
            link = port.connect(TWENTY, 1)
        with refused(Reason.VERIFIER_UNREACHABLE, "stopped"):
            await link.receive()

    run(main())
    assert ended == [30.0]


def test_connect_runs_the_verifiers_own_serve() -> None:
    async def main() -> None:
        async with world() as here:
            link = connect(here.verifier, TWENTY, 1)
            assert link.served is not None
            await link.send(Grow(1, 0))
            with refused(Reason.OPEN_EXPECTED, "got Grow"):
                await link.receive()
            await link.served

    run(main())


async def exchange(link: EdgeLink, messages: list[EdgeMessage]) -> tuple[list[object], int]:
    """Send all, read to the end or the last word; kinds and errors that came, and the bytes sent."""
    came: list[object] = []
    for message in messages:
        await link.send(message)
    try:
        while (answer := await link.receive()) is not None:
            if isinstance(answer, Finished):
                came.append(answer.reason)
                break
            came.append(type(answer))
    except OutriderError as error:
        came.append((error.reason, error.from_peer, error.retry_after_s, error.detail.rpartition("says: ")[2]))
    sent_bytes = link.sent_bytes
    await link.close()
    return came, sent_bytes


CONVERSATIONS: dict[str, list[EdgeMessage]] = {
    "close": [OPEN, Close()],
    "guesses": [Open((257, 104, 258), Sampling(max_tokens=3), 3, 3), Grow(1, 0, (0, 1, 2), (32, 101, 116), 40)],
    "no open": [Close()],
    "two opens": [OPEN, OPEN],
    "duplicate": [OPEN, Grow(1, 0, (0, 0), (5, 5))],
    "bad first id": [OPEN, Grow(4, 0, (0,), (5,))],
    "bad id": [OPEN, Grow(1, 0, (0,), (70_000,))],
    "no prompt": [Open((), Sampling(), 3, 40)],
    "unknown feature": [Open((1,), Sampling(), 3, 40, required_features=("teleport",))],
}


@pytest.mark.parametrize("name", CONVERSATIONS)
async def test_a_conversation_goes_as_it_does_over_grpc(name: str) -> None:
    messages = CONVERSATIONS[name]
    async with serving(TinyEngine()) as address:
        client = VerifierClient(address)
        over_grpc = await exchange(client.open_stream(), messages)
        await client.close()

    async def main() -> tuple[list[object], int]:
        async with world() as here:
            return await exchange(here.port.connect(TWENTY, 1), messages)

    in_memory = await asyncio.get_running_loop().run_in_executor(None, run, main())
    assert in_memory == over_grpc


async def test_an_answer_sends_the_same_bytes_as_over_grpc() -> None:
    """The agent's own loop over both links, with fixed and patient drafting, whose messages no timing changes."""
    task = Task(seed=9, sampling=Sampling(max_tokens=60, temperature=0.7), draft_ms=0)
    async with serving(TinyEngine()) as address:
        client = VerifierClient(address)
        over_grpc = make_answer(task, await client.get_info(), client.open_stream())
        await drain(over_grpc)
        await client.close()

    async def main() -> list[object]:
        async with world() as here:
            answer = await here.answer(task, LinkProfile.of_rtt(150, up_mbit=0.1))
            return [answer.tree.committed, *facts(answer.stats)]

    def facts(stats: object) -> list[object]:
        names = ("passes", "drafted", "rounds", "uplink_bytes", "accepted_histogram", "grow_payload_bytes")
        return [getattr(stats, name) for name in names]

    in_memory = await asyncio.get_running_loop().run_in_executor(None, run, main())
    assert in_memory == [over_grpc.tree.committed, *facts(over_grpc.stats)]
