"""Health tells whether answers can be had, not whether a port is open."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from outrider.cloud.scheduler import Scheduler
from outrider.shared.errors import OutriderError, Reason
from support.serving import open_request, raw_stream, serving

SERVICE = "outrider.v1.VerifierService"


async def health_of(address: str, service: str = SERVICE) -> int:
    async with grpc.aio.insecure_channel(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        response = await stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=10)
        return int(response.status)


async def test_a_verifier_serves_from_the_start() -> None:
    async with serving() as address:
        assert await health_of(address) == health_pb2.HealthCheckResponse.SERVING
        assert await health_of(address, "") == health_pb2.HealthCheckResponse.SERVING


async def test_a_scheduler_that_has_died_ends_every_session_and_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Scheduler) -> Any:
        raise RuntimeError("a bug of ours")

    async with serving() as address, raw_stream(address) as stream:
        monkeypatch.setattr(Scheduler, "_collect", broken)
        await stream.send(open_request())
        with pytest.raises(OutriderError) as refused:
            while True:
                await stream.receive()
        assert refused.value.reason is Reason.INTERNAL
        assert "bug" not in refused.value.message
        assert await health_of(address) == health_pb2.HealthCheckResponse.NOT_SERVING
        async with raw_stream(address) as later:
            await later.send(open_request())
            with pytest.raises(OutriderError):
                await later.receive()


async def test_reflection_is_off_unless_asked_for() -> None:
    async with serving() as address, grpc.aio.insecure_channel(address) as channel:
        call: Any = channel.stream_stream(
            "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
            request_serializer=bytes,
            response_deserializer=bytes,
        )()
        # The refusal may come before anything is written.
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call.write(b"")
            await call.read()
        assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
