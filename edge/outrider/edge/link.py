"""The gRPC way to a verifier: one channel, typed errors out of statuses, and an `EdgeLink` a stream."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

import grpc
from google.rpc import error_details_pb2, status_pb2

from outrider.edge.trace import trace_metadata
from outrider.shared.access import Access, is_loopback
from outrider.shared.convert import cloud_message_from_pb, edge_message_to_pb, info_from_pb
from outrider.shared.errors import ERROR_DOMAIN, STATUS_DETAILS_KEY, OutriderError, Reason
from outrider.shared.messages import CloudMessage, EdgeMessage, VerifierInfo
from outrider.shared.tokenizer_asset import TokenizerAsset, TokenizerFormat
from outrider.v1 import verifier_pb2 as pb
from outrider.v1 import verifier_pb2_grpc as pb_grpc

CONNECT_TIMEOUT_S = 10.0
TRANSFER_TIMEOUT_S = 120.0
ANSWER_TIMEOUT_S = 300.0
CLOSE_LIMIT_S = 1.0
STATUS_WAIT_S = 1.0
MAX_MESSAGE_BYTES = 4 << 20
MAX_TOKENIZER_BYTES = 256 << 20
PING_AFTER_MS, PING_LIMIT_MS = 2_000, 2_000
_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.enable_retries", 0),
    # A peer that is silent in an answer is given up after these two together.
    ("grpc.keepalive_time_ms", PING_AFTER_MS),
    ("grpc.keepalive_timeout_ms", PING_LIMIT_MS),
    ("grpc.http2.ping_timeout_ms", PING_LIMIT_MS),
    ("grpc.http2.max_pings_without_data", 0),
    # Waiting longer is for the answer to decide.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.min_reconnect_backoff_ms", 5_000),
)
_FORMAT_FROM_PB = {
    pb.GetTokenizerResponse.FORMAT_GGUF: TokenizerFormat.GGUF,
    pb.GetTokenizerResponse.FORMAT_HUGGING_FACE: TokenizerFormat.HUGGING_FACE,
}


class VerifierClient:
    """A channel to one verifier. Every call raises `OutriderError` with what the verifier or the network said."""

    def __init__(self, address: str, *, own_connection: bool = False, access: Access | None = None) -> None:
        """`address` is HOST:PORT; nothing is connected yet. Clients of one process may share a connection unless one
        asks for its own, which passes by any HTTP proxy. Raises USAGE for a token that others could read on its way.
        """
        self.address = address
        access = access or Access()
        access.check_way(address)
        self._access = access
        self._own_connection = own_connection
        self._metadata = (("authorization", f"Bearer {access.token}"),) if access.token else None
        self._links: weakref.WeakSet[GrpcEdgeLink] = weakref.WeakSet()
        self._retired: list[grpc.aio.Channel] = []
        self._closing: set[asyncio.Task[None]] = set()
        self._connect()

    def _connect(self) -> None:
        # A proxy that the environment names cannot reach this machine's own loopback.
        proxy = ("grpc.enable_http_proxy", 0 if self._own_connection or is_loopback(self.address) else 1)
        pool = ("grpc.use_local_subchannel_pool", int(self._own_connection or bool(self._retired)))
        options = (*_OPTIONS, proxy, pool)
        if self._access.credentials is None:
            self._channel = grpc.aio.insecure_channel(self.address, options=options)
        else:
            self._channel = grpc.aio.secure_channel(self.address, self._access.credentials, options=options)
        self._stub: Any = pb_grpc.VerifierServiceStub(self._channel)

    def renew(self) -> None:
        """Leave the connection, which leads nowhere any more: open streams break, later ones get a new one."""
        self._retired.append(self._channel)
        if len(self._retired) > 1:
            # What still ran over it when it was left has had its time.
            task = asyncio.get_running_loop().create_task(self._retired.pop(0).close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
        self._connect()
        for link in list(self._links):
            link.abandon()
        self._links.clear()

    async def get_info(self) -> VerifierInfo:
        """What the verifier serves. Asked again, once, if a connection made before turns out to be broken."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + CONNECT_TIMEOUT_S
        try:
            return await self._get_info(CONNECT_TIMEOUT_S)
        except OutriderError as error:
            if error.reason is not Reason.VERIFIER_UNREACHABLE or loop.time() >= deadline:
                raise
        return await self._get_info(deadline - loop.time())

    async def _get_info(self, limit_s: float) -> VerifierInfo:
        try:
            request = self._stub.GetInfo(pb.GetInfoRequest(), timeout=limit_s, metadata=self._metadata)
            return info_from_pb(await request)
        except grpc.aio.AioRpcError as error:
            raise error_of_status(error, self.address) from None

    async def get_tokenizer(self) -> TokenizerAsset:
        """The target's tokenizer."""
        call = self._stub.GetTokenizer(pb.GetTokenizerRequest(), timeout=TRANSFER_TIMEOUT_S, metadata=self._metadata)
        format_: TokenizerFormat | None = None
        data = bytearray()
        try:
            async for part in call:
                if format_ is None:
                    format_ = _FORMAT_FROM_PB.get(part.format)
                    if format_ is None:
                        raise OutriderError(Reason.PEER_VIOLATION, f"tokenizer format {part.format}.")
                data += part.data
                if len(data) > MAX_TOKENIZER_BYTES:
                    raise OutriderError(Reason.PEER_VIOLATION, "a tokenizer of more than 256 MiB.")
        except grpc.aio.AioRpcError as error:
            raise error_of_status(error, self.address) from None
        finally:
            call.cancel()
        if format_ is None:
            raise OutriderError(Reason.PEER_VIOLATION, "an empty tokenizer.")
        return TokenizerAsset(format_, bytes(data))

    def open_stream(self) -> GrpcEdgeLink:
        """A new `Decode` stream."""
        link = GrpcEdgeLink(self._stub.Decode(metadata=(*(self._metadata or ()), *trace_metadata())), self.address)
        self._links.add(link)
        return link

    async def close(self) -> None:
        """Close the channel and what runs over it."""
        await asyncio.gather(*self._closing, return_exceptions=True)
        for channel in (*self._retired, self._channel):
            await channel.close()


class GrpcEdgeLink:
    """An `EdgeLink` over one `Decode` stream."""

    def __init__(self, call: Any, address: str) -> None:
        self._call = call
        self._address = address
        self._first_status: _Status | None = None
        self._is_closed = False
        call.add_done_callback(self._keep_status)
        self.sent_bytes = 0
        self.received_bytes = 0

    async def send(self, message: EdgeMessage) -> None:
        """See `EdgeLink.send`."""
        for part in edge_message_to_pb(message):
            self.sent_bytes += part.ByteSize()
            # Why a stream cannot be written to any more is told by reading from it.
            with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                try:
                    await self._call.write(part)
                except asyncio.CancelledError:
                    if self._is_task_to_end():
                        raise

    async def receive(self) -> CloudMessage | None:
        """See `EdgeLink.receive`; also raises VERIFIER_UNREACHABLE after `ANSWER_TIMEOUT_S` of silence."""
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                response = await self._call.read()
        except grpc.aio.AioRpcError as error:
            raise _error(await self._true_status(_status_of(error)), self._address) from None
        except asyncio.CancelledError:
            if self._is_task_to_end():
                raise
            raise OutriderError(Reason.VERIFIER_UNREACHABLE, f"{self._address}: the connection was left.") from None
        except TimeoutError:
            text = f"{self._address}: no word in {ANSWER_TIMEOUT_S:g} s."
            raise OutriderError(Reason.VERIFIER_UNREACHABLE, text) from None
        if response == grpc.aio.EOF:
            return None
        self.received_bytes += response.ByteSize()
        return cloud_message_from_pb(response)

    async def close(self) -> None:
        """See `EdgeLink.close`; what has been sent still arrives."""
        if self._is_closed:
            return
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError, TimeoutError):
            async with asyncio.timeout(CLOSE_LIMIT_S):
                await self._call.done_writing()
        self.abandon()

    def abandon(self) -> None:
        """Break the stream at once."""
        self._is_closed = True
        if not self._call.cancel() and self._first_status is not None and self._first_status.is_of_failed_write:
            # grpc.aio holds a stream to be over when a write fails, and cancels it no more. What it had received before
            # keeps the stream, and with it the channel, in memory for good.
            self._call._cython_call.cancel("abandoned")

    def _is_task_to_end(self) -> bool:
        """Whether a cancellation is meant for the task, and not for a call that was broken off while it waited."""
        task = asyncio.current_task()
        return not self._is_closed or (task is not None and task.cancelling() > 0)

    def _keep_status(self, call: Any) -> None:
        """Remember the status that the stream ends with, in the moment it arrives."""
        values = [_value_at_once(method()) for method in (call.code, call.details, call.trailing_metadata)]
        if self._first_status is None and values[0] is not None:
            self._first_status = _Status(*values)

    async def _true_status(self, status: _Status) -> _Status:
        """The verifier's own status where grpc.aio hides it: a write that fails because the verifier has ended the
        stream replaces the status with one of its own (grpc issue 36066), before or after the true one arrives.
        """
        if not status.is_of_failed_write:
            return status
        if self._first_status is not None and not self._first_status.is_of_failed_write:
            return self._first_status
        loop = asyncio.get_running_loop()
        deadline = loop.time() + STATUS_WAIT_S
        while loop.time() < deadline:
            await asyncio.sleep(0.005)
            now = _Status(await self._call.code(), await self._call.details(), await self._call.trailing_metadata())
            if not now.is_of_failed_write:
                return now
        return _Status(grpc.StatusCode.UNAVAILABLE, "the stream broke off while writing", ())


@dataclass(frozen=True, slots=True)
class _Status:
    """How a call ended."""

    code: grpc.StatusCode
    details: str | None
    trailers: Any

    @property
    def is_of_failed_write(self) -> bool:
        """Whether grpc.aio made it up when a write failed."""
        return self.code is grpc.StatusCode.INTERNAL and self.details == "Internal error from Core"


def _status_of(error: grpc.aio.AioRpcError) -> _Status:
    return _Status(error.code(), error.details(), error.trailing_metadata())


def _value_at_once(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """What a coroutine returns that has nothing to wait for; None if it has."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    coroutine.close()
    return None


def error_of_status(error: grpc.aio.AioRpcError, address: str) -> OutriderError:
    """The typed error that a failed call carries; without details of ours, one that fits the code."""
    return _error(_status_of(error), address)


def _error(status: _Status, address: str) -> OutriderError:
    info, retry = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
    retry_after_s = None
    reason = None
    for detail in _details_of(status.trailers):
        if detail.Unpack(info) and info.domain == ERROR_DOMAIN and info.reason in Reason.__members__:
            reason = Reason[info.reason]
        elif detail.Unpack(retry):
            retry_after_s = retry.retry_delay.ToNanoseconds() / 1e9
    if reason is not None:
        text = f"The verifier at {address} says: {status.details}"
        return OutriderError(reason, text, from_peer=True, retry_after_s=retry_after_s)
    details = (status.details or "").rstrip(".")
    return OutriderError(_reason_of_code(status), f"{address}: {status.code.name}: {details}.")


def _reason_of_code(status: _Status) -> Reason:
    """What fits a status that something else than the verifier's own code has made."""
    match status.code:
        case grpc.StatusCode.UNAVAILABLE | grpc.StatusCode.DEADLINE_EXCEEDED:
            return Reason.VERIFIER_UNREACHABLE
        case grpc.StatusCode.UNAUTHENTICATED:
            return Reason.UNAUTHENTICATED
        case grpc.StatusCode.RESOURCE_EXHAUSTED if "larger than max" in (status.details or ""):
            return Reason.MESSAGE_TOO_LARGE
        case _:
            return Reason.PEER_VIOLATION


def _details_of(trailers: Any) -> list[Any]:
    for key, value in trailers or ():
        if key == STATUS_DETAILS_KEY and isinstance(value, bytes):
            status = status_pb2.Status()
            try:
                status.ParseFromString(value)
            except ValueError:
                return []
            return list(status.details)
    return []
