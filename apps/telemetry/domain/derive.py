"""From scrapes to samples, in three steps, so that several instances merge rightly.

`read` takes the wanted figures out of one exposition; `interval` is what happened between two readings of one server
(differences of counters and histograms, gauges as they stand); `merge` adds the intervals of several servers and
`sample` names the result by the one vocabulary. What a server does not tell stays None all the way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from apps.telemetry.domain import histogram
from apps.telemetry.domain.histogram import Histogram
from apps.telemetry.domain.prometheus import Exposition
from apps.telemetry.domain.vocabulary import NAMES

Sample = dict[str, float | None]
Amounts = Mapping[str, float | None]

# Families that the readings below use; everything else in an exposition is passed over.
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
        "nv_inference_request_success",
        "nv_inference_first_response_histogram_ms",
        "nv_trt_llm_request_metrics",
        "nv_trt_llm_kv_cache_block_metrics",
        "nv_trt_llm_inflight_batcher_metrics",
        "nv_llm_output_token_len",
        "nv_llm_input_token_len",
    }
)

# Steps of TensorRT-LLM's ensemble: their requests are parts of requests, not requests.
_STEPS = frozenset({"preprocessing", "tensorrt_llm", "postprocessing"})

# Percentiles of a sample, by histogram.
_QUANTILES: tuple[tuple[str, str, float], ...] = (
    ("ttft_p50_ms", "ttft", 0.50),
    ("ttft_p99_ms", "ttft", 0.99),
    ("itl_p50_ms", "itl", 0.50),
    ("itl_p99_ms", "itl", 0.99),
    ("e2e_p50_ms", "e2e", 0.50),
    ("e2e_p99_ms", "e2e", 0.99),
    ("queue_p50_ms", "queue", 0.50),
)


@dataclass(frozen=True, slots=True)
class Reading:
    """Figures of one scrape at `at` (monotonic seconds): growing counters, gauges, cumulative histograms.

    Histograms of times are in milliseconds; `batch` is in sequences.
    """

    at: float
    counters: Amounts
    gauges: Amounts
    histograms: Mapping[str, Histogram]


@dataclass(frozen=True, slots=True)
class Interval:
    """What happened in `seconds` on one or more servers.

    `rates` are per second; `histograms` hold the observations of the trailing window (see `Window`); `parts` are
    amounts whose quotient is a ratio.
    """

    rates: Amounts
    gauges: Amounts
    parts: Amounts
    histograms: Mapping[str, Histogram] = field(default_factory=dict)


def read(exposition: Exposition, at: float) -> Reading:
    """Take the figures out of one exposition, in whichever dialect it speaks.

    The llama.cpp model's own families win; then TensorRT-LLM's; Triton's base families fill what both leave open.
    """
    if "inflight_requests_running" in exposition.samples:
        return _read_llamacpp(exposition, at)
    return _read_triton(exposition, at)


def _read_llamacpp(exposition: Exposition, at: float) -> Reading:
    total = exposition.total
    histograms = {
        "ttft": _in_ms(exposition, "inflight_ttft_seconds"),
        "itl": _in_ms(exposition, "inflight_itl_seconds"),
        "e2e": _in_ms(exposition, "inflight_e2e_seconds"),
        "queue": _in_ms(exposition, "inflight_queue_seconds"),
        "batch": histogram.read(exposition, "inflight_batch_size"),
    }
    return Reading(
        at=at,
        counters={
            "requests": total("inflight_requests_finished_total"),
            "generated": total("inflight_generated_tokens_total"),
            "prompt": total("inflight_prompt_tokens_total"),
            "cached": total("inflight_prompt_tokens_cached_total"),
        },
        gauges={
            "requests_running": total("inflight_requests_running"),
            "requests_waiting": total("inflight_requests_waiting"),
            "kv_tokens_used": total("inflight_kv_tokens_used"),
            "kv_tokens_capacity": total("inflight_kv_tokens_capacity"),
            "slots": total("inflight_slots"),
            "slots_busy": total("inflight_slots_busy"),
        },
        histograms={name: value for name, value in histograms.items() if value is not None},
    )


def _read_triton(exposition: Exposition, at: float) -> Reading:
    def requests(kind: str) -> float | None:
        return exposition.total("nv_trt_llm_request_metrics", request_type=kind)

    def blocks(kind: str) -> float | None:
        return exposition.total("nv_trt_llm_kv_cache_block_metrics", kv_cache_block_type=kind)

    waiting = requests("waiting")
    if waiting is None:  # before 0.19 it was not told
        waiting = _combine(requests("active"), requests("scheduled"), lambda a, s: max(0.0, a - s))
    ttft = _whole_requests_histogram(exposition)
    tokens = blocks("tokens_per")
    return Reading(
        at=at,
        counters={
            "requests": _whole_requests(exposition),
            "generated": exposition.total("nv_llm_output_token_len_sum"),
            "prompt": exposition.total("nv_llm_input_token_len_sum"),
        },
        gauges={
            "requests_running": requests("scheduled"),
            "requests_waiting": waiting,
            "kv_tokens_used": _combine(blocks("used"), tokens, lambda used, each: used * each),
            "kv_tokens_capacity": _combine(blocks("max"), tokens, lambda most, each: most * each),
            "kv_use": _fraction(blocks("fraction"), blocks("used"), blocks("max")),
            "batch_size_mean": exposition.total(
                "nv_trt_llm_inflight_batcher_metrics", inflight_batcher_specific_metric="generation_requests"
            ),
            "slots": requests("max"),
            "slots_busy": requests("active"),
        },
        histograms={} if ttft is None else {"ttft": ttft},
    )


def _whole_requests(exposition: Exposition) -> float | None:
    """Requests that ended well, without the steps of an ensemble that is counted itself."""
    models = {s.labels.get("model", "") for s in exposition.samples.get("nv_inference_request_success", ())}
    whole = models - _STEPS or models
    counts = [exposition.total("nv_inference_request_success", model=model) for model in whole]
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _whole_requests_histogram(exposition: Exposition) -> Histogram | None:
    family = "nv_inference_first_response_histogram_ms"
    models = {s.labels.get("model", "") for s in exposition.samples.get(f"{family}_count", ())}
    found = [histogram.read(exposition, family, model=model) for model in models - _STEPS or models]
    return histogram.merge([each for each in found if each is not None])


def _in_ms(exposition: Exposition, family: str) -> Histogram | None:
    """A histogram in seconds as one in milliseconds."""
    found = histogram.read(exposition, family)
    if found is None:
        return None
    return Histogram(tuple(bound * 1000 for bound in found.bounds), found.counts, found.total * 1000)


def _combine(a: float | None, b: float | None, by: Callable[[float, float], float]) -> float | None:
    return None if a is None or b is None else by(a, b)


def _fraction(told: float | None, part: float | None, whole: float | None) -> float | None:
    return told if told is not None else _combine(part, whole, lambda p, w: p / w if w else 0.0)


class Window:
    """Observations of the last `seconds`, so that percentiles have something to stand on at one scrape a second."""

    def __init__(self, seconds: float = 10.0) -> None:
        self._seconds = seconds
        self._parts: list[tuple[float, Mapping[str, Histogram]]] = []

    def add(self, at: float, deltas: Mapping[str, Histogram]) -> dict[str, Histogram]:
        """Add the observations that ended at `at`; returns the sums of the window."""
        self._parts = [(when, each) for when, each in self._parts if when > at - self._seconds]
        self._parts.append((at, deltas))
        names = {name for _when, each in self._parts for name in each}
        sums = {
            name: histogram.merge([each[name] for _when, each in self._parts if name in each])
            for name in names
        }
        return {name: value for name, value in sums.items() if value is not None}


def interval(new: Reading, old: Reading | None, window: Window) -> Interval:
    """What happened between two readings of one server. Without an older one there are gauges and nothing else.

    A counter that went down began anew with the server: all it counts is new.
    """
    if old is None or new.at <= old.at:
        return Interval(rates={}, gauges=new.gauges, parts=_parts(new.gauges, {}, None))
    seconds = new.at - old.at
    grown = {name: _grown(value, old.counters.get(name)) for name, value in new.counters.items()}
    deltas = {
        name: histogram.delta(value, old.histograms.get(name)) for name, value in new.histograms.items()
    }
    batch = deltas.pop("batch", None)
    return Interval(
        rates={name: None if amount is None else amount / seconds for name, amount in grown.items()},
        gauges=new.gauges,
        parts=_parts(new.gauges, grown, batch),
        histograms=window.add(new.at, deltas),
    )


def _grown(new: float | None, old: float | None) -> float | None:
    if new is None or old is None:
        return None
    return new if new < old else new - old


def _parts(gauges: Amounts, grown: Amounts, batch: Histogram | None) -> dict[str, float | None]:
    """Numerators and denominators of the ratios, which add up over servers where the ratios do not."""
    steps = batch.count if batch is not None else None
    return {
        "prompt": grown.get("prompt"),
        "cached": grown.get("cached"),
        "steps": steps if batch is not None else (1.0 if gauges.get("batch_size_mean") is not None else None),
        "sequences": batch.total if batch is not None else gauges.get("batch_size_mean"),
        "kv_told": gauges.get("kv_use"),
        "kv_tellers": None if gauges.get("kv_use") is None else 1.0,
    }


def merge(intervals: Sequence[Interval]) -> Interval:
    """Several servers as one: rates, gauges and parts are added, histograms merged."""
    names = {name for each in intervals for name in each.histograms}
    merged = {
        name: histogram.merge([each.histograms[name] for each in intervals if name in each.histograms])
        for name in names
    }
    return Interval(
        rates=_added(each.rates for each in intervals),
        gauges=_added(each.gauges for each in intervals),
        parts=_added(each.parts for each in intervals),
        histograms={name: value for name, value in merged.items() if value is not None},
    )


def _added(amounts: Iterable[Amounts]) -> dict[str, float | None]:
    """Sum by name over what is known; None where nobody knows."""
    sums: dict[str, float | None] = {}
    for each in amounts:
        for name, value in each.items():
            before = sums.get(name)
            sums[name] = before if value is None else value if before is None else before + value
    return sums


def sample(at: float, happened: Interval, device: Amounts | None = None) -> Sample:
    """One sample at epoch second `at`, with every key of the vocabulary; `device` holds cpu_use, rss_bytes, gpu_…."""
    rates, gauges, parts = happened.rates, happened.gauges, happened.parts
    found: Sample = {"at": round(at, 3)} | dict.fromkeys(NAMES, None)
    for name in (
        "requests_running",
        "requests_waiting",
        "kv_tokens_used",
        "kv_tokens_capacity",
        "slots",
        "slots_busy",
    ):
        found[name] = gauges.get(name)
    found["requests_per_second"] = rates.get("requests")
    found["generated_tokens_per_second"] = rates.get("generated")
    found["prompt_tokens_per_second"] = rates.get("prompt")
    for key, name, q in _QUANTILES:
        value = happened.histograms.get(name)
        found[key] = None if value is None else value.quantile(q)
    found["kv_use"] = _ratio(parts.get("kv_told"), parts.get("kv_tellers"))
    if found["kv_use"] is None:
        found["kv_use"] = _ratio(found["kv_tokens_used"], found["kv_tokens_capacity"])
    found["cached_prompt_share"] = _ratio(parts.get("cached"), parts.get("prompt"))
    found["batch_size_mean"] = _ratio(parts.get("sequences"), parts.get("steps"))
    found.update(device or {})
    return {name: value if value is None else round(value, 6) for name, value in found.items()}


def _ratio(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else part / whole
