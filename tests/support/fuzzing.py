"""Streams of anything at all to a live verifier, and what must hold however they go: an end in time, with a status from
the table and no fault of the verifier's own, and commits that are the target's own text.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc
from google.rpc import error_details_pb2, status_pb2

from outrider.shared.errors import ERROR_DOMAIN, ERROR_TABLE, STATUS_DETAILS_KEY, Reason
from outrider.shared.messages import TokenHash
from outrider.v1 import verifier_pb2 as pb

DECODE = "/outrider.v1.VerifierService/Decode"
STREAM_LIMIT_S = 10.0
# Faults of the verifier's own. No message of an edge may cause one.
OUR_FAULTS = (Reason.INTERNAL, Reason.PEER_VIOLATION)
# What a grpc.aio client makes of a stream that ends under its pen (grpc issue 36066); the true status is lost.
CLIENT_FAULT = (grpc.StatusCode.INTERNAL, "Internal error from Core")


@dataclass(frozen=True, slots=True)
class Ending:
    """How a stream ended: None is a good end, or one that this client has lost. `responses` are what came before."""

    reason: Reason | None
    responses: list[pb.DecodeResponse] = field(default_factory=list)
    is_lost: bool = False

    @property
    def has_finished(self) -> bool:
        """Whether the verifier has said that the answer is complete."""
        return any(response.HasField("finished") for response in self.responses)


class ByteStream:
    """A `Decode` stream of bytes, whatever they mean."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._call: Any = channel.stream_stream(DECODE)()
        self.responses: list[pb.DecodeResponse] = []

    async def send(self, message: bytes) -> bool:
        """Write one message; False once the stream has ended."""
        try:
            await self._call.write(message)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            return False
        return True

    async def receive(self) -> pb.DecodeResponse | None:
        """Read one message; None at the end of the stream."""
        try:
            answer = await self._call.read()
        except grpc.aio.AioRpcError:
            return None
        if not isinstance(answer, bytes):
            return None
        self.responses.append(pb.DecodeResponse.FromString(answer))
        return self.responses[-1]

    async def end(self) -> Ending:
        """Half-close, read to the end, and check the status against the table."""
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            await self._call.done_writing()
        while await self.receive() is not None:
            pass
        if (await self._call.code(), await self._call.details()) == CLIENT_FAULT:
            return Ending(None, self.responses, is_lost=True)
        return Ending(await self._reason(), self.responses)

    def cancel(self) -> None:
        """Vanish."""
        self._call.cancel()

    async def _reason(self) -> Reason | None:
        code, text = await self._call.code(), await self._call.details()
        if code is grpc.StatusCode.OK:
            return None
        details = dict(await self._call.trailing_metadata() or ())
        assert STATUS_DETAILS_KEY in details, f"a status without a reason: {code}, {text}"
        info = error_details_pb2.ErrorInfo()
        status_pb2.Status.FromString(details[STATUS_DETAILS_KEY]).details[0].Unpack(info)
        reason = Reason(info.reason)
        assert (info.domain, ERROR_TABLE[reason].status) == (ERROR_DOMAIN, code.name), (reason, code)
        assert text.startswith(ERROR_TABLE[reason].public), text
        assert reason not in OUR_FAULTS, text
        return reason


async def send_all(channel: grpc.aio.Channel, messages: Sequence[bytes]) -> Ending:
    """Send `messages` at once, as far as they are taken, and see the stream to its end."""
    async with asyncio.timeout(STREAM_LIMIT_S):
        stream = ByteStream(channel)
        for message in messages:
            if not await stream.send(message):
                break
        return await stream.end()


def check_commits(ending: Ending, prompt_ids: Sequence[int], alone_ids: Sequence[int]) -> None:
    """Assert that each commit leads to a beginning of what the target says alone, without a gap between them."""
    length = 0
    for response in ending.responses:
        if response.HasField("commit"):
            commit = response.commit
            assert commit.base == length < commit.committed_length
            length = commit.committed_length
            expected = TokenHash([*prompt_ids, *alone_ids[:length]])
            assert commit.hash == expected.value, f"another text at {length}"


def mutated(rng: random.Random, message: bytes, others: Sequence[bytes]) -> bytes:
    """`message` after one to four changes of its bytes: parts of `others` may come in."""
    data = bytearray(message)
    for _ in range(rng.randint(1, 4)):
        at = rng.randint(0, len(data))
        end = min(len(data), at + rng.randint(1, 8))
        match rng.randrange(7):
            case 0 if data:
                data[at % len(data)] ^= 1 << rng.randrange(8)
            case 1:
                data[at:at] = rng.randbytes(rng.randint(1, 8))
            case 2:
                del data[at:end]
            case 3:
                del data[at:]
            case 4:
                data[at:at] = data[at:end] * rng.randint(1, 50)
            case 5:
                other = rng.choice(others)
                data[at:end] = other[rng.randint(0, len(other)) :]
            case _:
                # A varint as long as they get, or longer.
                data[at:at] = b"\xff" * rng.randint(4, 11) + bytes([rng.randrange(128)])
    return bytes(data)
