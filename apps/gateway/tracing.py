"""OpenTelemetry traces of requests, only where OTEL_EXPORTER_OTLP_ENDPOINT is set; nothing is imported otherwise.

One span a request, from its first byte to its end, as a child of the caller's traceparent and the parent of the
upstream's. Spans leave in batches from a thread of the exporter's. No prompt, answer or key is ever in one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


class Tracing:
    """Spans of requests; without an endpoint every call does nothing."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self._tracer: Any = None
        self._provider: Any = None
        self._propagator: Any = None
        if (os.environ if environ is None else environ).get(ENDPOINT):
            self._start()

    def _start(self) -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._provider = TracerProvider(resource=Resource.create({"service.name": "inflight-gateway"}))
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("inflight.gateway")
        self._propagator = TraceContextTextMapPropagator()

    def begin(self, name: str, traceparent: str, began_at: float) -> Any:
        """A span that began at an epoch second, or None where nothing is traced."""
        if self._tracer is None:
            return None
        context = self._propagator.extract({"traceparent": traceparent} if traceparent else {})
        return self._tracer.start_span(name, context=context, start_time=int(began_at * 1e9))

    def parent_of(self, span: Any) -> str:
        """The traceparent for an upstream; empty where nothing is traced."""
        if span is None:
            return ""
        from opentelemetry.trace import set_span_in_context

        carrier: dict[str, str] = {}
        self._propagator.inject(carrier, context=set_span_in_context(span))
        return carrier.get("traceparent", "")

    def finish(self, span: Any, attributes: Mapping[str, Any], failed: str = "") -> None:
        """End a span; attributes that are None are left out."""
        if span is None:
            return
        for name, value in attributes.items():
            if value is not None:
                span.set_attribute(name, value)
        if failed:
            from opentelemetry.trace import StatusCode

            span.set_status(StatusCode.ERROR, failed)
        span.end(end_time=time.time_ns())

    def close(self) -> None:
        """Send what is left; blocks."""
        if self._provider is not None:
            self._provider.shutdown()
