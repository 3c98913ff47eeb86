"""What a plan is asked for, and what is wrong with it."""

from __future__ import annotations

from dataclasses import dataclass

from apps.core.exceptions import Finding, InvalidInput
from apps.engines.domain.memory.formats import KvFormat, WeightFormat
from apps.engines.domain.memory.shape import Shape

# Bounds on what makes sense; products of them stay far below what a 64-bit count holds.
MAX_RANKS = 1024
MAX_TOKENS = 100_000_000
MAX_BATCH = 1_000_000
TOKENS_PER_BLOCK = 32
DEFAULT_MAX_NUM_TOKENS = 8192
DEFAULT_MAX_BATCH_SIZE = 2048
DEFAULT_KV_FRACTION = 0.9


@dataclass(frozen=True, slots=True)
class Draft:
    """A draft model of its own on the same GPUs."""

    shape: Shape
    weights: WeightFormat


@dataclass(frozen=True, slots=True)
class Lora:
    """Adapters: rank, how many lie on the GPU at once, share of what is left before the KV cache."""

    rank: int
    adapters: int = 8
    fraction: float = 0.05


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """One plan. Bytes and tokens; `gpu_memory` is what a CUDA program sees of one GPU.

    `kv_max_tokens` is max_tokens_in_paged_kv_cache (None: the fraction alone). `reserved` are bytes that others hold
    on the GPU. `windows`: whether a sliding window limits the cache (max_attention_window is set). `overhead_bytes`
    replaces the estimate of context, server and buffers where it was measured. `draft_tokens` are proposed in each
    step. `activations_scale` is the calibrated share of the activation formula with its spread (low, likely, high).
    """

    gpu_memory: int
    weights: WeightFormat
    kv: KvFormat
    tp: int = 1
    pp: int = 1
    ep: int = 1
    max_batch_size: int = DEFAULT_MAX_BATCH_SIZE
    max_seq_len: int = 8192
    max_num_tokens: int = DEFAULT_MAX_NUM_TOKENS
    kv_fraction: float = DEFAULT_KV_FRACTION
    beam_width: int = 1
    tokens_per_block: int = TOKENS_PER_BLOCK
    kv_max_tokens: int | None = None
    windows: bool = True
    sink_bubble: int = 0
    chunked_context: bool = False
    gather_context_logits: bool = False
    remove_input_padding: bool = True
    parallel_embedding: bool = False
    cuda_graphs: int = 0
    reserved: int = 0
    draft: Draft | None = None
    draft_tokens: int = 0
    lora: Lora | None = None
    kv_host_bytes: int = 0
    sm: int | None = None
    overhead_bytes: int | None = None
    activations_scale: tuple[float, float, float] | None = None
    calibrated_runs: int = 0

    @property
    def world_size(self) -> int:
        """GPUs in all."""
        return self.tp * self.pp


_LIMITS = (
    ("tp", 1, MAX_RANKS),
    ("pp", 1, MAX_RANKS),
    ("ep", 1, MAX_RANKS),
    ("max_batch_size", 1, MAX_BATCH),
    ("max_seq_len", 1, MAX_TOKENS),
    ("max_num_tokens", 1, MAX_TOKENS),
    ("beam_width", 1, 256),
    ("tokens_per_block", 1, 1024),
    ("sink_bubble", 0, MAX_TOKENS),
    ("draft_tokens", 0, 256),
    ("cuda_graphs", 0, 10_000),
    ("kv_host_bytes", 0, 2**50),
    ("reserved", 0, 2**50),
)


def check_ranges(request: PlanRequest) -> list[Finding]:
    """Figures that make no sense whatever the model is."""
    found = []
    for name, low, high in _LIMITS:
        value = getattr(request, name)
        if not low <= value <= high:
            found.append(
                Finding(
                    "out_of_range",
                    "error",
                    f"{name} is {value:,}; it has to be between {low:,} and {high:,}.",
                    name,
                    f"Choose a {name} between {low:,} and {high:,}.",
                )
            )
    # Written so that NaN is refused too.
    if not 0 < request.kv_fraction < 1:
        found.append(
            Finding(
                "kv_fraction_invalid",
                "error",
                f"kv_fraction is {request.kv_fraction}; it must be greater than 0 and smaller than 1. TensorRT-LLM "
                "refuses 1.0 and more (Invalid freeMemFraction).",
                "kv_fraction",
                "Use 0.9, which is the default.",
            )
        )
    if request.kv_max_tokens is not None and request.kv_max_tokens < 1:
        found.append(
            Finding(
                "out_of_range", "error", "kv_max_tokens must be positive.", "kv_max_tokens", "Leave it out."
            )
        )
    if request.tp and request.ep > 0 and request.tp % request.ep:
        found.append(
            Finding(
                "ep_invalid",
                "error",
                f"ep {request.ep} does not divide tp {request.tp}: tp is moe_tp times moe_ep.",
                "ep",
                f"Use a divisor of {request.tp}.",
            )
        )
    return found


def refuse(findings: list[Finding]) -> None:
    """Raise InvalidInput with every finding where one of them is an error."""
    first = next((finding for finding in findings if finding.severity == "error"), None)
    if first is not None:
        raise InvalidInput(
            first.id, first.message, field=first.where, remedy=first.remedy, findings=tuple(findings)
        )
