"""Memory of the embedded llama.cpp engine: weights as its file lays them out, the cache of its slots, its buffers.

llama.cpp maps the file (its "model buffer size" is the sum of the tensors), keeps one stream of the cache for each
slot, in cells of 256 (llama_context pads n_ctx_seq to 256), and may keep a second copy of some weight types in the
layout of the processor's kernels (CPU_REPACK).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from apps.core.exceptions import Finding
from apps.engines.domain.memory.formats import KvFormat
from apps.engines.domain.memory.terms import Term, exact
from apps.engines.domain.memory.units import MIB, shown
from apps.registry.domain.gguf_reader import Array, Header
from apps.registry.domain.gguf_types import BY_NAME, tensor_bytes

SOURCE = "llama.cpp's allocation"
CELLS = 256
# Types whose kernels want another layout on x86-64 (ggml-cpu/repack.cpp); which of them depends on the processor.
REPACKED = frozenset({"Q4_0", "Q4_K", "Q5_K", "Q6_K", "Q2_K", "Q8_0", "IQ4_NL", "MXFP4"})
ALWAYS_REPACKED = frozenset({"Q4_0", "IQ4_NL"})
# Interpreter, numpy, tokenizer and Triton's server: 113 MiB beside the demo engine on the host where it was measured;
# larger vocabularies and other builds of Triton need more.
PROCESS = (60 * MIB, 115 * MIB, 320 * MIB)
# Share of the formula of the compute buffers before runs were measured: 0.86 to 1.73 seen on one host.
DEFAULT_SCALE = (0.5, 1.0, 2.0)
INTEGERS = frozenset({"I8", "I16", "I32", "I64"})
# As workers/builders/llamacpp_steps/plan.py keeps them; a test compares the two.
KEPT_F32 = (
    "ffn_gate_inp",
    "ffn_gate_inp_shexp",
    "position_embd",
    "token_types",
    "ssm_conv1d",
    "shortconv.conv",
    "time_mix_",
    "attn_rel_b",
)


@dataclass(frozen=True, slots=True)
class GgufSizes:
    """What the plan needs of a header: `tensors` are (name, type, bytes), `caches` (K, V) values of each layer."""

    tensors: tuple[tuple[str, str, int], ...]
    caches: tuple[tuple[int, int], ...]
    vocab_size: int
    hidden_size: int
    ffn_width: int

    @property
    def weights(self) -> int:
        """Bytes of all tensors."""
        return sum(size for _, _, size in self.tensors)


@dataclass(frozen=True, slots=True)
class LlamaCppRequest:
    """How the engine is served; see docs/llamacpp-model.md for the settings.

    `activations_scale` is the measured share of the formula of the compute buffers (low, likely, high).
    """

    slots: int
    context_per_slot: int
    kv: KvFormat
    prefill_tokens_per_step: int = 128
    memory: int | None = None
    activations_scale: tuple[float, float, float] | None = None

    @property
    def step_tokens(self) -> int:
        """Tokens of one step."""
        return self.prefill_tokens_per_step + self.slots


@dataclass(frozen=True)
class LlamaCppPlan:
    """Bytes of the serving process. `fits` is None where no memory is given to compare with."""

    terms: tuple[Term, ...]
    weights: int
    kv: int
    kv_tokens: int
    required: int
    fits: bool | None
    compute_formula: int
    findings: tuple[Finding, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """JSON form."""
        return {
            "weights_bytes": self.weights,
            "kv_pool_bytes": self.kv,
            "kv_capacity_tokens": self.kv_tokens,
            "required_bytes": self.required,
            "fits": self.fits,
            "terms": [term.as_dict() for term in self.terms],
            "findings": [finding.as_dict() for finding in self.findings],
        }


def sizes_of(header: Header, wanted: str | None = None) -> GgufSizes:
    """Sizes of a GGUF file, or (`wanted`) of the engine that a build with that weight type makes of it."""
    arch = header.get("general.architecture")
    layers = _number(header, f"{arch}.block_count") or 0
    heads = _numbers(header, f"{arch}.attention.head_count", layers)
    kv_heads = _numbers(header, f"{arch}.attention.head_count_kv", layers) or heads
    hidden = _number(header, f"{arch}.embedding_length") or 0
    key = _number(header, f"{arch}.attention.key_length") or (hidden // max(heads, default=1) if heads else 0)
    value = _number(header, f"{arch}.attention.value_length") or key
    tokens = header.get("tokenizer.ggml.tokens")
    vocab = _number(header, f"{arch}.vocab_size") or (tokens.length if isinstance(tokens, Array) else 0)
    return GgufSizes(
        tensors=tuple(
            (tensor.name, *_becomes(tensor.name, tensor.shape, tensor.type, wanted))
            for tensor in header.tensors
        ),
        caches=tuple((count * key, count * value) for count in kv_heads),
        vocab_size=vocab,
        hidden_size=hidden,
        ffn_width=max(_numbers(header, f"{arch}.feed_forward_length", layers), default=0),
    )


def plan_llamacpp(sizes: GgufSizes, request: LlamaCppRequest) -> LlamaCppPlan:
    """Plan of one serving process."""
    cells = -(-request.context_per_slot // CELLS) * CELLS
    each = sum(request.kv.bytes_of(key) + request.kv.bytes_of(value) for key, value in sizes.caches)
    cache = each * cells * request.slots
    terms = [
        exact(
            "weights",
            "Weights",
            "weights",
            sizes.weights,
            f"{len(sizes.tensors):,} tensors as the file lays them out",
            "the GGUF header",
        ),
        *_repacked(sizes),
        exact(
            "kv",
            "KV cache",
            "kv",
            cache,
            f"{request.slots} slots x {cells:,} cells x {each:,} B a token ({request.kv.label}, {len(sizes.caches)} "
            "layers)",
            SOURCE,
        ),
        *_buffers(sizes, request),
        Term("process", "Programs", "overhead", *PROCESS, "Triton, Python, tokenizer", "measured"),
    ]
    high = sum(term.high if term.group == "activations" else term.likely for term in terms)
    fits = None if request.memory is None else high <= request.memory
    return LlamaCppPlan(
        terms=tuple(terms),
        weights=sizes.weights,
        kv=cache,
        kv_tokens=cells * request.slots,
        required=high,
        fits=fits,
        compute_formula=compute_formula(sizes, request),
        findings=tuple(_findings(high, request, fits)),
    )


def largest_slots(sizes: GgufSizes, request: LlamaCppRequest, most: int = 256) -> int:
    """The most slots of this context that fit in `request.memory`; 0: none, or no memory is given."""
    if request.memory is None:
        return 0
    low, high = 0, most + 1
    while high - low > 1:
        middle = (low + high) // 2
        fits = plan_llamacpp(sizes, replace(request, slots=middle)).fits
        low, high = (middle, high) if fits else (low, middle)
    return low


def longest_context(sizes: GgufSizes, request: LlamaCppRequest, most: int = 1_048_576) -> int:
    """The longest context of each slot (whole cells) that fits in `request.memory`; 0: none."""
    if request.memory is None:
        return 0
    low, high = 0, most // CELLS + 1
    while high - low > 1:
        middle = (low + high) // 2
        fits = plan_llamacpp(sizes, replace(request, context_per_slot=middle * CELLS)).fits
        low, high = (middle, high) if fits else (low, middle)
    return low * CELLS


def _findings(needed: int, request: LlamaCppRequest, fits: bool | None) -> list[Finding]:
    if fits is not False:
        return []
    return [
        Finding(
            "does_not_fit",
            "warning",
            f"It needs {shown(needed)} and there are {shown(request.memory or 0)}.",
            "max_batch_size",
            "Use fewer slots, a shorter context for each slot, or a narrower weight type.",
        )
    ]


def _repacked(sizes: GgufSizes) -> list[Term]:
    possible = [
        (kind, size) for name, kind, size in sizes.tensors if kind in REPACKED and name.endswith(".weight")
    ]
    if not possible:
        return []
    high = sum(size for _, size in possible)
    likely = sum(size for kind, size in possible if kind in ALWAYS_REPACKED)
    kinds = ", ".join(sorted({kind for kind, _ in possible}))
    return [
        Term(
            "repacked",
            "Weights in the processor's layout",
            "weights",
            0,
            likely,
            high,
            f"a second copy of the {kinds} tensors where the processor's kernels want one",
            SOURCE,
        )
    ]


def compute_formula(sizes: GgufSizes, request: LlamaCppRequest) -> int:
    """Bytes of the compute buffers by the formula alone: logits and the widest layer of one step, 32 bit."""
    widest = request.step_tokens * 4 * (2 * sizes.ffn_width + 3 * sizes.hidden_size)
    return request.slots * sizes.vocab_size * 4 + widest


def _buffers(sizes: GgufSizes, request: LlamaCppRequest) -> list[Term]:
    logits = request.slots * sizes.vocab_size * 4
    step, base = request.step_tokens, compute_formula(sizes, request)
    scale = request.activations_scale
    low, likely, high = (int(base * part) for part in scale or DEFAULT_SCALE)
    return [
        exact(
            "output",
            "Logits",
            "overhead",
            logits,
            f"{request.slots} slots x vocabulary {sizes.vocab_size:,} x 4 B",
            SOURCE,
        ),
        Term(
            "compute",
            "Compute buffers",
            "activations",
            low,
            likely,
            high,
            f"logits + {step} tokens a step x 4 B x (2 x {sizes.ffn_width:,} + 3 x {sizes.hidden_size:,})",
            "calibrated on measured loads" if scale else "fitted to logs of this engine: an estimate",
        ),
    ]


def _becomes(name: str, shape: tuple[int, ...], kind: str, wanted: str | None) -> tuple[str, int]:
    """Type and bytes of a tensor, as it is or as the builder writes it."""
    if wanted is not None and kind not in INTEGERS:
        flat = len([length for length in shape if length > 1]) <= 1
        if flat or not name.endswith(".weight") or any(part in name for part in KEPT_F32):
            kind = "F32"
        else:
            kind = "F16" if shape[0] % BY_NAME[wanted].block else wanted
    return kind, tensor_bytes(shape, kind) or 0


def _number(header: Header, key: str) -> int | None:
    value = header.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _numbers(header: Header, key: str, layers: int) -> list[int]:
    """One number for each layer; a single one counts for all of them."""
    value = header.get(key)
    if isinstance(value, Array):
        return [item for item in value.values if isinstance(item, int)]
    single = _number(header, key)
    return [] if single is None else [single] * layers
