"""What a broken connection leaves behind: nothing in memory, even where the edge had not read all and its next write
failed; and no error where asking again helps.
"""

from __future__ import annotations

import asyncio
import gc

from outrider.edge.link import VerifierClient
from outrider.harness.delay_proxy import DelayProxy
from outrider.harness.links import Cut, LinkProfile
from outrider.shared.access import split_address
from outrider.shared.messages import Grow, Open, Opened
from outrider.shared.sampling.options import Sampling
from outrider.shared.tiny import END
from support.serving import serving

SAMPLING = Sampling(max_tokens=64, logit_bias={END: -100.0})
REQUEST = Open(prompt_ids=(257, 104, 105, 258), sampling=SAMPLING, seed=5, max_tokens=64)


def calls_in_memory() -> int:
    gc.collect()
    return sum(type(one).__name__ == "_AioCall" for one in gc.get_objects())


async def test_a_stream_whose_write_failed_is_forgotten() -> None:
    before = calls_in_memory()
    async with serving() as address:
        client = VerifierClient(address, own_connection=True)
        link = client.open_stream()
        await link.send(REQUEST)
        assert isinstance(await link.receive(), Opened)
        await link.send(Grow(1, 0, run_to=64))
        await asyncio.sleep(0.3)
    for _ in range(3):
        await link.send(Grow(1, 0, run_to=64))
    assert link._first_status is not None
    assert link._first_status.is_of_failed_write, "otherwise this tests nothing"
    await link.close()
    await client.close()
    del link, client
    async with asyncio.timeout(10):
        while calls_in_memory() > before:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.05)


async def test_a_client_whose_connection_has_gone_asks_again() -> None:
    async with serving() as address:
        host, port = split_address(address)
        proxy = DelayProxy(LinkProfile.of_rtt(100), 1, host, int(port))
        async with await proxy.listen("127.0.0.1", 0) as server:
            client = VerifierClient(f"127.0.0.1:{server.sockets[0].getsockname()[1]}", own_connection=True)
            first = await client.get_info()
            asking = asyncio.create_task(client.get_info())
            await asyncio.sleep(0.05)
            proxy.cut(Cut(at_s=0, kind="rst"))
            assert await asking == first
            await client.close()
