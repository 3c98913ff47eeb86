"""vLLM on Triton's python backend: families `vllm:*`, where its custom metrics are switched on. Times in seconds."""

from __future__ import annotations

from apps.telemetry.domain import figures
from apps.telemetry.domain.figures import Figures
from apps.telemetry.domain.prometheus import Exposition

_P = "vllm:"
_TIMES = {
    "ttft": "time_to_first_token_seconds",
    # Observed for each token, so the gap between tokens in spite of its name.
    "itl": "time_per_output_token_seconds",
    "e2e": "e2e_request_latency_seconds",
    "queue": "request_queue_time_seconds",
}
_LENGTHS = {"prompt_tokens": "request_prompt_tokens", "generated_tokens": "request_generation_tokens"}
_COUNTERS = {"prompt": "prompt_tokens_total", "generated": "generation_tokens_total"}
_GAUGES = {"requests_running": "num_requests_running", "requests_waiting": "num_requests_waiting"}

WANTED = frozenset(
    f"{_P}{name}" for names in (_TIMES, _LENGTHS, _COUNTERS, _GAUGES) for name in names.values()
)


def read(exposition: Exposition) -> Figures | None:
    """Its figures; None where its families are not there."""
    if not any(name.startswith(_P) for name in exposition.samples):
        return None
    found = Figures()
    for name, family in _TIMES.items():
        found.histogram(name, figures.histograms(exposition, f"{_P}{family}", 1000.0))
    for name, family in _LENGTHS.items():
        found.histogram(name, figures.histograms(exposition, f"{_P}{family}"))
    for name, family in _COUNTERS.items():
        found.counter(name, figures.counter(exposition, f"{_P}{family}"))
    for name, family in _GAUGES.items():
        found.gauge(name, exposition.total(f"{_P}{family}"))
    # One end-to-end value is written for each request that ended.
    found.counter("requests", {s: h.count for s, h in found.histograms.get("e2e", {}).items()})
    return found
