"""Triton's own families `nv_*`: what every backend gives, and what the host and its GPUs show.

Labels: model and version, sometimes gpu_uuid and more, so values are always added by model and version first.
Duration counters are microseconds, summaries too, the first-response histogram is whole milliseconds.
"""

from __future__ import annotations

from apps.telemetry.domain import figures
from apps.telemetry.domain.figures import BySeries, Figures
from apps.telemetry.domain.prometheus import Exposition

SUCCESS = "nv_inference_request_success"
FAILURE = "nv_inference_request_failure"
FIRST_RESPONSE = "nv_inference_first_response_histogram_ms"
_PER_GPU = {
    "gpu_use": "nv_gpu_utilization",
    "gpu_memory_used_bytes": "nv_gpu_memory_used_bytes",
    "gpu_memory_total_bytes": "nv_gpu_memory_total_bytes",
    "gpu_power_watts": "nv_gpu_power_usage",
    "gpu_power_limit_watts": "nv_gpu_power_limit",
    "energy_total_joules": "nv_energy_consumption",
}
_HOST = {
    "host_cpu_use": "nv_cpu_utilization",
    "host_memory_used_bytes": "nv_cpu_memory_used_bytes",
    "host_memory_total_bytes": "nv_cpu_memory_total_bytes",
}
_CACHE = {"cache_hits": "nv_cache_num_hits_per_model", "cache_misses": "nv_cache_num_misses_per_model"}

WANTED = frozenset(
    {
        SUCCESS,
        FAILURE,
        FIRST_RESPONSE,
        "nv_inference_count",
        "nv_inference_exec_count",
        "nv_inference_request_duration_us",
        "nv_inference_queue_duration_us",
        "nv_inference_pending_request_count",
        "nv_inference_load_ratio",
        "nv_model_load_duration_secs",
        "nv_pinned_memory_pool_total_bytes",
        "nv_pinned_memory_pool_used_bytes",
        *_PER_GPU.values(),
        *_HOST.values(),
        *_CACHE.values(),
    }
)


def read(exposition: Exposition) -> Figures | None:
    """What Triton itself tells; None where it tells nothing."""
    if not any(name.startswith("nv_") for name in exposition.samples):
        return None
    found = Figures()
    _requests(exposition, found)
    _executions(exposition, found)
    for name, family in _CACHE.items():
        found.counter(name, figures.counter(exposition, family))
    pending = figures.grouped(exposition.samples.get("nv_inference_pending_request_count", ()))
    if pending:
        found.gauge("requests_pending", sum(pending[series] for series in pending))
    loads = exposition.values("nv_model_load_duration_secs")
    found.gauge("model_load_seconds", max(loads) if loads else None)
    for name in ("used", "total"):
        found.gauge(f"pinned_pool_{name}_bytes", exposition.total(f"nv_pinned_memory_pool_{name}_bytes"))
    for name, family in _HOST.items():
        values = exposition.values(family)
        if values:
            found.host[name] = values[-1]
    for name, family in _PER_GPU.items():
        for sample in exposition.samples.get(family, ()):
            if sample.value == sample.value:
                found.gpus.setdefault(sample.labels.get("gpu_uuid", ""), {})[name] = sample.value
    return found


def _requests(exposition: Exposition, found: Figures) -> None:
    """Requests of whole models: those of an ensemble's steps are parts of its own, and fail with it."""
    success = figures.counter(exposition, SUCCESS)
    failures = figures.ended(exposition, FAILURE, "reason")
    counting = figures.whole({*success, *(series for values in failures.values() for series in values)})
    found.counter("requests", _only(success, counting))
    for name, values in failures.items():
        found.counter(name, _only(values, counting))
    ttft = figures.histograms(exposition, FIRST_RESPONSE)
    found.histogram("ttft", {series: ttft[series] for series in figures.whole(ttft)})
    found.counter("base_requests", _only(success, counting))
    for name, family in (("request_ms", "request"), ("queue_ms", "queue")):
        durations = figures.counter(exposition, f"nv_inference_{family}_duration_us", 1e-3)
        found.counter(name, _only(durations, counting))


def _executions(exposition: Exposition, found: Figures) -> None:
    """Requests and executions of models that run something: an ensemble's row repeats its steps'."""
    executed = figures.counter(exposition, "nv_inference_count")
    executions = figures.counter(exposition, "nv_inference_exec_count")
    engine = {series for series in executed if figures.is_engine(series)} or set(executed)
    found.counter("executed", _only(executed, engine))
    found.counter("executions", _only(executions, engine))


def _only(values: BySeries, series: set[str]) -> BySeries:
    return {each: value for each, value in values.items() if each in series}
