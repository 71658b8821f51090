"""Sessions that are mostly idle: rounds arrive at a given rate, each at the next session in turn, and none waits for
another one.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import grpc

from outrider.harness.load.streams import DECODE_METHOD
from outrider.v1 import verifier_pb2 as pb

PROMPT = (257, 104, 105, 258)


class IdleSession:
    """One open session of the tiny target, in which a round is a guess and the verdict on it."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        # A stream counts from here on; streams without an Open are few.
        self._call: Any = channel.stream_stream(DECODE_METHOD)()
        self._length = 0
        self._next_id = 1

    async def open(self, max_tokens: int) -> None:
        """Open it; raises `EOFError` with what the verifier says instead."""
        # Its answer must not end by itself.
        sampling = pb.Sampling(logit_bias={256: -100.0})
        await self._send(pb.DecodeRequest(open=pb.Open(prompt_ids=PROMPT, max_tokens=max_tokens, sampling=sampling)))
        await self._hear()

    async def round(self) -> float:
        """A guess and its verdict; returns seconds."""
        began = time.perf_counter()
        grow = pb.Grow(first_id=self._next_id, base=self._length, tokens=[ord("e")])
        self._next_id += 1
        await self._send(pb.DecodeRequest(grow=grow))
        self._length = (await self._hear()).commit.committed_length
        return time.perf_counter() - began

    async def _send(self, request: pb.DecodeRequest) -> None:
        await self._call.write(request.SerializeToString())

    async def _hear(self) -> pb.DecodeResponse:
        answer = await self._call.read()
        if answer == grpc.aio.EOF:
            raise EOFError(await self._call.details())
        return pb.DecodeResponse.FromString(answer)


async def open_all(channels: list[grpc.aio.Channel], count: int, max_tokens: int) -> list[IdleSession]:
    """`count` sessions over all channels, opened a few at a time."""
    sessions: list[IdleSession] = []
    while len(sessions) < count:
        batch = [IdleSession(channel) for channel in channels[: count - len(sessions)]]
        await asyncio.gather(*(session.open(max_tokens) for session in batch))
        sessions += batch
    return sessions


async def at_rate(sessions: list[IdleSession], rounds_per_s: float, count: int) -> tuple[list[float], float]:
    """Run `count` rounds, one every 1 / `rounds_per_s` seconds; returns the seconds of each, and seconds in all. A
    session has one round at a time: the rate is not kept if one takes longer than a turn of all sessions.
    """
    loop = asyncio.get_running_loop()
    began = loop.time()
    running: list[asyncio.Task[float]] = []
    for index in range(count):
        await asyncio.sleep(began + index / rounds_per_s - loop.time())
        if index >= len(sessions):
            await running[index - len(sessions)]
        running.append(asyncio.create_task(sessions[index % len(sessions)].round()))
    seconds = await asyncio.gather(*running)
    return seconds, loop.time() - began
