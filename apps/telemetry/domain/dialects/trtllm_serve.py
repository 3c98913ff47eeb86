"""trtllm-serve (and the LLM API behind it) under /prometheus/metrics: families `trtllm_*`.

1.1 had five basic ones; later releases add token counters, queue length and errors. Times are in seconds.
`time_per_output_token` is one mean an answer, so it is TPOT and not the gap between tokens.
"""

from __future__ import annotations

from apps.telemetry.domain import figures
from apps.telemetry.domain.figures import Figures
from apps.telemetry.domain.prometheus import Exposition

_P = "trtllm_"
_TIMES = {
    "ttft": "time_to_first_token_seconds",
    "tpot": "time_per_output_token_seconds",
    "e2e": "e2e_request_latency_seconds",
    "queue": "request_queue_time_seconds",
}
_COUNTERS = {
    "prompt": "prompt_tokens_total",
    "cached": "prompt_cached_tokens_total",
    "generated": "generation_tokens_total",
}
_GAUGES = {
    "kv_use": "kv_cache_utilization",
    "kv_hit_rate": "kv_cache_hit_rate",
    "requests_waiting": "server_queue_length",
    "requests_active": "num_active_requests",
    "context_requests": "prefill_num_context_requests",
}
_SUCCESS = f"{_P}request_success_total"
_ERROR = f"{_P}request_error_total"
_GOOD = frozenset({"stop", "length", "end_id", "stop_words"})

WANTED = frozenset(
    {_SUCCESS, _ERROR} | {f"{_P}{name}" for names in (_TIMES, _COUNTERS, _GAUGES) for name in names.values()}
)


def read(exposition: Exposition) -> Figures | None:
    """Its figures; None where its families are not there."""
    if not any(name.startswith(_P) for name in exposition.samples):
        return None
    found = Figures()
    for name, family in _TIMES.items():
        found.histogram(name, figures.histograms(exposition, f"{_P}{family}", 1000.0))
    for name, family in _COUNTERS.items():
        found.counter(name, figures.counter(exposition, f"{_P}{family}"))
    for name, family in _GAUGES.items():
        told = exposition.values(f"{_P}{family}")
        if told:
            # Several engines behind one server: shares are averaged, numbers are added.
            shared = name in {"kv_use", "kv_hit_rate"}
            found.gauge(name, sum(told) / len(told) if shared else sum(told))
    found.counter("requests", figures.counter(exposition, _SUCCESS))
    found.counters |= figures.ended(exposition, _SUCCESS, "finished_reason", _GOOD)
    for name, values in figures.ended(exposition, _ERROR, "http_code").items():
        found.counter(name.replace("ended/", "ended/http_"), values)
    return found
