"""An edge that has not heard yet that its answer is complete goes on writing: its stream ends when it has, and not
under its pen, as that would cost it what it has not read.
"""

from __future__ import annotations

import asyncio

import pytest

from outrider.cloud.verifier import LINGER_S
from outrider.harness.links import LinkProfile
from outrider.harness.virtual_time import run
from outrider.shared.link import EdgeLink
from outrider.shared.messages import CloudMessage, Commit, Finished, Grow, Opened
from outrider.shared.sampling.options import Sampling
from outrider.shared.tiny import END
from simulation.world import Task, World, world

TASK = Task(sampling=Sampling(max_tokens=3, logit_bias={END: -100.0}))
LATE_S = 0.3


async def _until_end(link: EdgeLink) -> list[CloudMessage]:
    said = []
    while (message := await link.receive()) is not None:
        said.append(message)
    return said


async def _begun(here: World) -> tuple[EdgeLink, asyncio.Task[list[CloudMessage]]]:
    link = here.port.connect(LinkProfile.of_rtt(20), seed=1)
    await link.send(TASK.request())
    await link.send(Grow(1, 0, run_to=3))
    return link, asyncio.create_task(_until_end(link))


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_stream_ends_when_the_edge_has_stopped_writing(count: int) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with world() as here:
            link, reading = await _begun(here)
            await asyncio.sleep(1)
            for number in range(count):
                await link.send(Grow(1 + number, 3, (), (97,), run_to=3))
                await asyncio.sleep(LATE_S)
                assert not reading.done(), f"ended by late message {number}"
            closed_s = loop.time()
            await link.close()
            said = await reading
            assert loop.time() - closed_s < 1
            assert [type(message) for message in said] == [Opened, Commit, Commit, Commit, Finished]
            assert here.verifier.unused_slots == 4

    run(main(), limit_s=60)


def test_one_that_never_stops_is_waited_for_no_longer_than_that() -> None:
    async def main() -> float:
        loop = asyncio.get_running_loop()
        async with world() as here:
            link, reading = await _begun(here)
            number = 0
            while not reading.done():
                await link.send(Grow(1 + number, 0, (0,), (97,), run_to=3))
                number += 1
                await asyncio.sleep(0.05)
            await reading
            return loop.time()

    assert LINGER_S < run(main(), limit_s=60) < LINGER_S + 2
