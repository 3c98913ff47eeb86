"""Keys that engines and Triton tell."""

from __future__ import annotations

from apps.telemetry.domain.key import Area, Key, Kind

_QUANTILE = (
    "Read from buckets, so exact only at their bounds; above the highest bound it shows that bound. Over the last "
    "10 seconds; null where no request gave a value in them."
)
_LATEST = "TensorRT-LLM shows its latest iteration; null while no iteration passes (engine_stale is then 1)."


def _quantiles(
    name: str, title: str, source: str, *percents: int, limits: str = _QUANTILE
) -> tuple[Key, ...]:
    return tuple(
        Key(f"{name}_p{percent}_ms", "ms", "quantile", f"{title} p{percent}", source, limits, "latency")
        for percent in percents
    )


def _keys(area: Area, *rows: tuple[str, str, Kind, str, str, str]) -> tuple[Key, ...]:
    return tuple(Key(*row, area) for row in rows)


_REQUESTS = _keys(
    "requests",
    (
        "requests_running",
        "1",
        "gauge",
        "Requests running",
        "inflight_requests_running; nv_trt_llm scheduled; numScheduledRequests",
        f"The moment of the scrape; peaks between two scrapes are not seen. {_LATEST}",
    ),
    (
        "requests_waiting",
        "1",
        "gauge",
        "Requests waiting",
        "inflight_requests_waiting; nv_trt_llm waiting (before 0.19: active - scheduled); trtllm_server_queue_length",
        "Waiting inside the engine; what a gateway or Triton's own queue holds back is not in it.",
    ),
    (
        "requests_pending",
        "1",
        "gauge",
        "Pending in Triton",
        "nv_inference_pending_request_count",
        "Triton's own queue. About 0 for models that take a request at once and answer later.",
    ),
    (
        "requests_active",
        "1",
        "gauge",
        "Requests active",
        "inflight running + waiting; nv_trt_llm active; trtllm_num_active_requests",
        "All that the engine has taken and not yet ended.",
    ),
    (
        "requests_paused",
        "1",
        "gauge",
        "Requests paused",
        "nv_trt_llm paused_requests; numPausedRequests",
        f"Evicted under max_utilization; their prompts are computed again. {_LATEST}",
    ),
    (
        "requests_accepted_per_second",
        "1/s",
        "rate",
        "Requests accepted",
        "nv_inference_request_success of python models that answer later",
        "Only where Triton counts a request when the model takes it; null for engines that count at the end.",
    ),
    (
        "requests_per_second",
        "1/s",
        "rate",
        "Requests finished",
        "inflight_requests_finished_total; trtllm_request_success_total; nv_inference_request_success",
        "Counted when requests end; long answers appear late. The embedded model counts every end, whatever the "
        "reason; the others only those that ended well.",
    ),
    (
        "requests_failed_per_second",
        "1/s",
        "rate",
        "Requests failed",
        "inflight_requests_finished_total error; nv_inference_request_failure BACKEND, OTHER; "
        "trtllm_request_error_total",
        "Without rejected and cancelled ones. Errors after a decoupled python model took the request never reach "
        "nv_inference_request_failure.",
    ),
    (
        "requests_rejected_per_second",
        "1/s",
        "rate",
        "Requests rejected",
        "inflight_requests_finished_total rejected; nv_inference_request_failure REJECTED",
        "TensorRT-LLM's C++ backend refuses a full queue before anything counts: see the gateway's figures.",
    ),
    (
        "requests_cancelled_per_second",
        "1/s",
        "rate",
        "Requests cancelled",
        "inflight_requests_finished_total cancelled; nv_inference_request_failure CANCELED",
        "A client that went away is seen when the engine next looks.",
    ),
    ("slots", "1", "gauge", "Slots", "inflight_slots; nv_trt_llm max", "Requests that may run at once."),
    ("slots_busy", "1", "gauge", "Slots busy", "inflight_slots_busy; nv_trt_llm active", ""),
)

_LATENCY = (
    *_quantiles(
        "ttft",
        "TTFT",
        "inflight_ttft_seconds; trtllm_time_to_first_token_seconds; nv_inference_first_response_histogram_ms",
        50,
        90,
        99,
        limits=f"{_QUANTILE} Triton's own histogram knows whole milliseconds and, by default, nothing above 5 s.",
    ),
    *_quantiles(
        "itl", "ITL", "inflight_itl_seconds", 50, 99, limits=f"{_QUANTILE} Per gap between two tokens."
    ),
    *_quantiles(
        "tpot",
        "TPOT",
        "trtllm_time_per_output_token_seconds",
        50,
        99,
        limits=f"{_QUANTILE} One value an answer (its mean), so stalls inside an answer do not show: not the ITL.",
    ),
    *_quantiles("e2e", "End to end", "inflight_e2e_seconds; trtllm_e2e_request_latency_seconds", 50, 90, 99),
    *_quantiles("queue", "Queue", "inflight_queue_seconds; trtllm_request_queue_time_seconds", 50, 99),
    Key(
        "queue_mean_ms",
        "ms",
        "mean",
        "Queue mean",
        "histogram sum / count; nv_inference_queue_duration_us / nv_inference_request_success",
        "Requests that ended in the interval; null where none did. Triton's is about 0 for models that take a "
        "request at once.",
        "latency",
    ),
    Key(
        "request_mean_ms",
        "ms",
        "mean",
        "Request mean",
        "histogram sum / count; nv_inference_request_duration_us / nv_inference_request_success",
        "For python models that answer later, Triton's covers the hand-over only and is not used.",
        "latency",
    ),
)

_TOKENS = _keys(
    "tokens",
    (
        "generated_tokens_per_second",
        "1/s",
        "rate",
        "Tokens generated",
        "inflight_generated_tokens_total; nv_llm_output_token_len sum; trtllm_generation_tokens_total",
        "TensorRT-LLM's C++ backend adds an answer's tokens when it ends.",
    ),
    (
        "prompt_tokens_per_second",
        "1/s",
        "rate",
        "Prompt tokens",
        "inflight_prompt_tokens_total; nv_llm_input_token_len sum; trtllm_prompt_tokens_total",
        "Counted when a prompt was processed, those from cache included.",
    ),
    (
        "cached_prompt_share",
        "1",
        "ratio",
        "Prompt from cache",
        "inflight_prompt_tokens_cached_total / inflight_prompt_tokens_total; trtllm_prompt_cached_tokens_total",
        "Null where no prompt was processed in the interval.",
    ),
    (
        "tokens_per_watt",
        "1/J",
        "ratio",
        "Tokens per second per watt",
        "generated_tokens_per_second / gpu_power_watts",
        "All power of the GPUs is counted, also where others use them too. Null without a GPU.",
    ),
)

_KV = _keys(
    "kv",
    (
        "kv_tokens_used",
        "1",
        "gauge",
        "KV tokens used",
        "inflight_kv_tokens_used; nv_trt_llm used x tokens_per",
        "TensorRT-LLM counts whole blocks.",
    ),
    (
        "kv_tokens_capacity",
        "1",
        "gauge",
        "KV tokens",
        "inflight_kv_tokens_capacity; nv_trt_llm max x tokens_per",
        "",
    ),
    (
        "kv_use",
        "1",
        "ratio",
        "KV use",
        "used / max (never used / (used + free)); nv_trt_llm fraction; trtllm_kv_cache_utilization",
        "Blocks kept for reuse count as used on some releases.",
    ),
    ("kv_blocks_used", "1", "gauge", "KV blocks used", "nv_trt_llm used; usedNumBlocks", ""),
    (
        "kv_blocks_free",
        "1",
        "gauge",
        "KV blocks free",
        "nv_trt_llm free; freeNumBlocks",
        "Written at another moment than the used ones: the two need not add up to the capacity.",
    ),
    ("kv_blocks_capacity", "1", "gauge", "KV blocks", "nv_trt_llm max; maxNumBlocks", ""),
    (
        "kv_blocks_reused_per_second",
        "1/s",
        "rate",
        "KV blocks reused",
        "nv_trt_llm reused (cumulative)",
        "Says that reuse happens, not which share of lookups hit.",
    ),
    (
        "kv_hit_rate",
        "1",
        "ratio",
        "KV hit rate",
        "trtllm_kv_cache_hit_rate; cacheHitRate",
        "As the engine tells it, usually since its start. The C++ backend tells none.",
    ),
)

_BATCH = _keys(
    "batch",
    (
        "batch_size_mean",
        "1",
        "mean",
        "Batch size",
        "inflight_batch_size; nv_trt_llm generation_requests",
        f"Sequences in one engine step. {_LATEST}",
    ),
    (
        "triton_batch_size_mean",
        "1",
        "mean",
        "Batch formed by Triton",
        "statistics API batch_stats; nv_inference_count / nv_inference_exec_count",
        "What Triton's batcher handed over at once. Always 1 for TensorRT-LLM's C++ backend, which batches inside.",
    ),
    (
        "generation_requests",
        "1",
        "gauge",
        "Generating",
        "nv_trt_llm generation_requests; numGenRequests",
        _LATEST,
    ),
    (
        "context_requests",
        "1",
        "gauge",
        "In the prompt phase",
        "nv_trt_llm context; numContextRequests",
        _LATEST,
    ),
    ("context_tokens", "1", "gauge", "Prompt tokens in a step", "nv_trt_llm total_context_tokens", _LATEST),
    (
        "iterations_per_second",
        "1/s",
        "rate",
        "Engine steps",
        "inflight_batch_size count; nv_trt_llm iteration_counter",
        "",
    ),
)

_ENGINE = _keys(
    "engine",
    (
        "runtime_gpu_memory_bytes",
        "By",
        "gauge",
        "Engine's GPU memory",
        "nv_trt_llm_runtime_memory gpu",
        "What the runtime allocated itself, not all memory of the GPU.",
    ),
    ("runtime_cpu_memory_bytes", "By", "gauge", "Engine's CPU memory", "nv_trt_llm_runtime_memory cpu", ""),
    (
        "runtime_pinned_memory_bytes",
        "By",
        "gauge",
        "Engine's pinned memory",
        "nv_trt_llm_runtime_memory pinned",
        "The engine's; Triton's pool is pinned_pool_used_bytes.",
    ),
    ("pinned_pool_used_bytes", "By", "gauge", "Pinned pool used", "nv_pinned_memory_pool_used_bytes", ""),
    ("pinned_pool_total_bytes", "By", "gauge", "Pinned pool", "nv_pinned_memory_pool_total_bytes", ""),
    (
        "response_cache_hit_rate",
        "1",
        "ratio",
        "Response cache hits",
        "nv_cache_num_hits_per_model / (hits + misses)",
        "Triton's response cache, not the KV cache.",
    ),
    (
        "model_load_seconds",
        "s",
        "gauge",
        "Last model load",
        "nv_model_load_duration_secs",
        "The slowest model.",
    ),
)

_HEALTH = _keys(
    "health",
    (
        "engine_stale",
        "1",
        "flag",
        "Engine's figures are old",
        "nv_trt_llm iteration_counter unchanged between two scrapes",
        "1: idle, or stuck where requests are active. Null for engines whose figures are always current.",
    ),
    ("targets", "1", "gauge", "Servers to scrape", "the scraper", ""),
    (
        "targets_lost",
        "1",
        "flag",
        "Servers not answering",
        "the scraper",
        "Servers that failed three scrapes in a row. Their figures are missing in this second.",
    ),
    (
        "scrape_seconds",
        "s",
        "gauge",
        "Duration of a scrape",
        "the scraper",
        "Request and parsing; the slowest.",
    ),
    (
        "unreadable_lines",
        "1",
        "gauge",
        "Lines that could not be read",
        "the scraper",
        "Of the exposition, in one scrape.",
    ),
)

ENGINE_KEYS: tuple[Key, ...] = (*_REQUESTS, *_LATENCY, *_TOKENS, *_KV, *_BATCH, *_ENGINE, *_HEALTH)
