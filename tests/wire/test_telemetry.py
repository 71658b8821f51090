"""Traces over real gRPC: one from the edge's program through the stream to its passes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from outrider.cloud.telemetry import Tracing, exported
from outrider.cloud.watching import Watch
from outrider.edge.agent import Agent
from outrider.edge.chunks import Result
from outrider.shared.errors import OutriderError, Reason
from outrider.shared.sampling.options import Sampling
from support.refusal import refused
from support.serving import open_request, raw_stream, serving

TRACE = "0af7651916cd43dd8448eb211c80319c"


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@contextlib.contextmanager
def provided(exporter: InMemorySpanExporter) -> Iterator[TracerProvider]:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    try:
        yield provider
    finally:
        provider.shutdown()


async def answered(address: str) -> Result:
    async with Agent.connect(address, "tiny:0.5", control="fixed", gamma=4) as agent:
        return await agent.answer("hello", Sampling(max_tokens=24))


def spans_of(exporter: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [span for span in exporter.get_finished_spans() if span.name == name]


def counts(span: ReadableSpan, key: str) -> int:
    value = (span.attributes or {})[f"outrider.{key}"]
    assert isinstance(value, int)
    return value


async def test_each_pass_is_a_span_below_the_stream_below_the_edges_own(exporter: InMemorySpanExporter) -> None:
    with provided(InMemorySpanExporter()) as edge, provided(exporter) as cloud:
        async with serving(watch=Watch(Tracing(cloud))) as address:
            with edge.get_tracer("a program").start_as_current_span("its work") as work:
                result = await answered(address)
    (stream,) = spans_of(exporter, "outrider.decode")
    passes = spans_of(exporter, "outrider.pass")
    context = stream.context
    assert context is not None
    assert stream.parent is not None
    assert (stream.parent.trace_id, stream.parent.span_id) == (
        work.get_span_context().trace_id,
        work.get_span_context().span_id,
    )
    assert stream.parent.is_remote
    assert all(span.parent is not None and span.parent.span_id == context.span_id for span in passes)
    assert sum(counts(span, "tokens") for span in passes) == len(result.committed_ids) == counts(stream, "tokens")
    assert sum(counts(span, "accepted") for span in passes) == result.stats["walked"]
    assert sum(counts(span, "tokens") > 0 for span in passes) == result.stats["passes"] == counts(stream, "passes")
    assert all(0 <= counts(span, "accepted") <= counts(span, "nodes") < counts(span, "rows") for span in passes)
    assert all("outrider.queue_ms" in (span.attributes or {}) for span in passes)
    for span in passes:
        assert span.start_time is not None
        assert span.end_time is not None
        assert stream.start_time is not None
        # The clock of days and that of passes are two.
        assert stream.start_time - 5_000_000 <= span.start_time <= span.end_time
    assert (stream.attributes or {})["outrider.session"] == result.session_id[:8]
    assert not any(result.session_id in str(span.attributes) for span in (stream, *passes))


async def test_without_a_span_the_edge_sends_none_and_a_stream_begins_a_trace(exporter: InMemorySpanExporter) -> None:
    with provided(exporter) as cloud:
        async with serving(watch=Watch(Tracing(cloud))) as address:
            await answered(address)
            await answered(address)
    first, second = spans_of(exporter, "outrider.decode")
    assert first.parent is second.parent is None
    assert first.context is not None
    assert second.context is not None
    assert first.context.trace_id != second.context.trace_id


@pytest.mark.parametrize(
    ("traceparent", "is_taken"),
    [
        (f"00-{TRACE}-b7ad6b7169203331-01", True),
        (f"00-{TRACE}-0000000000000000-01", False),
        ("00-" + "0" * 32 + "-b7ad6b7169203331-01", False),
        ("nonsense", False),
    ],
)
async def test_a_refused_stream_is_an_error_in_the_callers_trace(
    exporter: InMemorySpanExporter, traceparent: str, is_taken: bool
) -> None:
    with provided(exporter) as cloud:
        async with (
            serving(watch=Watch(Tracing(cloud))) as address,
            raw_stream(address, [("traceparent", traceparent)]) as stream,
        ):
            await stream.send(open_request(prompt_ids=[]))
            with pytest.raises(OutriderError):
                await stream.receive()
    (span,) = spans_of(exporter, "outrider.decode")
    assert span.context is not None
    assert (f"{span.context.trace_id:032x}" == TRACE) is is_taken
    assert span.status.status_code is StatusCode.ERROR
    assert (span.attributes or {})["outrider.reason"] == "PROMPT_EMPTY"
    assert not span.events


async def test_what_watches_keeps_nothing_of_streams_that_are_over(exporter: InMemorySpanExporter) -> None:
    with provided(exporter) as cloud:
        tracing = Tracing(cloud)
        async with serving(watch=Watch(tracing)) as address:
            await answered(address)
        assert not tracing._spans


@pytest.mark.parametrize(("name", "value"), [("OTEL_EXPORTER_OTLP_TIMEOUT", "x"), ("OTEL_BSP_MAX_QUEUE_SIZE", "-1")])
async def test_a_variable_that_says_nothing_of_use_is_a_usage_error(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with refused(Reason.USAGE, "OTEL_"):
        async with exported():
            pass
