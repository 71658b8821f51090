"""Quotas over real gRPC: who has as much as it may have is refused with a time to retry, and nobody else notices."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from grpc_health.v1 import health_pb2

from outrider.cloud.quotas import Quota, Quotas
from outrider.cloud.scheduler import PassLimits
from outrider.cloud.session import SessionLimits
from outrider.cloud.target import EngineTarget
from outrider.cloud.targets.tiny import TinyEngine
from outrider.cloud.tokens import NewToken, new_token
from outrider.cloud.verifier import VerifierConfig
from outrider.shared.errors import OutriderError, Reason
from outrider.v1 import verifier_pb2 as pb
from support.callers import tokens_path
from support.process import run_command
from support.serving import RawStream, grow_request, open_request, raw_stream, serving
from wire.test_health import health_of

PHONE, LAPTOP = new_token("phone"), new_token("laptop")


@contextlib.asynccontextmanager
async def serving_phone(
    folder: Path, quota: Quota, engine: TinyEngine | None = None, **session: Any
) -> AsyncIterator[str]:
    """A verifier that knows a phone, which has a quota, and a laptop, which has none."""
    config = VerifierConfig(session=SessionLimits(**session), quotas=Quotas(principals={"phone": quota}))
    async with serving(engine, config, tokens=tokens_path(folder, PHONE, LAPTOP)) as address:
        yield address


def stream_of(address: str, who: NewToken) -> contextlib.AbstractAsyncContextManager[RawStream]:
    return raw_stream(address, (("authorization", f"Bearer {who.token}"),))


async def opened(stream: RawStream, **fields: Any) -> pb.Opened:
    """Open a session; what the verifier says to it."""
    await stream.send(open_request(**fields))
    return (await stream.receive()).opened


async def refusal(stream: RawStream) -> OutriderError:
    with pytest.raises(OutriderError) as refused:
        while True:
            await stream.receive()
    return refused.value


async def test_a_session_over_the_quota_is_refused_until_another_one_ends(tmp_path: Path) -> None:
    async with (
        serving_phone(tmp_path, Quota(sessions=1)) as address,
        stream_of(address, PHONE) as first,
        stream_of(address, PHONE) as second,
        stream_of(address, LAPTOP) as other,
    ):
        await opened(first)
        await second.send(open_request())
        error = await refusal(second)
        assert error.reason is Reason.QUOTA_EXCEEDED
        assert error.retry_after_s
        assert "1 sessions of 'phone' are open, of 1" in error.message
        await opened(other)
        await first.send(pb.DecodeRequest(close=pb.Close()))
        assert (await first.receive()).WhichOneof("message") == "finished"
        # Whoever hears of the end may come again at once.
        async with stream_of(address, PHONE) as again:
            assert (await opened(again)).session_id


async def test_a_stream_that_broke_can_be_resumed_within_the_quota(tmp_path: Path) -> None:
    async with serving_phone(tmp_path, Quota(sessions=1, live_nodes=40)) as address:
        async with stream_of(address, PHONE) as first:
            said = await opened(first)
            assert said.window == 40
        resume = pb.DecodeRequest(
            resume=pb.Resume(session_id=said.session_id, attempt=1, committed_length=0, hash=said.hash)
        )
        async with stream_of(address, PHONE) as second, stream_of(address, PHONE) as third:
            await second.send(resume)
            assert (await second.receive()).opened.window == 40
            await third.send(open_request())
            assert (await refusal(third)).reason is Reason.QUOTA_EXCEEDED


async def test_the_window_that_opened_grants_is_what_the_account_has_left_and_holds(tmp_path: Path) -> None:
    async with (
        serving_phone(tmp_path, Quota(live_nodes=96)) as address,
        stream_of(address, PHONE) as first,
        stream_of(address, PHONE) as second,
        stream_of(address, PHONE) as third,
        stream_of(address, LAPTOP) as other,
    ):
        assert (await opened(first)).window == 48
        assert (await opened(second)).window == 32
        await third.send(open_request())
        error = await refusal(third)
        assert (error.reason, "80 live nodes, of 96" in error.message) == (Reason.QUOTA_EXCEEDED, True)
        assert (await opened(other)).window == SessionLimits().window
        await second.send(grow_request(1, [65] * 33))
        assert (await refusal(second)).reason is Reason.WINDOW_EXCEEDED


async def test_streams_that_never_say_what_they_want_are_bounded(tmp_path: Path) -> None:
    async with (
        serving_phone(tmp_path, Quota(opening=2), open_limit_s=0.5) as address,
        stream_of(address, PHONE) as first,
        stream_of(address, PHONE) as second,
        stream_of(address, PHONE) as third,
        stream_of(address, LAPTOP) as other,
    ):
        silent = [first, second, third]
        said, welcome = await asyncio.gather(asyncio.gather(*map(refusal, silent)), opened(other))
        reasons = sorted(error.reason for error in said)
        assert reasons == [Reason.OPEN_EXPECTED, Reason.OPEN_EXPECTED, Reason.QUOTA_EXCEEDED]
        assert welcome.session_id
        async with stream_of(address, PHONE) as again:
            assert (await opened(again)).session_id


async def test_a_pass_that_hangs_shows_in_the_health_and_so_does_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    release = asyncio.Event()
    run_pass = EngineTarget.run_pass

    async def hanging(self: EngineTarget, work: Any) -> Any:
        await release.wait()
        return await run_pass(self, work)

    async def health_is(address: str, wanted: int) -> None:
        async with asyncio.timeout(10):
            while await health_of(address) != wanted:  # noqa: ASYNC110 - health is asked for, it does not call
                await asyncio.sleep(0.02)

    monkeypatch.setattr(EngineTarget, "run_pass", hanging)
    config = VerifierConfig(PassLimits(pass_limit_s=0.2))
    async with serving(config=config) as address, raw_stream(address) as stream:
        await opened(stream)
        await stream.send(grow_request(1, [], run_to=1))
        await health_is(address, health_pb2.HealthCheckResponse.NOT_SERVING)
        release.set()
        await health_is(address, health_pb2.HealthCheckResponse.SERVING)
        assert (await stream.receive()).commit.committed_length == 1


def test_a_file_of_quotas_is_for_callers_that_are_known_and_is_read_before_a_model(tmp_path: Path) -> None:
    path = tmp_path / "quotas.toml"
    path.write_text("[default]\nsessions = 0\n")
    without = run_command("verifier", "--target", "no-such-model", "--quotas", str(path))
    assert without.returncode == 2
    assert "--tokens or --tls-client-ca" in without.stderr
    tokens = str(tokens_path(tmp_path, PHONE))
    wrong = run_command("verifier", "--target", "no-such-model", "--tokens", tokens, "--quotas", str(path))
    assert wrong.returncode == 5
    assert "default.sessions = 0" in wrong.stderr
