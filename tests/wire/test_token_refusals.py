"""Tokens over a real gRPC server: who has none that is in force is refused before anything is read."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from outrider.cloud import tokens
from outrider.cloud.tokens import new_token
from outrider.edge.agent import Agent
from outrider.edge.link import VerifierClient, error_of_status
from outrider.shared.access import Access
from outrider.shared.errors import OutriderError, Reason
from outrider.v1 import verifier_pb2 as pb
from outrider.v1 import verifier_pb2_grpc as pb_grpc
from support.callers import ANSWER_TOKENS, answer, calling, token_path, tokens_path
from support.certificates import replace
from support.refusal import refused
from support.serving import open_request, raw_stream, serving

PHONE, LAPTOP = new_token("phone"), new_token("laptop")
GOOD = ("authorization", f"Bearer {PHONE.token}")
WRONG: list[tuple[str, Any]] = [
    ("none", None),
    ("empty", [("authorization", "")]),
    ("scheme alone", [("authorization", "Bearer ")]),
    ("of nobody", [("authorization", f"Bearer {new_token('phone').token}")]),
    ("cut short", [("authorization", f"Bearer {PHONE.token[:-1]}")]),
    ("with more", [("authorization", f"Bearer {PHONE.token} {PHONE.token}")]),
    ("its digest", [("authorization", f"Bearer {PHONE.line.split()[1]}")]),
    ("another scheme", [("authorization", f"Basic {PHONE.token}")]),
    ("no scheme", [("authorization", PHONE.token)]),
    ("two at once", [GOOD, ("authorization", "Bearer x")]),
    ("another header", [("x-authorization", f"Bearer {PHONE.token}")]),
]


@pytest.fixture
def known(tmp_path: Path) -> Path:
    return tokens_path(tmp_path, PHONE, LAPTOP)


@pytest.mark.parametrize(("_name", "metadata"), WRONG, ids=[case[0] for case in WRONG])
async def test_every_call_without_a_token_in_force_is_refused_alike(known: Path, _name: str, metadata: Any) -> None:
    said: list[str] = []
    async with serving(tokens=known, reflection=True) as address, grpc.aio.insecure_channel(address) as channel:
        stub: Any = pb_grpc.VerifierServiceStub(channel)
        reflection: Any = channel.stream_stream("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo")
        unknown: Any = channel.unary_unary("/outrider.v1.VerifierService/Unknown")
        for call in (
            stub.GetInfo(pb.GetInfoRequest(), metadata=metadata),
            stub.GetTokenizer(pb.GetTokenizerRequest(), metadata=metadata).read(),
            stub.Decode(metadata=metadata).read(),
            reflection(metadata=metadata).read(),
            unknown(b"", metadata=metadata),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                async with asyncio.timeout(10):
                    await call
            assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
            error = error_of_status(caught.value, "verifier")
            assert (error.reason, error.from_peer, error.exit_code) == (Reason.UNAUTHENTICATED, True, 3)
            said.append(error.message)
    # Missing or wrong, it says the same.
    expected = "The verifier does not know the caller. It takes a bearer token that is in force."
    assert said == [f"The verifier at verifier says: {expected}"] * 5


async def test_a_call_without_a_token_is_ended_before_its_message_is_read(
    known: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[bytes] = []
    parse = pb.GetInfoRequest.FromString

    class Watched:
        @staticmethod
        def FromString(data: bytes) -> pb.GetInfoRequest:
            parsed.append(data)
            return parse(data)

    monkeypatch.setattr(pb, "GetInfoRequest", Watched)
    async with serving(tokens=known) as address, grpc.aio.insecure_channel(address) as channel:
        call: Any = channel.unary_unary("/outrider.v1.VerifierService/GetInfo")
        assert await call(b"", metadata=[GOOD])
        assert parsed == [b""]
        # The last is longer than any message may be, and would be refused for that if it were read.
        for data in (b"", b"\x12\x01x", bytes(2 << 20)):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call(data)
            assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
        assert parsed == [b""]


async def test_health_needs_no_token(known: Path) -> None:
    async with serving(tokens=known) as address, grpc.aio.insecure_channel(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        response = await stub.Check(health_pb2.HealthCheckRequest(), timeout=10)
        assert response.status == health_pb2.HealthCheckResponse.SERVING


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
async def test_a_token_lets_in(known: Path, scheme: str) -> None:
    metadata = [("authorization", f"{scheme} {LAPTOP.token}")]
    async with serving(tokens=known) as address, raw_stream(address, metadata) as stream:
        await stream.send(open_request())
        assert (await stream.receive()).HasField("opened")


async def test_an_agent_answers_with_its_token_and_is_refused_without(known: Path, tmp_path: Path) -> None:
    async with serving(tokens=known) as address:
        async with Agent.connect(address, "tiny:0.5", token_file=token_path(tmp_path, PHONE.token)) as agent:
            assert len((await answer(agent)).token_ids) == ANSWER_TOKENS
        for wrong in (None, token_path(tmp_path, new_token("phone").token)):
            with pytest.raises(OutriderError) as caught:
                async with Agent.connect(address, "tiny:0.5", token_file=wrong):
                    pass
            assert caught.value.reason is Reason.UNAUTHENTICATED


async def test_tokens_come_and_go_while_the_verifier_serves(known: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "CHECK_EVERY_S", 0.01)
    new = new_token("phone")
    async with (
        serving(tokens=known) as address,
        calling(address, token=PHONE.token) as old_one,
        calling(address, token=new.token) as new_one,
    ):
        assert await _is_let_in(old_one)
        assert not await _is_let_in(new_one)
        replace(known, new.line.encode())
        async with asyncio.timeout(10):
            while not await _is_let_in(new_one):
                pass
        assert not await _is_let_in(old_one)


async def _is_let_in(client: VerifierClient) -> bool:
    try:
        await client.get_info()
    except OutriderError as error:
        assert error.reason is Reason.UNAUTHENTICATED
        return False
    return True


async def test_a_verifier_that_nobody_could_call_does_not_start(tmp_path: Path) -> None:
    with refused(Reason.FILE_UNREADABLE, "no token"):
        async with serving(tokens=tokens_path(tmp_path)):
            pass


@pytest.mark.parametrize("address", ["192.0.2.1:7071", "verifier.example.org:7071", "[2001:db8::1]:7071"])
async def test_a_token_is_not_sent_in_the_clear_to_another_machine(tmp_path: Path, address: str) -> None:
    """Even where prompts may go so."""
    with refused(Reason.USAGE, address, "TLS"):
        async with Agent.connect(address, "none", token_file=token_path(tmp_path, PHONE.token), plaintext=True):
            pass
    with refused(Reason.USAGE, address, "TLS"):
        VerifierClient(address, access=Access(token=PHONE.token))
