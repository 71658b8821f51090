"""Streams that ask for rounds as fast as they are answered, or at a given rate, and do next to nothing themselves: all
they will say is serialised beforehand, and of what they hear only the last word is looked at.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import grpc

from outrider.harness.load.null_target import null_token
from outrider.v1 import verifier_pb2 as pb

DECODE_METHOD = "/outrider.v1.VerifierService/Decode"
# Of so many guesses so many are right; the target's own token comes on top.
GUESSES, RIGHT = 4, 2
TOKENS_A_ROUND = RIGHT + 1


def open_bytes(rounds: int) -> bytes:
    """An Open of an answer that takes so many rounds and is not over then."""
    tokens = rounds * TOKENS_A_ROUND + 1
    return pb.DecodeRequest(open=pb.Open(prompt_ids=[257, 104, 105, 258], max_tokens=tokens)).SerializeToString()


def grow_bytes(index: int) -> bytes:
    """The guesses of round `index` for a `NullTarget`: the first `RIGHT` are right, so the next base is known."""
    base = index * TOKENS_A_ROUND
    tokens = [null_token(base + depth + (depth >= RIGHT)) for depth in range(GUESSES)]
    return pb.DecodeRequest(grow=pb.Grow(first_id=1 + index * GUESSES, base=base, tokens=tokens)).SerializeToString()


@contextlib.asynccontextmanager
async def raw_channels(address: str, count: int) -> AsyncIterator[list[grpc.aio.Channel]]:
    """So many connections."""
    async with contextlib.AsyncExitStack() as stack:
        yield [
            # Channels with the same arguments would share one.
            await stack.enter_async_context(
                grpc.aio.insecure_channel(address, (("grpc.use_local_subchannel_pool", 1), ("load.number", number)))
            )
            for number in range(count)
        ]


@contextlib.asynccontextmanager
async def raw_calls(address: str, method: str, count: int, channels: int) -> AsyncIterator[list[Any]]:
    """`count` streams of bytes over a few channels."""
    async with raw_channels(address, channels) as opened:
        calls: list[Any] = [opened[number % channels].stream_stream(method)() for number in range(count)]
        try:
            yield calls
        finally:
            for call in calls:
                call.cancel()


async def one_after_another(call: Any, messages: Sequence[bytes], seconds: list[float]) -> bytes:
    """Send each message when the one before has been answered; returns the last answer and adds times to `seconds`."""
    answer = b""
    for message in messages:
        began = time.perf_counter()
        await call.write(message)
        answer = await call.read()
        if answer == grpc.aio.EOF:
            raise EOFError(await call.details())
        seconds.append(time.perf_counter() - began)
    return answer


async def all_at_once(calls: Sequence[Any], messages: Sequence[bytes]) -> tuple[float, list[float], list[bytes]]:
    """Run `one_after_another` on all streams; returns seconds in all, of each round, and the last answers."""
    seconds: list[float] = []
    began = time.perf_counter()
    answers = await asyncio.gather(*(one_after_another(call, messages, seconds) for call in calls))
    return time.perf_counter() - began, seconds, answers


def committed_length(response: bytes) -> int:
    """Where a Commit leads to."""
    return pb.DecodeResponse.FromString(response).commit.committed_length
