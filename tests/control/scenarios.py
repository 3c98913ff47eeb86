"""Sample series for the advisor's rules: each scenario is a few numbers spread over a range of time."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from apps.control.domain.advice.figures import Distribution, Figures
from apps.control.domain.advice.outcome import Subject

Value = float | None | Callable[[float], float | None]
START = 1_000_000.0
# What an engine at ease tells: 8 of 16 slots busy, nobody waits, everything in its place.
CALM: dict[str, Value] = {
    "requests_running": 10.0,
    "requests_waiting": 0.0,
    "requests_active": 10.0,
    "requests_per_second": 2.0,
    "requests_rejected_per_second": 0.0,
    "kv_use": 0.5,
    "cached_prompt_share": 0.2,
    "prompt_tokens_per_second": 50.0,
    "itl_p99_ms": 20.0,
    "queue_mean_ms": 1.0,
    "cpu_use": 0.3,
    "gpu_use": 0.8,
    "engine_stale": 0.0,
}
PROFILE: dict[str, Any] = {
    "name": "p",
    "strategy": "inflight",
    "max_batch_size": 16,
    "max_queue_delay_microseconds": 0,
    "max_seq_len": 2048,
    "max_queue_size": 64,
    "threads": 0,
}


def figures(
    seconds: float = 900, distributions: dict[str, Distribution] | None = None, **values: Value
) -> Figures:
    """One sample a second; a value may be a function of the share of the range that has passed (0 to 1)."""
    told = {**CALM, **values}
    samples = tuple(
        {
            "at": START + second,
            **{key: value(second / seconds) if callable(value) else value for key, value in told.items()},
        }
        for second in range(int(seconds))
    )
    return Figures(START, START + seconds, samples, distributions or {})


def subject(**changes: Any) -> Subject:
    """A TensorRT-LLM deployment on a GPU with 16 slots; keys of the batching profile go into it."""
    plain = {"builder": "trtllm", "device": "gpu", "replicas": 1, "reuse": True, "chunked_context": True}
    batching = {**PROFILE, **{key: value for key, value in changes.items() if key not in plain}}
    return Subject(batching=batching, **{key: changes.get(key, value) for key, value in plain.items()})


def sizes(**counts: float) -> Distribution:
    """Numbers of executions by size: sizes(s1=90, s4=10)."""
    by_size = {int(name[1:]): count for name, count in counts.items()}
    bounds = (1.0, 2.0, 4.0, 8.0, 16.0, math.inf)
    filled, lower = [], -math.inf
    for bound in bounds:
        filled.append(float(sum(count for size, count in by_size.items() if lower < size <= bound)))
        lower = bound
    return Distribution(bounds, tuple(filled))
