"""The gateway's own figures for Prometheus. A request is counted once, at its end; a token costs nothing here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from apps.gateway.domain.facts import RequestRecord

MILLISECONDS = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0)
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)


class GatewayMetrics:
    """Counters and histograms of one process. Labels never hold a key or a request."""

    def __init__(self, running: Callable[[], int], waiting: Callable[[], int]) -> None:
        self.registry = CollectorRegistry()
        make: dict[str, Any] = {"namespace": "inflight_gateway", "registry": self.registry}
        self._requests = Counter(
            "requests", "Requests by how they ended.", ("route", "status", "outcome"), **make
        )
        self._tokens = Counter("tokens", "Tokens that engines counted.", ("route", "direction"), **make)
        self._overhead = Histogram(
            "overhead_seconds",
            "The gateway's own time until the first token, from the socket's first byte; waiting apart.",
            buckets=MILLISECONDS,
            **make,
        )
        self._ttft = Histogram(
            "time_to_first_token_seconds",
            "From the first byte of a request.",
            ("route",),
            buckets=SECONDS,
            **make,
        )
        self._queue = Histogram(
            "queue_seconds", "Time that requests waited for a slot.", ("route",), buckets=SECONDS, **make
        )
        self._duration = Histogram("request_seconds", "Whole requests.", ("route",), buckets=SECONDS, **make)
        self.loop_lag = Histogram(
            "loop_lag_seconds", "How late the event loop wakes.", buckets=MILLISECONDS, **make
        )
        self.retries = Counter("retries", "Attempts on another upstream.", ("route", "reason"), **make)
        self.ejections = Counter("ejections", "Upstreams put aside.", ("upstream",), **make)
        Gauge("running", "Requests that run.", **make).set_function(running)
        Gauge("waiting", "Requests that wait for a slot.", **make).set_function(waiting)

    def ended(self, record: RequestRecord) -> None:
        """Count a request."""
        route = record.route
        self._requests.labels(route, str(record.status), record.outcome).inc()
        if record.total_seconds is not None:
            self._duration.labels(route).observe(record.total_seconds)
        if record.overhead_seconds is not None:
            self._overhead.observe(record.overhead_seconds)
        if record.ttft_seconds is not None:
            self._ttft.labels(route).observe(record.ttft_seconds)
        if record.queue_seconds is not None:
            self._queue.labels(route).observe(record.queue_seconds)
        if record.prompt_tokens is not None:
            self._tokens.labels(route, "prompt").inc(record.prompt_tokens)
        if record.completion_tokens is not None:
            self._tokens.labels(route, "completion").inc(record.completion_tokens)

    def text(self) -> bytes:
        """The exposition."""
        return generate_latest(self.registry)
