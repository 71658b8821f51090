"""What somebody on the way sees of an answer over TLS: the lengths of encrypted records."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from outrider.edge.agent import Agent
from outrider.shared.sampling.options import Sampling
from support.certificates import Authority
from support.serving import serving

APPLICATION_DATA = 23
# TLS 1.3 adds the kind of content and a tag; HTTP/2 a frame's head; gRPC a message's head.
PADDED_RECORD = 128 + 5 + 9 + 17
# The verifier's word on flow control may ride along, once for the stream and once for the connection.
WINDOW_UPDATE = 13


@contextlib.asynccontextmanager
async def watched(address: str) -> AsyncIterator[tuple[str, list[int]]]:
    """Another address for the verifier at `address`, and the lengths of the records that it sends that way."""
    lengths: list[int] = []
    host, _, port = address.rpartition(":")

    async def copy_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
        writer.close()

    async def copy_down(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError):
            while True:
                head = await reader.readexactly(5)
                body = await reader.readexactly(int.from_bytes(head[3:], "big"))
                if head[0] == APPLICATION_DATA:
                    lengths.append(len(body))
                writer.write(head + body)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up, down = await asyncio.open_connection(host, int(port))
        await asyncio.gather(copy_up(reader, down), copy_down(up, writer), return_exceptions=True)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}", lengths
    finally:
        server.close()


async def records_of_an_answer(authority: Authority, *, pad: bool) -> tuple[list[int], int, list[int]]:
    """Lengths of the verifier's records during an answer, its passes, and how many guesses each accepted."""
    async with (
        serving(tls=authority.server_tls(), pad_commits=pad) as address,
        watched(address) as (seen_from_outside, lengths),
        Agent.connect(seen_from_outside, "tiny:0.5", control="fixed", tls=authority.device_tls()) as agent,
    ):
        lengths.clear()
        sampling = Sampling(max_tokens=100, temperature=1.0, seed=5, logit_bias={256: -100.0})
        result = await agent.answer("measure me", sampling)
        return list(lengths), result.stats["passes"], result.stats["accepted_histogram"]


async def test_records_of_padded_commits_tell_no_accept_counts(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    bare, _, accepted = await records_of_an_answer(authority, pad=False)
    assert sum(count > 0 for count in accepted) > 3, "passes of an answer accept now more and now fewer guesses"
    assert len(set(bare)) > 5
    assert max(bare) < PADDED_RECORD

    padded, passes, _ = await records_of_an_answer(authority, pad=True)
    commits = [length for length in padded if length >= PADDED_RECORD]
    assert len(commits) == passes
    assert {length - PADDED_RECORD for length in commits} <= {0, WINDOW_UPDATE, 2 * WINDOW_UPDATE}
