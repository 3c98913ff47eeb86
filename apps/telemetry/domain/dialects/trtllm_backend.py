"""TensorRT-LLM's C++ backend on Triton: families `nv_trt_llm_*` and `nv_llm_*_token_len`.

Gauges hold the latest iteration, refreshed every `stats_check_period_ms`: an idle server shows its last one for
ever, which `iteration_counter` gives away. Values are set one by one, so used + free need not be max. Units and
label values changed over the releases: `timestamp` was in seconds before 0.16 and is in microseconds since.
"""

from __future__ import annotations

from apps.telemetry.domain import figures
from apps.telemetry.domain.figures import BySeries, Figures
from apps.telemetry.domain.prometheus import Exposition

REQUESTS = "nv_trt_llm_request_metrics"
BLOCKS = "nv_trt_llm_kv_cache_block_metrics"
BATCHER = "nv_trt_llm_inflight_batcher_metrics"
GENERAL = "nv_trt_llm_general_metrics"
MEMORY = "nv_trt_llm_runtime_memory_metrics"
V1 = "nv_trt_llm_v1_metrics"
OUTPUT = "nv_llm_output_token_len"
INPUT = "nv_llm_input_token_len"

WANTED = frozenset(
    {
        REQUESTS,
        BLOCKS,
        BATCHER,
        GENERAL,
        MEMORY,
        V1,
        OUTPUT,
        INPUT,
        "nv_trt_llm_disaggregated_serving_metrics",
    }
)

# Seconds since the epoch stay below this until the year 33658; microseconds passed it in 1970.
_MOST_SECONDS = 1e12


def read(exposition: Exposition) -> Figures | None:
    """Its figures, added over the models of one server; None where its families are not there."""
    if not any(name in exposition.samples for name in (REQUESTS, BLOCKS, BATCHER, GENERAL, OUTPUT)):
        return None
    found = Figures()
    _requests(exposition, found)
    _blocks(exposition, found)
    _batcher(exposition, found)
    for kind in ("gpu", "cpu", "pinned"):
        found.gauge(f"runtime_{kind}_memory_bytes", exposition.total(MEMORY, memory_type=kind))
    for name, family in (("generated", OUTPUT), ("prompt", INPUT)):
        lengths = figures.histograms(exposition, family)
        found.histogram(f"{name}_tokens", lengths)
        found.counter(name, {series: value.total for series, value in lengths.items()})
    found.progress = figures.grouped(
        exposition.samples.get(GENERAL, ()), wanted={"general_type": "iteration_counter"}
    )
    found.counter("iterations", dict(found.progress))
    _timestamp(exposition, found)
    return found


def _by(exposition: Exposition, family: str, label: str, value: str) -> BySeries:
    return figures.grouped(exposition.samples.get(family, ()), wanted={label: value})


def _sum(values: BySeries) -> float | None:
    return sum(values.values()) if values else None


def _requests(exposition: Exposition, found: Figures) -> None:
    kinds = {
        kind: _by(exposition, REQUESTS, "request_type", kind)
        for kind in ("active", "max", "scheduled", "context", "waiting")
    }
    waiting = kinds["waiting"]
    if not waiting:  # not told before 0.19
        waiting = {
            series: max(0.0, value - kinds["scheduled"][series])
            for series, value in kinds["active"].items()
            if series in kinds["scheduled"]
        }
    found.gauge("requests_running", _sum(kinds["scheduled"]), momentary=True)
    found.gauge("requests_waiting", _sum(waiting), momentary=True)
    found.gauge("requests_active", _sum(kinds["active"]), momentary=True)
    found.gauge("slots_busy", _sum(kinds["active"]), momentary=True)
    found.gauge("context_requests", _sum(kinds["context"]), momentary=True)
    found.gauge("slots", _sum(kinds["max"]))
    active, most = _sum(kinds["active"]), _sum(kinds["max"])
    if active is not None and most:
        found.facts["saturated"] = active >= most


def _blocks(exposition: Exposition, found: Figures) -> None:
    kinds = {
        kind: _by(exposition, BLOCKS, "kv_cache_block_type", kind)
        for kind in ("max", "free", "used", "tokens_per", "reused", "fraction")
    }
    found.gauge("kv_blocks_used", _sum(kinds["used"]))
    found.gauge("kv_blocks_free", _sum(kinds["free"]))
    found.gauge("kv_blocks_capacity", _sum(kinds["max"]))
    # Blocks of different models have different sizes: tokens are summed, never blocks times a summed size.
    found.gauge("kv_tokens_used", _sum(_times(kinds["used"], kinds["tokens_per"])))
    found.gauge("kv_tokens_capacity", _sum(_times(kinds["max"], kinds["tokens_per"])))
    found.gauge("kv_use", _kv_use(kinds["fraction"], kinds["used"], kinds["max"]))
    found.counter("blocks_reused", kinds["reused"])


def _times(amounts: BySeries, each: BySeries) -> BySeries:
    return {series: amount * each[series] for series, amount in amounts.items() if series in each}


def _kv_use(fraction: BySeries, used: BySeries, most: BySeries) -> float | None:
    if len(fraction) == 1:
        return next(iter(fraction.values()))
    both = [series for series in used if most.get(series)]
    if both:
        return sum(used[series] for series in both) / sum(most[series] for series in both)
    return sum(fraction.values()) / len(fraction) if fraction else None


def _batcher(exposition: Exposition, found: Figures) -> None:
    def told(kind: str) -> float | None:
        return _sum(_by(exposition, BATCHER, "inflight_batcher_specific_metric", kind))

    generating = told("generation_requests")
    found.gauge("generation_requests", generating, momentary=True)
    found.gauge("batch_size_mean", generating, momentary=True)
    found.gauge("context_tokens", told("total_context_tokens"), momentary=True)
    found.gauge("requests_paused", told("paused_requests"), momentary=True)


def _timestamp(exposition: Exposition, found: Figures) -> None:
    values = exposition.values(GENERAL, general_type="timestamp")
    if values:
        unit, latest = unit_of_timestamp(max(values))
        found.facts |= {"timestamp_unit": unit, "timestamp": latest}


def unit_of_timestamp(value: float) -> tuple[str, float]:
    """Unit ("s" or "us") of the `timestamp` gauge, decided by its size, and its value in seconds since the epoch."""
    return ("us", value / 1e6) if value > _MOST_SECONDS else ("s", value)
