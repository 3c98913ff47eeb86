"""IterationStats: JSON of TensorRT-LLM's executor, as the LLM API's get_stats() and trtllm-serve's /metrics give it.

trtllm-serve hands out each iteration once (a drain: whoever asks gets what nobody asked for before), so one list is
an interval, its counts are amounts of it and not totals, and it is never scraped beside another consumer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from apps.telemetry.domain.figures import Figures

_GAUGES = {
    "numActiveRequests": "requests_active",
    "numQueuedRequests": "requests_waiting",
    "maxNumActiveRequests": "slots",
    "gpuMemUsage": "runtime_gpu_memory_bytes",
    "cpuMemUsage": "runtime_cpu_memory_bytes",
    "pinnedMemUsage": "runtime_pinned_memory_bytes",
}
_KV = {
    "usedNumBlocks": "kv_blocks_used",
    "freeNumBlocks": "kv_blocks_free",
    "maxNumBlocks": "kv_blocks_capacity",
}
_BATCH = {
    "numScheduledRequests": "requests_running",
    "numContextRequests": "context_requests",
    "numGenRequests": "generation_requests",
    "numPausedRequests": "requests_paused",
    "numCtxTokens": "context_tokens",
}


def parse(text: str) -> list[Mapping[str, Any]] | None:
    """The iterations of a JSON text, oldest first; None where it is no IterationStats."""
    if text.lstrip()[:1] not in ("[", "{"):
        return None
    try:
        found = json.loads(text)
    except ValueError:
        return None
    rows = found if isinstance(found, list) else [found]
    if all(isinstance(row, dict) for row in rows):
        return [row for row in rows if "iter" in row or "kvCacheStats" in row] or ([] if not rows else None)
    return None


def read(rows: Sequence[Mapping[str, Any]]) -> Figures:
    """Figures of a list of iterations: gauges of the newest, requests that ended in all of them."""
    found = Figures()
    if not rows:
        return found
    newest = rows[-1]
    _take(found, newest, _GAUGES)
    kv = _part(newest, "kvCacheStats")
    _take(found, kv, _KV)
    used, most, each = (_number(kv.get(name)) for name in ("usedNumBlocks", "maxNumBlocks", "tokensPerBlock"))
    if used is not None and most:
        found.gauge("kv_use", used / most)
    if used is not None and each is not None:
        found.gauge("kv_tokens_used", used * each)
    if most is not None and each is not None:
        found.gauge("kv_tokens_capacity", most * each)
    found.gauge("kv_hit_rate", _number(kv.get("cacheHitRate")))
    batch = _part(newest, "inflightBatchingStats")
    _take(found, batch, _BATCH)
    found.gauge("batch_size_mean", _mean(rows))
    ended = [_number(row.get("numCompletedRequests")) for row in rows]
    found.facts["completed_requests"] = (
        sum(value for value in ended if value is not None)
        if any(value is not None for value in ended)
        else None
    )
    found.facts["iterations"] = float(len(rows))
    return found


def _mean(rows: Sequence[Mapping[str, Any]]) -> float | None:
    sizes = [_number(_part(row, "inflightBatchingStats").get("numScheduledRequests")) for row in rows]
    known = [size for size in sizes if size is not None]
    return sum(known) / len(known) if known else None


def _take(found: Figures, values: Mapping[str, Any], names: Mapping[str, str]) -> None:
    for theirs, ours in names.items():
        found.gauge(ours, _number(values.get(theirs)))


def _part(row: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = row.get(name)
    return value if isinstance(value, dict) else {}


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
