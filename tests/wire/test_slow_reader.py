"""An edge that asks for everything and reads nothing, over real gRPC: it is decoded for no longer than the
transport and a bounded queue take its commits, and its stream ends with a reason.
"""

from __future__ import annotations

import asyncio

import grpc
import pytest

from outrider.cloud.session import PassTiming, Session, SessionLimits
from outrider.cloud.targets.tiny import TinyEngine
from outrider.cloud.verifier import VerifierConfig
from outrider.cloud.walk import WalkResult
from outrider.shared.errors import OutriderError, Reason
from outrider.v1 import verifier_pb2_grpc as pb_grpc
from support.serving import RawStream, grow_request, open_request, serving

ENDLESS = 8_000
# The transport of a client that has time buffers ever more for it; this one's does not.
SMALL_WINDOW = (("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 65_536))


async def test_who_never_reads_is_decoded_no_further_and_told_why(monkeypatch: pytest.MonkeyPatch) -> None:
    complete, waiting = Session.complete, list[int]()

    def counted(self: Session, result: WalkResult | None, timing: PassTiming) -> None:
        complete(self, result, timing)
        assert self.outbox is not None
        waiting.append(self.outbox.qsize())

    monkeypatch.setattr(Session, "complete", counted)
    limits = SessionLimits(max_run_ahead=ENDLESS, send_limit_s=1.0)
    engine = TinyEngine(context_length=ENDLESS + 100)
    async with (
        serving(engine, VerifierConfig(session=limits), pad_commits=True) as address,
        grpc.aio.insecure_channel(address, options=SMALL_WINDOW) as channel,
    ):
        stream = RawStream(pb_grpc.VerifierServiceStub(channel).Decode())
        bias = {"logit_bias": {256: -100.0}}
        await stream.send(open_request(max_tokens=ENDLESS, sampling=bias))
        await stream.send(grow_request(1, [], run_to=ENDLESS))
        decoded = -1
        async with asyncio.timeout(30):
            while decoded != len(waiting):
                decoded = len(waiting)
                await asyncio.sleep(0.5)
        assert limits.max_unread < decoded < ENDLESS / 2
        assert max(waiting) == limits.max_unread
        await asyncio.sleep(limits.send_limit_s + 0.5)
        assert len(waiting) == decoded
        with pytest.raises(OutriderError) as caught:
            while True:
                await stream.receive()
        assert caught.value.reason is Reason.SESSION_IDLE
        assert "does not read" in caught.value.message
