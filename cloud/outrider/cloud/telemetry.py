"""Traces of streams and passes for OpenTelemetry. A span belongs to the trace of the caller's `traceparent`; what it
tells are counts and times, and of a session the beginning of its id.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Iterator

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, get_current_span, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from outrider.cloud.logs import SHOWN_ID_LENGTH
from outrider.cloud.observer import AnswerEnd, Metadata, Observer, PassReport, PassShare
from outrider.shared.errors import OutriderError, Reason
from outrider.shared.version import software_version

SERVICE_NAME = "outrider-verifier"
# So long may the last spans take on their way out: less than a verifier has past its grace period.
FLUSH_LIMIT_S = 0.8
_PROPAGATOR = TraceContextTextMapPropagator()


class Tracing(Observer):
    """A span for each stream, and below it one for each pass that its session had a share of."""

    def __init__(self, provider: TracerProvider) -> None:
        self._tracer = provider.get_tracer("outrider.cloud", software_version())
        # By the id of the session; whoever takes a session over goes on in a span of its own.
        self._spans: dict[str, Span] = {}

    @contextlib.contextmanager
    def stream(self, metadata: Metadata) -> Iterator[None]:
        """See `Observer.stream`."""
        carrier = {key: value for key, value in metadata if key in _PROPAGATOR.fields and isinstance(value, str)}
        # An empty context: whatever this process itself is traced by is not what the caller is traced by.
        context = _PROPAGATOR.extract(carrier, Context())
        with self._tracer.start_as_current_span(
            "outrider.decode", context, SpanKind.SERVER, record_exception=False, set_status_on_exception=False
        ) as span:
            try:
                yield
            finally:
                for session_id in [key for key, value in self._spans.items() if value is span]:
                    del self._spans[session_id]

    def on_opened(self, session_id: str) -> None:
        """See `Observer.on_opened`."""
        span = get_current_span()
        span.set_attribute("outrider.session", session_id[:SHOWN_ID_LENGTH])
        self._spans[session_id] = span

    def on_finished(self, end: AnswerEnd) -> None:
        """See `Observer.on_finished`."""
        get_current_span().set_attributes(
            {
                "outrider.finish_reason": end.reason.value,
                "outrider.tokens": end.token_count,
                "outrider.passes": end.passes,
            }
        )

    def on_refused(self, reason: Reason) -> None:
        """See `Observer.on_refused`."""
        span = get_current_span()
        span.set_attribute("outrider.reason", reason.value)
        span.set_status(Status(StatusCode.ERROR, reason.value))

    def on_pass(self, report: PassReport) -> None:
        """See `Observer.on_pass`."""
        end_ns = time.time_ns()
        for share in report.shares:
            stream = self._spans.get(share.session_id)
            if stream is None or not stream.is_recording():
                continue
            span = self._tracer.start_span(
                "outrider.pass",
                set_span_in_context(stream, Context()),
                attributes=_attributes(report, share),
                start_time=end_ns - report.pass_ns,
            )
            if report.failed:
                span.set_status(Status(StatusCode.ERROR))
            span.end(end_ns)


def _attributes(report: PassReport, share: PassShare) -> dict[str, int | float]:
    return {
        "outrider.rows": share.rows,
        "outrider.nodes": share.checked_count,
        "outrider.accepted": share.accepted_count,
        "outrider.tokens": share.token_count,
        "outrider.queue_ms": share.queue_ns / 1e6,
        "outrider.pass_rows": report.rows,
        "outrider.pass_sessions": len(report.shares),
    }


@contextlib.asynccontextmanager
async def exported() -> AsyncIterator[Tracing]:
    """Traces that go where the OTEL_ variables of the environment say, to the end of the context. Raises USAGE for
    variables that say nothing of use.
    """
    named = Resource.create({"service.name": SERVICE_NAME})
    try:
        provider = TracerProvider(resource=named.merge(OTELResourceDetector().detect()), shutdown_on_exit=False)
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    except ValueError as error:
        raise OutriderError(Reason.USAGE, f"--telemetry: an OTEL_ variable of the environment: {error}.") from None
    try:
        yield Tracing(provider)
    finally:
        # A thread that the process does not wait for: a collector may be away.
        flusher = threading.Thread(target=provider.shutdown, daemon=True, name="telemetry")
        flusher.start()
        await asyncio.to_thread(flusher.join, FLUSH_LIMIT_S)
