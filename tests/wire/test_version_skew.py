"""Two versions of the program meet: what one side does not know is refused by name or ignored, as the protocol says."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import pytest

from outrider.edge.link import VerifierClient, error_of_status
from outrider.shared.errors import OutriderError, Reason
from outrider.shared.messages import FEATURES, Open
from outrider.shared.sampling.options import Sampling
from outrider.v1 import verifier_pb2 as pb
from outrider.v1 import verifier_pb2_grpc as pb_grpc
from support.serving import open_request, raw_stream, serving

UNKNOWN_FIELD_99 = b"\x9a\x06\x01\x00"


async def test_a_request_of_a_kind_the_verifier_does_not_know_is_unimplemented() -> None:
    async with serving() as address, grpc.aio.insecure_channel(address) as channel:
        call: Any = channel.stream_stream(
            "/outrider.v1.VerifierService/Decode", request_serializer=bytes, response_deserializer=bytes
        )()
        await call.write(open_request().SerializeToString())
        await call.read()
        await call.write(UNKNOWN_FIELD_99)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            while True:
                await call.read()
        assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
        assert error_of_status(refused.value, "").reason is Reason.MESSAGE_UNKNOWN


async def test_an_unknown_field_alone_is_ignored_but_a_required_feature_is_not() -> None:
    newer_open = pb.DecodeRequest()
    newer_open.ParseFromString(open_request().SerializeToString())
    newer_open.open.MergeFromString(UNKNOWN_FIELD_99)
    async with serving() as address, raw_stream(address) as stream:
        await stream.send(newer_open)
        assert (await stream.receive()).HasField("opened")
    async with serving() as address, raw_stream(address) as stream:
        await stream.send(open_request(required_features=[*FEATURES, "field-99"]))
        with pytest.raises(OutriderError, match="field-99") as refused:
            await stream.receive()
        assert refused.value.reason is Reason.FEATURE_UNSUPPORTED


class _NewerVerifier(pb_grpc.VerifierServiceServicer):
    """Answers in ways of its own."""

    def __init__(self, info: pb.GetInfoResponse, answer: pb.DecodeResponse) -> None:
        self._info = info
        self._answer = answer

    async def GetInfo(self, request: pb.GetInfoRequest, context: Any) -> pb.GetInfoResponse:
        return self._info

    async def Decode(self, requests: Any, context: Any) -> None:
        await context.read()
        await context.write(self._answer)


@contextlib.asynccontextmanager
async def newer_verifier(info: pb.GetInfoResponse, answer: pb.DecodeResponse) -> AsyncIterator[VerifierClient]:
    server = grpc.aio.server()
    add: Callable[..., None] = pb_grpc.add_VerifierServiceServicer_to_server
    add(_NewerVerifier(info, answer), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    client = VerifierClient(f"127.0.0.1:{port}")
    try:
        yield client
    finally:
        await client.close()
        await server.stop(0)


async def test_the_edge_refuses_an_answer_of_a_kind_it_does_not_know() -> None:
    async with newer_verifier(pb.GetInfoResponse(), pb.DecodeResponse()) as client:
        link = client.open_stream()
        await link.send(Open((65,), Sampling(), seed=1, max_tokens=4))
        with pytest.raises(OutriderError) as refused:
            await link.receive()
        assert refused.value.reason is Reason.MESSAGE_UNKNOWN
        await link.close()


async def test_the_edge_refuses_numerics_it_does_not_know() -> None:
    info = pb.GetInfoResponse(numerics=17)  # type: ignore[arg-type]  # an enum value of the future
    async with newer_verifier(info, pb.DecodeResponse()) as client:
        with pytest.raises(OutriderError) as refused:
            await client.get_info()
        assert refused.value.reason is Reason.PEER_VIOLATION


async def test_a_verifier_without_the_call_is_reported_as_such() -> None:
    async with newer_verifier(pb.GetInfoResponse(), pb.DecodeResponse()) as client:
        with pytest.raises(OutriderError, match="UNIMPLEMENTED"):
            await client.get_tokenizer()
