"""Which settings of a batching profile act for an engine, and why the others do not.

The form greys by it, the REST answer carries it, and a YAML plan warns by it. Fields are the profile's own names;
settings of TensorRT-LLM are `trtllm.KEY`, and `instance_group.gpus` stands for Triton's list of GPUs, which no field
has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from apps.serving.domain.batching import LATER_KEYS
from apps.serving.domain.trtllm import settings

EngineKind = Literal["llamacpp", "trtllm", "llmapi"]
Why = Callable[[Mapping[str, Any], EngineKind], str | None]
FIELDS = (
    "strategy",
    "max_batch_size",
    "max_seq_len",
    "threads",
    "max_queue_size",
    "max_queue_delay_microseconds",
    "preferred_batch_sizes",
    "preserve_ordering",
    "queue_timeout_microseconds",
    "timeout_action",
    "allow_timeout_override",
    "priority_classes",
    "default_priority_class",
)
GPUS = "instance_group.gpus"
TAKEN_AT_ONCE = (
    "TensorRT-LLM takes requests out of Triton's queue at once and batches them in flight; what waits is bounded in "
    "the gateway."
)
_IN_BATCHES = ("static", "dynamic")


def acts(profile: Mapping[str, Any], engine: EngineKind) -> dict[str, str | None]:
    """{field: why it does nothing, null where it acts} for a profile's values and an engine."""
    values = {"strategy": "inflight", **LATER_KEYS, **profile}
    found: dict[str, str | None] = {field: _RULES[field](values, engine) for field in FIELDS}
    for key, item in settings.PROFILE.items():
        found[f"trtllm.{key}"] = _setting(item, values.get("trtllm") or {}, engine)
    found[GPUS] = _gpus(engine)
    return found


def set_without_effect(profile: Mapping[str, Any], engine: EngineKind) -> dict[str, str]:
    """{field: reason} of what was given and does nothing; fields that have their default are left out."""
    given = _given(profile)
    reasons = acts(profile, engine)
    return {field: reason for field, reason in reasons.items() if reason is not None and field in given}


def _given(profile: Mapping[str, Any]) -> set[str]:
    defaults = {"max_queue_delay_microseconds": 0, "threads": 0, "strategy": "inflight", **LATER_KEYS}
    given = {field for field, default in defaults.items() if profile.get(field, default) != default}
    return given | {f"trtllm.{key}" for key in profile.get("trtllm") or {}}


def _strategy(values: Mapping[str, Any], engine: EngineKind) -> str | None:
    return (
        None
        if engine == "llamacpp"
        else "TensorRT-LLM always batches in flight; static batching left it in 1.0."
    )


def _batch_size(values: Mapping[str, Any], engine: EngineKind) -> str | None:
    alone = engine == "llamacpp" and values["strategy"] == "none"
    return "Strategy none runs one request at a time." if alone else None


def _sequence(values: Mapping[str, Any], engine: EngineKind) -> str | None:
    return "The engine's build fixed it; see the build profile." if engine == "trtllm" else None


def _threads(values: Mapping[str, Any], engine: EngineKind) -> str | None:
    return None if engine == "llamacpp" else "TensorRT-LLM computes on GPUs."


def _queue_size(values: Mapping[str, Any], engine: EngineKind) -> str | None:
    return None if engine == "llamacpp" else TAKEN_AT_ONCE


def _in_batches(values: Mapping[str, Any], engine: EngineKind) -> str | None:
    if engine != "llamacpp":
        return TAKEN_AT_ONCE
    if values["strategy"] in _IN_BATCHES:
        return None
    return (
        "Requests join the running batch at once; Triton forms none."
        if values["strategy"] == "inflight"
        else "Strategy none forms no batch."
    )


def _preferred(values: Mapping[str, Any], engine: EngineKind) -> str | None:
    static = engine == "llamacpp" and values["strategy"] == "static"
    return "Strategy static waits for the maximum batch size." if static else _in_batches(values, engine)


def _after_timeout(values: Mapping[str, Any], engine: EngineKind) -> str | None:
    idle = _in_batches(values, engine)
    timeouts = [values.get("queue_timeout_microseconds") or 0]
    timeouts += [item.get("queue_timeout_microseconds") or 0 for item in values["priority_classes"] or []]
    return idle or (None if any(timeouts) else "Without a queue timeout no request waits too long.")


def _action(values: Mapping[str, Any], engine: EngineKind) -> str | None:
    ordered = "Answers in order allow refusing only." if values["preserve_ordering"] else None
    return _after_timeout(values, engine) or ordered


def _classes(values: Mapping[str, Any], engine: EngineKind) -> str | None:
    if engine == "llamacpp" and values["strategy"] in ("inflight", "none"):
        return (
            "The engine's own queue orders high, normal and low by itself; sizes and timeouts by class are Triton's, "
            "with strategies static and dynamic."
        )
    ordered = "Answers in order allow no classes." if values["preserve_ordering"] else None
    return _in_batches(values, engine) or ordered


def _default_class(values: Mapping[str, Any], engine: EngineKind) -> str | None:
    without = (
        "Without priority classes Triton's queue serves who came first."
        if not values["priority_classes"]
        else None
    )
    return _classes(values, engine) or without


_RULES: dict[str, Why] = {
    "strategy": _strategy,
    "max_batch_size": _batch_size,
    "max_seq_len": _sequence,
    "threads": _threads,
    "max_queue_size": _queue_size,
    "max_queue_delay_microseconds": _in_batches,
    "preferred_batch_sizes": _preferred,
    "preserve_ordering": _in_batches,
    "queue_timeout_microseconds": _in_batches,
    "timeout_action": _action,
    "allow_timeout_override": _after_timeout,
    "priority_classes": _classes,
    "default_priority_class": _default_class,
}
# A setting and the one that must be chosen before it does anything: (other key, its value, null for any; the reason).
_NEEDS: dict[str, tuple[str, Any, str]] = {
    **dict.fromkeys(settings.LOOKAHEAD, ("decoding_mode", "lookahead", "Only with decoding lookahead.")),
    "medusa_choices": ("decoding_mode", "medusa", "Only with decoding medusa."),
    "eagle_choices": ("decoding_mode", "eagle", "Only with decoding eagle."),
    "cuda_graph_cache_size": ("cuda_graph_mode", True, "Only with CUDA graphs."),
    "kv_cache_onboard_blocks": ("kv_cache_host_memory_bytes", None, "Only with a host cache."),
    "sink_token_length": ("max_attention_window_size", None, "Only with an attention window."),
}


def _setting(item: settings.Setting, chosen: Mapping[str, Any], engine: EngineKind) -> str | None:
    if engine == "llamacpp":
        return "The embedded llama.cpp model has no such setting."
    if engine == "trtllm" and not item.engine:
        return "The engine's build fixed it; see the build profile."
    if engine == "llmapi" and not item.yaml and item.key != "cancellation_check_period_ms":
        return "The PyTorch backend has no such argument."
    if item.key == "kv_cache_free_gpu_mem_fraction" and chosen.get("max_tokens_in_paged_kv_cache"):
        return "The number of tokens decides; with both, the smaller cache is taken."
    if item.key == "speculative_decoding_fast_logits":
        return "It needs an orchestrator that spawns no workers; Inflight's spawns them."
    if item.key in _NEEDS:
        other, value, reason = _NEEDS[item.key]
        given = chosen.get(other)
        return None if given and (value is None or given == value) else reason
    return None


def _gpus(engine: EngineKind) -> str | None:
    if engine == "trtllm":
        return "The C++ backend ignores the GPUs of instance_group; the deployment's gpu_device_ids decide."
    if engine == "llmapi":
        return "The PyTorch backend places its ranks itself; the deployment's gpu_device_ids decide."
    return None
