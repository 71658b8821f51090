"""A device that changes networks: connections from an address which it has no more are left, and answers go on."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Any

import pytest

from outrider.edge import verifiers
from outrider.edge.agent import Agent
from outrider.edge.link import VerifierClient
from outrider.shared.sampling.options import Sampling
from outrider.shared.tiny import END
from support.serving import serving

LONG = Sampling(max_tokens=1500, seed=1, logit_bias={END: -100.0})


class Device:
    """Where it is, and that somebody has looked."""

    def __init__(self) -> None:
        self.address: str | None = "192.0.2.1"
        self._looked = asyncio.Event()

    def local_address(self, resolved: tuple[Any, ...]) -> str:
        """See `verifiers.local_address`."""
        self._looked.set()
        if self.address is None:
            raise OSError("network is unreachable")
        return self.address

    async def move(self, address: str | None) -> None:
        """Be somewhere else, until that has been looked at twice."""
        self.address = address
        for _ in range(2):
            self._looked.clear()
            await self._looked.wait()


async def test_an_answer_goes_on_over_the_new_network(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device()
    monkeypatch.setattr(verifiers, "local_address", device.local_address)
    monkeypatch.setattr(verifiers, "is_loopback", lambda _: False)
    monkeypatch.setattr(verifiers, "LOOK_EVERY_S", 0.005)
    async with serving() as verifier, Agent.connect(verifier, "none") as agent:
        whole = (await agent.answer("hello", LONG)).token_ids
        stream = agent.stream("hello", LONG)
        async with contextlib.aclosing(stream) as chunks:
            await anext(chunks)
            for address in (None, "192.0.2.1", "192.0.2.2"):
                await device.move(address)
            result = [chunk async for chunk in chunks][-1].result
    assert result is not None
    assert result.token_ids == whole
    assert result.stats["streams"] == 2, "it was left once: not for want of a network, only for another address"


def test_the_local_address_of_loopback_is_loopback() -> None:
    resolved = socket.getaddrinfo("127.0.0.1", 9, type=socket.SOCK_DGRAM)[0]
    assert verifiers.local_address(resolved) == "127.0.0.1"


async def test_connections_that_were_left_are_closed() -> None:
    async with serving() as verifier:
        client = VerifierClient(verifier, own_connection=True)
        for _ in range(5):
            client.renew()
            await client.get_info()
        assert len(client._retired) == 1
        await client.close()
