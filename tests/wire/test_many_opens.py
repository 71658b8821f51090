"""Far more opens than there are places: the surplus is refused at once, with different times to retry."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator
from typing import Any, NoReturn

import grpc
import pytest

from outrider.cloud import service
from outrider.cloud.session import Session
from outrider.cloud.targets.tiny import TinyEngine
from outrider.edge.link import error_of_status
from outrider.shared.errors import OutriderError, Reason
from outrider.shared.messages import EdgeMessage
from outrider.v1 import verifier_pb2_grpc as pb_grpc
from support.serving import RawStream, open_request, serving

PLACES, OPENS = 8, 200
LIMIT_S = 0.1
ROUNDS = 4


class Clock:
    """Times, at the server, from having read an Open to having handed the status over."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.refused_s: list[float] = []
        opened_s: dict[Any, float] = {}
        receive, abort = service._GrpcCloudLink.receive, service.abort

        async def timed_receive(link: service._GrpcCloudLink) -> EdgeMessage | None:
            message = await receive(link)
            opened_s[link._context] = time.perf_counter()
            return message

        async def timed_abort(context: Any, error: OutriderError) -> NoReturn:
            try:
                await abort(context, error)
            finally:
                self.refused_s.append(time.perf_counter() - opened_s.pop(context))
            raise AssertionError

        monkeypatch.setattr(service._GrpcCloudLink, "receive", timed_receive)
        monkeypatch.setattr(service, "abort", timed_abort)


def memory_kb() -> int:
    """What this process has in memory now."""
    with open("/proc/self/status", encoding="ascii") as status:  # noqa: PTH123
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


async def _open_all(channel: grpc.aio.Channel) -> list[OutriderError]:
    """`OPENS` streams at once; the refusals. Those that were let in are left before this returns."""
    calls = [pb_grpc.VerifierServiceStub(channel).Decode() for _ in range(OPENS)]

    async def one(call: Any) -> OutriderError | None:
        stream = RawStream(call)
        try:
            await stream.send(open_request())
            await stream.receive()
        except grpc.aio.AioRpcError as error:
            return error_of_status(error, "verifier")
        except OutriderError as error:
            return error
        return None

    errors = await asyncio.gather(*map(one, calls))
    for call in calls:
        call.cancel()
    return [error for error in errors if error is not None]


@pytest.fixture
def own_garbage_only() -> Iterator[None]:
    """Times are the server's: a collection in the midst of them looks at nothing that other tests have left."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("own_garbage_only")
async def test_the_surplus_of_two_hundred_opens_is_refused_in_a_tenth_of_a_second(
    monkeypatch: pytest.MonkeyPatch, record_property: Any
) -> None:
    clock, memory = Clock(monkeypatch), list[int]()
    async with (
        serving(TinyEngine(max_slots=PLACES)) as address,
        grpc.aio.insecure_channel(address) as channel,
    ):
        for _ in range(ROUNDS):
            refused = await _open_all(channel)
            assert len(refused) == OPENS - PLACES
            assert {error.reason for error in refused} == {Reason.CAPACITY_EXHAUSTED}
            delays = sorted(error.retry_after_s or 0.0 for error in refused)
            assert delays[0] > 0.1
            assert delays[-1] > 4.0, "the last ones are told to wait for many turns"
            assert max(sum(d <= delay < d + 0.1 for delay in delays) for d in delays) <= 40, "and not all for as long"
            await asyncio.sleep(0.2)
            gc.collect()
            memory.append(memory_kb())
        assert sum(isinstance(thing, Session) for thing in gc.get_objects()) <= 2 * PLACES
    times = sorted(clock.refused_s)
    assert len(times) == ROUNDS * (OPENS - PLACES)
    record_property("refused_ms", [round(1000 * times[int(q * (len(times) - 1))], 2) for q in (0.5, 0.99, 1.0)])
    print(f"ms p50 {1000 * times[len(times) // 2]:.2f} max {1000 * times[-1]:.2f}; memory KB {memory}")
    assert times[-1] <= LIMIT_S
    assert memory[-1] - memory[1] < 8 * 1024
