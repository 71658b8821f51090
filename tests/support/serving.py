"""Verifiers for tests: one over real gRPC in this process, with a way to send raw messages to it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import grpc

from outrider.cloud.server import ServerConfig, running_server
from outrider.cloud.target import EngineTarget
from outrider.cloud.targets.base import Engine
from outrider.cloud.targets.tiny import TinyEngine
from outrider.cloud.verifier import Verifier, VerifierConfig
from outrider.cloud.watching import Watch
from outrider.edge.link import error_of_status
from outrider.v1 import verifier_pb2 as pb
from outrider.v1 import verifier_pb2_grpc as pb_grpc


@contextlib.asynccontextmanager
async def serving(
    engine: Engine | None = None,
    config: VerifierConfig | None = None,
    watch: Watch | None = None,
    **server: Any,
) -> AsyncIterator[str]:
    """A verifier over `engine` (default: the tiny one) on a free loopback port, with `server` in its `ServerConfig`
    and `watch` watching; yields HOST:PORT.
    """
    watch = watch or Watch()
    verifier = Verifier(EngineTarget(engine or TinyEngine()), config or VerifierConfig(), watch.observer)
    async with running_server(verifier, ServerConfig("127.0.0.1:0", **server)) as port, watch.shown(verifier):
        yield f"127.0.0.1:{port}"


class RawStream:
    """A `Decode` stream that sends exactly what a test says."""

    def __init__(self, call: Any) -> None:
        self._call = call

    async def send(self, request: pb.DecodeRequest) -> None:
        """Write one message."""
        await self._call.write(request)

    async def receive(self) -> pb.DecodeResponse:
        """Read one message; raises the `OutriderError` that the status carries, EOFError after a good end."""
        try:
            response = await self._call.read()
        except grpc.aio.AioRpcError as error:
            raise error_of_status(error, "verifier") from None
        if response == grpc.aio.EOF:
            raise EOFError
        assert isinstance(response, pb.DecodeResponse)
        return response

    async def half_close(self) -> None:
        """Say that nothing more will be sent."""
        await self._call.done_writing()


@contextlib.asynccontextmanager
async def raw_stream(address: str, metadata: Any = None) -> AsyncIterator[RawStream]:
    """A raw `Decode` stream to the verifier at `address`."""
    async with grpc.aio.insecure_channel(address) as channel:
        call = pb_grpc.VerifierServiceStub(channel).Decode(metadata=metadata)
        try:
            yield RawStream(call)
        finally:
            call.cancel()


def open_request(**changes: Any) -> pb.DecodeRequest:
    """A valid Open of the tiny model with `changes` to its fields."""
    fields: dict[str, Any] = {"prompt_ids": [257, 104, 105, 258], "max_tokens": 40, "seed": 3}
    return pb.DecodeRequest(open=pb.Open(**(fields | changes)))


def grow_request(first_id: int, tokens: list[int], **fields: Any) -> pb.DecodeRequest:
    """A Grow message."""
    return pb.DecodeRequest(grow=pb.Grow(first_id=first_id, tokens=tokens, **fields))
