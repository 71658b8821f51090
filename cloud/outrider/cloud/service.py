"""The gRPC face of a verifier: converts, calls, converts, and turns every failure into a status with a reason. It
holds no state of its own.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Any, NoReturn

import grpc
from google.protobuf import any_pb2, duration_pb2
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from outrider.cloud.gate import Gate
from outrider.cloud.incidents import internal_error
from outrider.cloud.logs import stream_names
from outrider.cloud.observed_link import ObservedLink
from outrider.cloud.observer import Observer
from outrider.cloud.padding import pad_commit
from outrider.cloud.principal import Principal
from outrider.cloud.verifier import Verifier
from outrider.shared.convert import EdgeMessageReader, cloud_message_to_pb, info_to_pb
from outrider.shared.errors import ERROR_DOMAIN, STATUS_DETAILS_KEY, OutriderError, Reason
from outrider.shared.messages import CloudMessage, Commit, EdgeMessage, Grow
from outrider.shared.tokenizer_asset import TokenizerFormat
from outrider.v1 import verifier_pb2 as pb
from outrider.v1 import verifier_pb2_grpc as pb_grpc

logger = logging.getLogger(__name__)

MAX_ERROR_TEXT = 1024
REQUEST_ID_KEY = "outrider-request-id"
TOKENIZER_PART_BYTES = 1 << 20
_FORMAT_TO_PB = {
    TokenizerFormat.GGUF: pb.GetTokenizerResponse.FORMAT_GGUF,
    TokenizerFormat.HUGGING_FACE: pb.GetTokenizerResponse.FORMAT_HUGGING_FACE,
}

Context = Any  # grpc.aio.ServicerContext, whose stubs leave read and write untyped


class _GrpcCloudLink:
    """A `CloudLink` over a servicer context."""

    def __init__(self, context: Context, pad_commits: bool, observer: Observer | None) -> None:
        self._context = context
        self._pad_commits = pad_commits
        self._observer = observer
        self._reader = EdgeMessageReader()

    async def send(self, message: CloudMessage) -> None:
        """See `CloudLink.send`."""
        response = cloud_message_to_pb(message)
        if self._pad_commits and isinstance(message, Commit):
            pad_commit(response)
        await self._context.write(response)

    async def receive(self) -> EdgeMessage | None:
        """See `CloudLink.receive`."""
        while True:
            try:
                request = await self._context.read()
            except DecodeError:
                raise OutriderError(Reason.MESSAGE_MALFORMED) from None
            if request == grpc.aio.EOF:
                return None
            message = self._reader.read(request)
            if self._observer is not None and isinstance(message, Grow):
                self._observer.on_grow(request.ByteSize())
            if message is not None:
                return message


class VerifierService(pb_grpc.VerifierServiceServicer):
    """`outrider.v1.VerifierService` over a `Verifier`, for those whom `gate` knows."""

    def __init__(self, verifier: Verifier, gate: Gate, *, pad_commits: bool = False) -> None:
        self._verifier = verifier
        self._gate = gate
        self._pad_commits = pad_commits

    async def GetInfo(self, request: pb.GetInfoRequest, context: Context) -> pb.GetInfoResponse:
        """What the verifier serves."""
        async with self._admitted(context):
            return info_to_pb(self._verifier.info())

    async def GetTokenizer(
        self, request: pb.GetTokenizerRequest, context: Context
    ) -> AsyncIterator[pb.GetTokenizerResponse]:
        """The target's tokenizer, in parts."""
        async with self._admitted(context):
            asset = self._verifier.tokenizer_asset
            yield pb.GetTokenizerResponse(format=_FORMAT_TO_PB[asset.format])
            for start in range(0, len(asset.data), TOKENIZER_PART_BYTES):
                yield pb.GetTokenizerResponse(data=asset.data[start : start + TOKENIZER_PART_BYTES])

    async def Decode(self, request_iterator: object, context: Context) -> None:
        """One answer."""
        observer = self._verifier.observer
        watched = contextlib.nullcontext() if observer is None else observer.stream(context.invocation_metadata() or ())
        with watched, stream_names() as names:
            async with self._admitted(context) as principal:
                await context.send_initial_metadata(((REQUEST_ID_KEY, names.request),))
                link = ObservedLink(_GrpcCloudLink(context, self._pad_commits, observer), names, observer)
                try:
                    await self._verifier.serve(link, principal)
                finally:
                    link.end()

    @contextlib.asynccontextmanager
    async def _admitted(self, context: Context) -> AsyncIterator[Principal]:
        """Yield who is calling, and end the call with a typed status, whatever is raised inside."""
        try:
            yield self._gate.principal(context)
        except OutriderError as error:
            await self.refuse(context, error)
        except grpc.aio.AbortError:
            raise
        except Exception as error:
            await self.refuse(context, internal_error("call failed", error))

    async def refuse(self, context: Context, error: OutriderError) -> NoReturn:
        """End a call with `error`. It is logged and counted by its reason: the rest may be what the peer sent."""
        if error.reason is Reason.INTERNAL:
            logger.info("failed: %s", error.detail)
        else:
            logger.info("refused: %s", error.reason.value)
        if self._verifier.observer is not None:
            self._verifier.observer.on_refused(error.reason)
        await abort(context, error)


async def abort(context: Context, error: OutriderError) -> NoReturn:
    """End a call with the status, the reason and the text of `error`."""
    code = grpc.StatusCode[error.status]
    # Trailers have a size limit of their own, past which the peer would see neither text nor reason.
    text = error.message[:MAX_ERROR_TEXT]
    status = status_pb2.Status(code=code.value[0], message=text, details=_details(error))
    await context.abort(code, text, ((STATUS_DETAILS_KEY, status.SerializeToString()),))
    raise AssertionError("abort raises")


def _details(error: OutriderError) -> list[any_pb2.Any]:
    info = any_pb2.Any()
    info.Pack(error_details_pb2.ErrorInfo(reason=error.reason, domain=ERROR_DOMAIN))
    if error.retry_after_s is None:
        return [info]
    delay = duration_pb2.Duration()
    delay.FromNanoseconds(round(error.retry_after_s * 1_000_000_000))
    retry = any_pb2.Any()
    retry.Pack(error_details_pb2.RetryInfo(retry_delay=delay))
    return [info, retry]
