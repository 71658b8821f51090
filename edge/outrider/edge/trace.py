"""Tells the verifier which trace the calling program is in, if that is traced by OpenTelemetry. Nothing else about it
travels.
"""

from __future__ import annotations

try:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ModuleNotFoundError:  # the extra `telemetry` is not there
    _PROPAGATOR = None
else:
    _PROPAGATOR = TraceContextTextMapPropagator()

TRACEPARENT = "traceparent"


def trace_metadata() -> tuple[tuple[str, str], ...]:
    """The W3C `traceparent` of the current span as gRPC metadata; empty without one."""
    if _PROPAGATOR is None:
        return ()
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier)
    return ((TRACEPARENT, carrier[TRACEPARENT]),) if TRACEPARENT in carrier else ()
