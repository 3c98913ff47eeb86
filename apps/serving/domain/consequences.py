"""What a batching profile means for those who send requests, in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from apps.serving.domain import batching
from apps.serving.domain.acting import EngineKind
from apps.serving.domain.batching import BatchingFacts

# Of `trtllm-build` and of `LLM()`, where nothing is set.
DEFAULT_MAX_NUM_TOKENS = 8192


@dataclass(frozen=True, slots=True)
class Limits:
    """What an engine's build fixed, tokens and sequences; null where it is not known."""

    max_seq_len: int | None = None
    max_num_tokens: int | None = None
    max_batch_size: int | None = None


def consequences(profile: Mapping[str, Any], engine: EngineKind, limits: Limits = Limits()) -> list[str]:
    """Sentences about refusals, waiting and batches. Raises InvalidInput for a profile that is none."""
    facts = batching.facts(profile)
    if engine == "llamacpp":
        return [*_lengths_embedded(facts), *_batches(facts), *_queue(facts)]
    settings: Mapping[str, Any] = profile.get("trtllm") or {}
    return [
        *_lengths(facts, settings, engine, limits),
        *_slots(facts, engine, limits),
        *_scheduling(settings),
    ]


def number(value: int) -> str:
    """8192 as 8,192."""
    return f"{value:,}"


def _lengths_embedded(facts: BatchingFacts) -> Iterator[str]:
    yield (
        f"A prompt and its answer together hold at most {number(facts.context_per_slot)} tokens: a longer prompt is "
        "refused, an answer ends there."
    )


def _batches(facts: BatchingFacts) -> Iterator[str]:
    if facts.strategy == "none":
        yield "One request runs at a time; the others wait."
    elif facts.strategy == "inflight":
        yield f"Up to {facts.slots} requests run together; each joins at the next token and leaves when it ends."
    else:
        delay = facts.queue_delay_microseconds
        delay = delay or (batching.STATIC_DELAY_MICROSECONDS if facts.strategy == "static" else 0)
        what = f"exactly {facts.slots}" if facts.strategy == "static" else f"up to {facts.slots}"
        if delay:
            yield f"A request waits up to {_milliseconds(delay)} for a batch of {what}, while the engine is idle."
        else:
            yield f"An idle engine takes what has come, {what} requests at once, without waiting for more."
        yield "A batch ends with its longest answer; what comes meanwhile waits for the next one."


def _queue(facts: BatchingFacts) -> Iterator[str]:
    waiting = facts.max_queue_size
    busy = f"all {facts.slots} slots are" if facts.slots > 1 else "the slot is"
    if waiting == 0:
        yield f"While {busy} busy, every further request is refused at once."
    else:
        yield f"While {busy} busy, up to {number(waiting)} requests wait; the next one is refused at once."
    if not facts.in_batches:
        return
    if facts.queue_timeout_microseconds:
        what = "refused" if facts.timeout_action == "reject" else "moved behind the others, and never refused"
        yield f"A request that waits longer than {_milliseconds(facts.queue_timeout_microseconds)} is {what}."
    for item in facts.priority_classes:
        if item.max_queue_size is not None:
            yield f"Of class {item.name}, up to {number(item.max_queue_size)} requests wait."
    if facts.priority_classes:
        yield "Each class has a queue of its own, so their sizes add up."


def _milliseconds(microseconds: int) -> str:
    return f"{microseconds / 1000:,.10g} ms"


def _lengths(
    facts: BatchingFacts, settings: Mapping[str, Any], engine: EngineKind, limits: Limits
) -> Iterator[str]:
    longest = facts.context_per_slot if engine == "llmapi" else limits.max_seq_len
    step = settings.get("max_num_tokens") if engine == "llmapi" else limits.max_num_tokens
    assumed = "" if step else ", the build's default" if engine == "trtllm" else ", the default"
    step = int(step or DEFAULT_MAX_NUM_TOKENS)
    chunked = settings.get("enable_chunked_context") is True
    if not chunked and (longest is None or step < longest):
        yield (
            f"A prompt longer than {number(step)} tokens will be refused (max_num_tokens{assumed}); chunked context "
            "lifts that."
        )
    elif longest is not None:
        yield f"A prompt longer than {number(longest - 1)} tokens will be refused."
    if longest is not None:
        yield f"A prompt and its answer together hold at most {number(longest)} tokens."
    if window := settings.get("max_attention_window_size"):
        yield f"Layers look back {window} tokens; what lies before is forgotten."


def _slots(facts: BatchingFacts, engine: EngineKind, limits: Limits) -> Iterator[str]:
    if engine == "trtllm" and limits.max_batch_size and facts.slots > limits.max_batch_size:
        yield (
            f"At most {limits.max_batch_size} requests run together: the engine was built for that, whatever the "
            "profile says."
        )
    else:
        yield f"Up to {facts.slots} requests run together, as far as the KV cache holds them."


def _scheduling(settings: Mapping[str, Any]) -> Iterator[str]:
    if settings.get("batch_scheduler_policy") == "max_utilization":
        yield "When the KV cache is full, running answers are paused and their prompts computed again."
    else:
        yield "A request starts when its longest possible answer fits into the KV cache; none is paused."
    if settings.get("enable_kv_cache_reuse") is False:
        yield "Prompts that begin alike are computed anew each time."
    if (beams := settings.get("max_beam_width", 1)) > 1:
        yield f"A request may ask for {beams} beams and then takes {beams} times its KV cache."
    if fraction := settings.get("lora_cache_gpu_memory_fraction"):
        yield f"LoRA adapters take {fraction:.0%} of the free GPU memory before the KV cache."
