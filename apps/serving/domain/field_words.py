"""What each field of a batching profile does, what it costs, and the figure that shows whether it works."""

from __future__ import annotations

from dataclasses import dataclass

from apps.serving.domain.trtllm import settings


@dataclass(frozen=True, slots=True)
class Words:
    """`metric` is a name of the telemetry vocabulary or an output of the model; empty where nothing shows it."""

    meaning: str
    cost: str
    metric: str = ""
    default: str = ""


FIELDS: dict[str, Words] = {
    "engine": Words("What serves with this profile; it decides which fields act.", "none.", "", "llama.cpp"),
    "strategy": Words(
        "What the engine does with requests that come while it works: in-flight joins them at the next token, "
        "dynamic and static let Triton form batches, none runs one at a time.",
        "a batch of static or dynamic ends with its longest answer; none has the lowest throughput.",
        "batch_size_mean",
        "in-flight",
    ),
    "max_batch_size": Words(
        "Sequences that generate at once (slots).",
        "the KV cache grows with it, and each answer gets slower while more of them run.",
        "slots_busy",
        "16",
    ),
    "max_seq_len": Words(
        "Longest prompt and answer together, in tokens, for each sequence.",
        "the KV cache grows with it; longer requests are refused.",
        "kv_tokens_capacity",
        "1024",
    ),
    "threads": Words(
        "CPU threads of the engine; 0 for every core.",
        "more than there are cores makes them wait for each other.",
        "cpu_use",
        "0",
    ),
    "max_queue_size": Words(
        "Requests that may wait for a slot; beyond it they are refused at once. 0 lets none wait.",
        "a long queue is a TTFT that nobody waits for.",
        "requests_rejected_per_second",
        "256",
    ),
    "max_queue_delay_microseconds": Words(
        "How long a request may be held back to fill a batch; with static, 0 means 1 s.",
        "adds to TTFT.",
        "triton_batch_size_mean",
        "0",
    ),
    "preferred_batch_sizes": Words(
        "Sizes that Triton sends as soon as they are reached, as 4, 8.",
        "a size that never comes about only adds waiting.",
        "triton_batch_size_mean",
        "empty: whatever came within the delay",
    ),
    "preserve_ordering": Words(
        "Answers leave in the order of their requests.",
        "a short answer waits for the long one before it; no classes.",
        "e2e_p50_ms",
        "off",
    ),
    "queue_timeout_microseconds": Words(
        "How long a request may wait in Triton's queue; 0 for ever.",
        "what waits longer is refused or moved back. Triton looks every half second while all is busy.",
        "requests_rejected_per_second",
        "0",
    ),
    "timeout_action": Words(
        "What happens to a request that waited too long.",
        "a request that is moved back may wait without end.",
        "requests_rejected_per_second",
        "refuse it",
    ),
    "allow_timeout_override": Words(
        "A request may name a shorter timeout than the profile's, never a longer one.",
        "none.",
        "requests_rejected_per_second",
        "on",
    ),
    "priority_classes": Words(
        "Triton's queue serves class high first, then normal, then low; each may have a size and timeout of its own.",
        "low requests may wait without end while high ones come.",
        "queue_p99_ms",
        "off",
    ),
    "default_priority_class": Words("Class of requests that name none.", "none.", "queue_p99_ms", "normal"),
}


def words(field: str) -> Words:
    """The words of a field, `trtllm.KEY` for a setting of TensorRT-LLM. Raises KeyError for a name that is none."""
    if field.startswith("trtllm."):
        item = settings.PROFILE[field.removeprefix("trtllm.")]
        return Words(item.meaning, item.cost, item.metric, item.default or "TensorRT-LLM decides")
    return FIELDS[field]
