"""The one vocabulary of metrics: every key of a sample, its unit, where it comes from and what it cannot say.

Absent is null, never 0. Charts, alerts, comparisons and the API use these names and no others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# How values of a key are put together: over time when points are thinned, and what merging instances means.
Kind = Literal["gauge", "rate", "quantile", "mean", "ratio"]


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a sample. `unit` is UCUM-like: ms, 1/s, By, W; 1 for a fraction or count."""

    name: str
    unit: str
    kind: Kind
    title: str
    source: str
    limits: str = ""


_QUANTILE = (
    "Read from buckets, so exact only at their bounds; above the highest bound it shows that bound. Over the last "
    "10 seconds; null where no request gave a value in them."
)
_DEVICE = "All processes of the device are counted, not only this deployment's."

KEYS: tuple[Key, ...] = (
    Key(
        "requests_running",
        "1",
        "gauge",
        "Requests running",
        "inflight_requests_running, nv_trt_llm scheduled",
        "The moment of the scrape; peaks between two scrapes are not seen.",
    ),
    Key(
        "requests_waiting",
        "1",
        "gauge",
        "Requests waiting",
        "inflight_requests_waiting, nv_trt_llm waiting",
        "Waiting inside the engine; what a gateway holds back is not in it.",
    ),
    Key(
        "requests_per_second",
        "1/s",
        "rate",
        "Requests finished",
        "inflight_requests_finished_total, nv_inference_request_success",
        "Counts requests when they end, whatever the reason; long answers appear late.",
    ),
    Key(
        "generated_tokens_per_second",
        "1/s",
        "rate",
        "Tokens generated",
        "inflight_generated_tokens_total, nv_llm_output_token_len",
        "TensorRT-LLM's C++ backend adds an answer's tokens when it ends.",
    ),
    Key(
        "prompt_tokens_per_second",
        "1/s",
        "rate",
        "Prompt tokens",
        "inflight_prompt_tokens_total, nv_llm_input_token_len",
        "Counted when a prompt was processed, those from cache included.",
    ),
    Key(
        "ttft_p50_ms",
        "ms",
        "quantile",
        "TTFT p50",
        "inflight_ttft_seconds, nv_inference_first_response_histogram_ms",
        _QUANTILE,
    ),
    Key(
        "ttft_p99_ms",
        "ms",
        "quantile",
        "TTFT p99",
        "inflight_ttft_seconds, nv_inference_first_response_histogram_ms",
        _QUANTILE,
    ),
    Key("itl_p50_ms", "ms", "quantile", "ITL p50", "inflight_itl_seconds", _QUANTILE),
    Key("itl_p99_ms", "ms", "quantile", "ITL p99", "inflight_itl_seconds", _QUANTILE),
    Key("e2e_p50_ms", "ms", "quantile", "End to end p50", "inflight_e2e_seconds", _QUANTILE),
    Key("e2e_p99_ms", "ms", "quantile", "End to end p99", "inflight_e2e_seconds", _QUANTILE),
    Key("queue_p50_ms", "ms", "quantile", "Queue p50", "inflight_queue_seconds", _QUANTILE),
    Key(
        "kv_tokens_used",
        "1",
        "gauge",
        "KV tokens used",
        "inflight_kv_tokens_used, nv_trt_llm used x tokens_per",
        "TensorRT-LLM counts whole blocks.",
    ),
    Key(
        "kv_tokens_capacity",
        "1",
        "gauge",
        "KV tokens",
        "inflight_kv_tokens_capacity, nv_trt_llm max x tokens_per",
    ),
    Key("kv_use", "1", "ratio", "KV use", "used / capacity, nv_trt_llm fraction"),
    Key(
        "batch_size_mean",
        "1",
        "mean",
        "Batch size",
        "inflight_batch_size, nv_trt_llm generation_requests",
        "TensorRT-LLM shows its latest iteration, also while idle.",
    ),
    Key("slots", "1", "gauge", "Slots", "inflight_slots, nv_trt_llm max"),
    Key("slots_busy", "1", "gauge", "Slots busy", "inflight_slots_busy, nv_trt_llm active"),
    Key(
        "cached_prompt_share",
        "1",
        "ratio",
        "Prompt from cache",
        "inflight_prompt_tokens_cached_total / inflight_prompt_tokens_total",
        "Null where no prompt was processed in the interval.",
    ),
    Key(
        "cpu_use",
        "1",
        "ratio",
        "CPU use",
        "psutil: CPU time of the server's processes",
        "Share of all cores of the host that this server's processes used.",
    ),
    Key(
        "rss_bytes",
        "By",
        "gauge",
        "Memory (RSS)",
        "psutil: resident memory of the server's processes",
        "Pages that its processes share are counted once for each.",
    ),
    Key(
        "gpu_use", "1", "ratio", "GPU use", "NVML", f"A kernel ran, not how well it filled the GPU. {_DEVICE}"
    ),
    Key(
        "gpu_memory_used_bytes",
        "By",
        "gauge",
        "GPU memory",
        "NVML",
        f"Engines take their memory in advance. {_DEVICE}",
    ),
    Key("gpu_power_watts", "W", "gauge", "GPU power", "NVML", _DEVICE),
)

BY_NAME: dict[str, Key] = {key.name: key for key in KEYS}
NAMES: tuple[str, ...] = tuple(BY_NAME)
