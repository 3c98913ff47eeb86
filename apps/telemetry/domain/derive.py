"""From scrapes to samples, in three steps, so that several instances merge rightly.

`read` takes the wanted figures out of one exposition; `interval` is what happened between two readings of one server
(differences of counters and histograms, gauges as they stand); `merge` adds the intervals of several servers and
`sample` names the result by the one vocabulary. What a server does not tell stays None all the way.
"""

from __future__ import annotations

from collections.abc import Mapping

from apps.telemetry.domain.histogram import Histogram
from apps.telemetry.domain.interval import LONGEST_STEP, Amounts, Interval, Window, carried, interval, merge
from apps.telemetry.domain.reading import WANTED, Reading, read
from apps.telemetry.domain.vocabulary import NAMES

__all__ = [
    "GAUGES",
    "LONGEST_STEP",
    "QUANTILES",
    "RATES",
    "RATIOS",
    "WANTED",
    "Amounts",
    "Interval",
    "Reading",
    "Sample",
    "Window",
    "carried",
    "ends",
    "interval",
    "merge",
    "quantiles",
    "read",
    "sample",
]

Sample = dict[str, float | None]

# Percentiles of a sample: key, histogram, share.
QUANTILES: tuple[tuple[str, str, float], ...] = tuple(
    (f"{name}_p{percent}_ms", name, percent / 100)
    for name, percents in (
        ("ttft", (50, 90, 99)),
        ("itl", (50, 99)),
        ("tpot", (50, 99)),
        ("e2e", (50, 90, 99)),
        ("queue", (50, 99)),
    )
    for percent in percents
)
# Rates of a sample by the counter that they come from.
RATES: dict[str, str] = {
    "requests_per_second": "requests",
    "requests_accepted_per_second": "accepted",
    "generated_tokens_per_second": "generated",
    "prompt_tokens_per_second": "prompt",
    "kv_blocks_reused_per_second": "blocks_reused",
    "iterations_per_second": "iterations",
}
# Ratios of a sample by their parts.
RATIOS: dict[str, tuple[str, str]] = {
    "cached_prompt_share": ("cached", "prompt"),
    "batch_size_mean": ("sequences", "steps"),
    "triton_batch_size_mean": ("executed", "executions"),
    "response_cache_hit_rate": ("cache_hits", "cache_lookups"),
    "queue_mean_ms": ("queue_ms", "queue_n"),
    "request_mean_ms": ("request_ms", "request_n"),
    "kv_hit_rate": ("kv_hit_rate_told", "kv_hit_rate_tellers"),
}
GAUGES: tuple[str, ...] = (
    "requests_running",
    "requests_waiting",
    "requests_pending",
    "requests_active",
    "requests_paused",
    "slots",
    "slots_busy",
    "kv_tokens_used",
    "kv_tokens_capacity",
    "kv_blocks_used",
    "kv_blocks_free",
    "kv_blocks_capacity",
    "generation_requests",
    "context_requests",
    "context_tokens",
    "runtime_gpu_memory_bytes",
    "runtime_cpu_memory_bytes",
    "runtime_pinned_memory_bytes",
    "pinned_pool_used_bytes",
    "pinned_pool_total_bytes",
    "model_load_seconds",
    "engine_stale",
)


def ends(amounts: Mapping[str, float | None]) -> dict[str, float]:
    """Amounts of requests that did not end well, as the vocabulary tells them apart: failed, rejected, cancelled.

    A class that no reason belongs to is 0 where reasons are told at all, and missing where none is.
    """
    told = {name[len("ended/") :]: value for name, value in amounts.items() if name.startswith("ended/")}
    if not told:
        return {}
    found = dict.fromkeys(("failed", "rejected", "cancelled"), 0.0)
    for reason, value in told.items():
        found[kind_of_end(reason)] += value or 0.0
    return found


def kind_of_end(reason: str) -> str:
    """failed, rejected or cancelled: the class of an engine's own word for a bad end."""
    if reason in ("rejected", "http_429", "http_503"):
        return "rejected"
    if reason in ("cancelled", "canceled", "abort", "aborted", "http_499"):
        return "cancelled"
    return "failed"


def quantiles(histograms: Mapping[str, Histogram]) -> Sample:
    """The percentile keys of some histograms."""
    return {
        key: None if name not in histograms else histograms[name].quantile(q) for key, name, q in QUANTILES
    }


def sample(at: float, happened: Interval, device: Amounts | None = None) -> Sample:
    """One sample at epoch second `at`, with every key of the vocabulary; `device` holds cpu_use, rss_bytes, gpu_…."""
    rates, gauges, parts = happened.rates, happened.gauges, happened.parts
    found: Sample = {"at": round(at, 3)} | dict.fromkeys(NAMES, None)
    found.update({name: gauges.get(name) for name in GAUGES})
    found.update({name: rates.get(counter) for name, counter in RATES.items()})
    found.update({f"requests_{kind}_per_second": rate for kind, rate in ends(rates).items()})
    found.update(quantiles(happened.histograms))
    found.update({name: _ratio(parts.get(part), parts.get(whole)) for name, (part, whole) in RATIOS.items()})
    found["kv_use"] = _ratio(parts.get("kv_use_told"), parts.get("kv_use_tellers"))
    if found["kv_use"] is None:
        found["kv_use"] = _ratio(found["kv_tokens_used"], found["kv_tokens_capacity"])
    found.update({name: value for name, value in (device or {}).items() if name in found})
    found["tokens_per_watt"] = _ratio(found["generated_tokens_per_second"], found["gpu_power_watts"])
    return {name: value if value is None else round(value, 6) for name, value in found.items()}


def _ratio(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else part / whole
