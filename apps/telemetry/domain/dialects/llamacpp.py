"""The embedded llama.cpp model on Triton's python backend: families `inflight_*`, always current.

Triton's own success counter of this model counts requests when the model takes them, its durations cover only the
hand-over, so both are not what their names say.
"""

from __future__ import annotations

from apps.telemetry.domain import figures
from apps.telemetry.domain.figures import Figures
from apps.telemetry.domain.prometheus import Exposition

WANTED = frozenset(
    {
        "inflight_ttft_seconds",
        "inflight_itl_seconds",
        "inflight_e2e_seconds",
        "inflight_queue_seconds",
        "inflight_batch_size",
        "inflight_prompt_tokens_total",
        "inflight_prompt_tokens_cached_total",
        "inflight_generated_tokens_total",
        "inflight_requests_finished_total",
        "inflight_requests_running",
        "inflight_requests_waiting",
        "inflight_slots",
        "inflight_slots_busy",
        "inflight_kv_tokens_used",
        "inflight_kv_tokens_capacity",
    }
)
_GOOD = frozenset({"stop", "length"})
_TIMES = {"ttft": "ttft", "itl": "itl", "e2e": "e2e", "queue": "queue"}


def read(exposition: Exposition) -> Figures | None:
    """Its figures; None where its families are not there."""
    if "inflight_requests_running" not in exposition.samples:
        return None
    found = Figures()
    for name, family in _TIMES.items():
        found.histogram(name, figures.histograms(exposition, f"inflight_{family}_seconds", 1000.0))
    batch = figures.histograms(exposition, "inflight_batch_size")
    found.histogram("batch_size", batch)
    found.counter("iterations", {series: value.count for series, value in batch.items()})
    ends = exposition.samples.get("inflight_requests_finished_total", ())
    found.counter("requests", figures.grouped(ends))
    found.counters |= figures.ended(exposition, "inflight_requests_finished_total", "reason", _GOOD)
    found.counter("generated", figures.counter(exposition, "inflight_generated_tokens_total"))
    found.counter("prompt", figures.counter(exposition, "inflight_prompt_tokens_total"))
    found.counter("cached", figures.counter(exposition, "inflight_prompt_tokens_cached_total"))
    mine = set(found.counters.get("requests", {}))
    accepted = figures.counter(exposition, "nv_inference_request_success")
    found.counter("accepted", {series: value for series, value in accepted.items() if series in mine})
    for name in ("requests_running", "requests_waiting", "slots", "slots_busy", "kv_tokens_used"):
        found.gauge(name, exposition.total(f"inflight_{name}"))
    found.gauge("kv_tokens_capacity", exposition.total("inflight_kv_tokens_capacity"))
    running, waiting = found.gauges.get("requests_running"), found.gauges.get("requests_waiting")
    if running is not None and waiting is not None:
        found.gauge("requests_active", running + waiting)
    return found
