"""Three starting points of a batching profile for each engine: what is wanted most, as values of its fields."""

from __future__ import annotations

from typing import Any

from apps.serving.domain.acting import EngineKind

PRESETS: dict[str, str] = {
    "latency": "Few requests at once, each of them fast; what does not fit is refused early.",
    "balanced": "As many at once as answer at reading speed.",
    "throughput": "Most tokens a second for all together; single answers are slower.",
}
_EMBEDDED: dict[str, dict[str, Any]] = {
    "latency": {"max_batch_size": 4, "max_queue_size": 16},
    "balanced": {"max_batch_size": 16, "max_queue_size": 256},
    "throughput": {"max_batch_size": 32, "max_queue_size": 1024},
}
_TRTLLM: dict[str, dict[str, Any]] = {
    "latency": {
        "max_batch_size": 16,
        "trtllm": {
            "batch_scheduler_policy": "guaranteed_no_evict",
            "enable_chunked_context": True,
            "enable_kv_cache_reuse": True,
            "kv_cache_free_gpu_mem_fraction": 0.85,
        },
    },
    "balanced": {
        "max_batch_size": 64,
        "trtllm": {
            "batch_scheduler_policy": "guaranteed_no_evict",
            "enable_chunked_context": True,
            "enable_kv_cache_reuse": True,
            "kv_cache_free_gpu_mem_fraction": 0.9,
        },
    },
    "throughput": {
        "max_batch_size": 256,
        "trtllm": {
            "batch_scheduler_policy": "max_utilization",
            "enable_chunked_context": True,
            "enable_kv_cache_reuse": True,
            "kv_cache_free_gpu_mem_fraction": 0.95,
        },
    },
}


def preset(name: str, engine: EngineKind) -> dict[str, Any]:
    """Values of the profile's fields; empty for a name that is none."""
    table = _EMBEDDED if engine == "llamacpp" else _TRTLLM
    if name not in table:
        return {}
    return {
        "strategy": "inflight",
        "max_queue_delay_microseconds": 0,
        "preferred_batch_sizes": [],
        "trtllm": {},
        **table[name],
    }
