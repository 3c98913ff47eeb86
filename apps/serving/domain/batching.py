"""What a batching profile means to the engine, and what in it does nothing.

A snapshot is the JSON form of a profile that a revision keeps; its keys are SNAPSHOT_KEYS. Those that came later are
absent in older revisions and then mean nothing set.

With strategies static and dynamic Triton's own batcher forms the batches and holds the queue; with none and inflight
the engine takes requests as they come and queues them itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from apps.core.exceptions import Finding, InvalidInput
from apps.serving.domain import priority_classes
from apps.serving.domain.priority_classes import DEFAULT_LEVEL, PriorityClass

Strategy = Literal["none", "static", "dynamic", "inflight"]
TimeoutAction = Literal["reject", "delay"]
STRATEGIES: tuple[Strategy, ...] = ("none", "static", "dynamic", "inflight")
# How long strategy static waits for a full batch where the profile names no time.
STATIC_DELAY_MICROSECONDS = 1_000_000
SNAPSHOT_KEYS = (
    "name",
    "strategy",
    "max_batch_size",
    "max_queue_delay_microseconds",
    "max_seq_len",
    "max_queue_size",
    "threads",
    "preferred_batch_sizes",
    "queue_timeout_microseconds",
    "preserve_ordering",
    "timeout_action",
    "allow_timeout_override",
    "priority_classes",
    "default_priority_class",
    "trtllm",
)
# Not in revisions that are older than these settings, nor where nothing is set: what that means.
LATER_KEYS: dict[str, Any] = {
    "preferred_batch_sizes": [],
    "queue_timeout_microseconds": 0,
    "preserve_ordering": False,
    "timeout_action": "reject",
    "allow_timeout_override": True,
    "priority_classes": [],
    "default_priority_class": "",
    "trtllm": {},
}


@dataclass(frozen=True, slots=True)
class BatchingFacts:
    """What the engine is started with.

    `slots`: sequences that generate at once, 1 with strategy none. `context_per_slot`: prompt and answer together,
    tokens. `threads`: 0 for every core. `max_queue_size`: requests that may wait for a slot, 0 for none.
    `preferred_batch_sizes` and `queue_timeout_microseconds` (0: none) are Triton's, for static and dynamic.
    `default_priority_level` is the level of requests that name no class; 1 is the most urgent.
    """

    strategy: Strategy
    slots: int
    context_per_slot: int
    threads: int
    max_queue_size: int
    queue_delay_microseconds: int
    preferred_batch_sizes: tuple[int, ...] = ()
    queue_timeout_microseconds: int = 0
    preserve_ordering: bool = False
    timeout_action: TimeoutAction = "reject"
    allow_timeout_override: bool = True
    priority_classes: tuple[PriorityClass, ...] = ()
    default_priority_level: int = DEFAULT_LEVEL

    @property
    def in_batches(self) -> bool:
        """Whether Triton forms batches, each of which ends together."""
        return self.strategy in ("static", "dynamic")


def facts(snapshot: Mapping[str, Any]) -> BatchingFacts:
    """Typed facts of a snapshot. Raises InvalidInput naming the key that is missing or out of range."""
    strategy = snapshot.get("strategy")
    if strategy not in STRATEGIES:
        raise InvalidInput(
            "batching_strategy",
            f"The batching strategy {strategy!r} is not known.",
            field="strategy",
            remedy=f"Choose one of: {', '.join(STRATEGIES)}.",
        )
    size = _whole(snapshot, "max_batch_size", 1)
    snapshot = {**LATER_KEYS, **snapshot}
    classes = priority_classes.classes(snapshot["priority_classes"])
    return BatchingFacts(
        strategy=cast(Strategy, strategy),
        slots=1 if strategy == "none" else size,
        context_per_slot=_whole(snapshot, "max_seq_len", 1),
        threads=_whole(snapshot, "threads", 0),
        max_queue_size=_whole(snapshot, "max_queue_size", 0),
        queue_delay_microseconds=_whole(snapshot, "max_queue_delay_microseconds", 0),
        preferred_batch_sizes=_sizes(snapshot, size),
        queue_timeout_microseconds=_whole(snapshot, "queue_timeout_microseconds", 0),
        preserve_ordering=snapshot["preserve_ordering"] is True,
        timeout_action="delay" if snapshot["timeout_action"] == "delay" else "reject",
        allow_timeout_override=snapshot["allow_timeout_override"] is True,
        priority_classes=classes,
        default_priority_level=priority_classes.default_level(snapshot["default_priority_class"]),
    )


def _sizes(snapshot: Mapping[str, Any], most: int) -> tuple[int, ...]:
    values = snapshot.get("preferred_batch_sizes") or []
    if not isinstance(values, list) or any(
        isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most for value in values
    ):
        raise InvalidInput(
            "batching_value",
            f"preferred_batch_sizes is {values!r}; whole numbers from 1 to the maximum batch size {most} are needed.",
            field="preferred_batch_sizes",
            remedy="Correct it in the batching profile, or leave it empty.",
        )
    return tuple(sorted(set(values)))


def _whole(snapshot: Mapping[str, Any], key: str, least: int) -> int:
    value = snapshot.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InvalidInput(
            "batching_value",
            f"{key} is {value!r}; a whole number of at least {least} is needed.",
            field=key,
            remedy="Correct it in the batching profile and deploy again.",
        )
    return value


def kv_cache_bytes(batching: BatchingFacts, kv_bytes_per_token: int) -> int:
    """Bytes that the embedded engine reserves for the KV cache at start: slots x context x bytes per token."""
    return batching.slots * batching.context_per_slot * kv_bytes_per_token


def findings(
    snapshot: Mapping[str, Any],
    *,
    kv_bytes_per_token: int | None = None,
    max_position_embeddings: int | None = None,
    memory_bytes: int | None = None,
    cores: int | None = None,
) -> list[Finding]:
    """What in a snapshot does nothing, or bites on this machine. Facts that are not known are left out.

    `memory_bytes` is the memory for weights and cache of the place where it would run.
    """
    batching = facts(snapshot)
    found = _without_effect(snapshot, batching)
    if cores and batching.threads > cores:
        found.append(
            Finding(
                "threads_exceed_cores",
                "warning",
                f"{batching.threads} threads on {cores} cores wait for each other.",
                "threads",
                f"Use at most {cores}, or 0 for every core.",
            )
        )
    if max_position_embeddings and batching.context_per_slot > max_position_embeddings:
        found.append(
            Finding(
                "context_exceeds_model",
                "warning",
                f"The model was trained on sequences of {max_position_embeddings} tokens; answers beyond that decay.",
                "max_seq_len",
                f"Use at most {max_position_embeddings}.",
            )
        )
    if kv_bytes_per_token and memory_bytes and kv_cache_bytes(batching, kv_bytes_per_token) > memory_bytes:
        needed = kv_cache_bytes(batching, kv_bytes_per_token) / 2**30
        found.append(
            Finding(
                "kv_cache_exceeds_memory",
                "error",
                f"The KV cache needs {needed:.1f} GiB; there are {memory_bytes / 2**30:.1f} GiB.",
                "max_batch_size",
                "Lower the maximum batch size or the maximum sequence length.",
            )
        )
    return found


def _without_effect(snapshot: Mapping[str, Any], batching: BatchingFacts) -> list[Finding]:
    found = []
    if batching.strategy == "none" and snapshot["max_batch_size"] > 1:
        found.append(
            Finding(
                "batch_size_without_effect",
                "info",
                "With strategy none one request runs at a time; the maximum batch size is not used.",
                "max_batch_size",
                "Choose strategy inflight to run requests together.",
            )
        )
    found += _triton_settings(batching)
    if batching.queue_delay_microseconds and not batching.in_batches:
        reason = _why_idle(batching)
        found.append(
            Finding(
                "queue_delay_without_effect",
                "info",
                f"The queue delay does nothing here: {reason}.",
                "max_queue_delay_microseconds",
                "Set it to 0.",
            )
        )
    if batching.max_queue_size == 0:
        found.append(
            Finding(
                "no_waiting_requests",
                "info",
                "No request may wait: each one that comes while every slot is busy is refused.",
                "max_queue_size",
                "Allow some waiting requests unless the callers retry.",
            )
        )
    return found


def _why_idle(batching: BatchingFacts) -> str:
    return (
        "requests join the running batch at once" if batching.strategy == "inflight" else "there is no batch"
    )


def _triton_settings(batching: BatchingFacts) -> list[Finding]:
    """Settings of Triton's batcher that the strategy does not use."""
    found = []
    if batching.preferred_batch_sizes and batching.strategy != "dynamic":
        why = (
            "strategy static waits for the maximum batch size" if batching.in_batches else _why_idle(batching)
        )
        found.append(
            Finding(
                "preferred_sizes_without_effect",
                "info",
                f"Preferred batch sizes do nothing here: {why}.",
                "preferred_batch_sizes",
                "Leave them empty, or choose strategy dynamic.",
            )
        )
    if batching.queue_timeout_microseconds and not batching.in_batches:
        found.append(
            Finding(
                "queue_timeout_without_effect",
                "info",
                "The queue timeout does nothing here: requests wait in the engine, not in Triton.",
                "queue_timeout_microseconds",
                "Set it to 0, or choose strategy static or dynamic.",
            )
        )
    if batching.in_batches:
        found.append(
            Finding(
                "batch_ends_together",
                "info",
                "A batch ends with its longest answer; requests that come meanwhile wait for the next one.",
                "strategy",
                "Choose inflight, unless this is what you want to compare with.",
            )
        )
    return found
