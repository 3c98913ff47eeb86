"""What the arithmetic needs of a model: weights by how they are split over ranks, and what a token's cache takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from apps.core.exceptions import Finding, InvalidInput
from apps.registry.domain.model_facts import LayerParams, LayerSpec, ModelFacts

HALF = 2  # bytes of a 16-bit value


@dataclass(frozen=True, slots=True)
class LayerKind:
    """One kind of layer, at tp 1.

    `sharded` weights are divided by tp, `kv_projection` by tp up to the number of KV heads, `replicated` kept whole;
    all three are quantised. `expert` is one routed expert of `num_experts`. `small` weights (norms, router) stay
    16 bit and whole, `biases` 16 bit and divided, `kv_biases` likewise as the KV projections.
    `kv_values` values of one token are cached, over `kv_heads` heads (1: a latent that every rank keeps whole);
    `state_values` is what a sequence keeps whatever its length.
    """

    sharded: int = 0
    kv_projection: int = 0
    replicated: int = 0
    expert: int = 0
    num_experts: int = 0
    small: int = 0
    biases: int = 0
    kv_biases: int = 0
    kv_heads: int = 0
    kv_values: int = 0
    window: int | None = None
    state_values: int = 0

    @property
    def params(self) -> int:
        """All weights of the layer."""
        linear = self.sharded + self.kv_projection + self.replicated + self.expert * self.num_experts
        return linear + self.small + self.biases + self.kv_biases


@dataclass(frozen=True, slots=True)
class Stage:
    """Consecutive layers of one pipeline rank: how many of each kind."""

    first: bool
    last: bool
    layers: tuple[tuple[LayerKind, int], ...]

    @property
    def count(self) -> int:
        """Number of layers."""
        return sum(count for _, count in self.layers)


@dataclass(frozen=True)
class Shape:
    """A model as the planner sees it. `runs` are (kind, number of layers) from the first layer to the last.

    `ffn_width` is the widest hidden size of a token's feed-forward over all experts that it uses, `expanded` how many
    times its hidden state is copied for them. `final` weights (last norm, position embeddings...) stay 16 bit.
    `other` weights (vision tower) stay as stored, on the first rank.
    `tp_reasons` says why the checkpoint cannot be split over a number of GPUs, by str(tp).
    """

    name: str
    hidden_size: int
    vocab_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    ffn_width: int
    embedding: int
    lm_head: int
    tied: bool
    final: int
    runs: tuple[tuple[LayerKind, int], ...]
    num_layers: int
    expanded: int = 1
    other: int = 0
    max_positions: int | None = None
    valid_tp: tuple[int, ...] | None = None
    tp_reasons: Mapping[str, str] = field(default_factory=dict)
    stored_as: str | None = None
    stored_group: int | None = None
    stored_zeros: bool = False

    @property
    def params(self) -> int:
        """Weights of the language model, tied ones once."""
        layers = sum(kind.params * count for kind, count in self.runs)
        return layers + self.embedding + self.lm_head + self.final

    def stages(self, pp: int) -> tuple[Stage, ...]:
        """Layers of each pipeline rank; a remainder goes to the first ones, one layer each (numpy's array_split)."""
        return _stages(self.runs, self.num_layers, pp)


@lru_cache(maxsize=512)
def _stages(runs: tuple[tuple[LayerKind, int], ...], layers: int, pp: int) -> tuple[Stage, ...]:
    left = list(runs)
    found: list[Stage] = []
    for rank in range(pp):
        want = layers // pp + (1 if rank < layers % pp else 0)
        counts: dict[LayerKind, int] = {}
        while want and left:
            kind, count = left[0]
            taken = min(count, want)
            counts[kind] = counts.get(kind, 0) + taken
            want -= taken
            left[0] = (kind, count - taken)
            if count == taken:
                left.pop(0)
        found.append(Stage(rank == 0, rank == pp - 1, tuple(counts.items())))
    return tuple(found)


def shape_of(facts: ModelFacts) -> Shape:
    """The planner's view of a checkpoint. Raises InvalidInput naming every fact that is missing."""
    groups = facts.param_groups
    needed = {
        "num_hidden_layers": facts.num_layers,
        "hidden_size": facts.hidden_size,
        "vocab_size": facts.vocab_size,
    }
    # A model without any attention has no heads to tell of.
    if any(spec.kv_values_per_token for spec in facts.layer_specs) or not facts.layer_specs:
        needed["num_attention_heads"] = facts.num_attention_heads
    missing = [name for name, value in needed.items() if not value]
    if not missing and (groups is None or not facts.layer_specs or not facts.layer_spec_of):
        missing = ["the weights of each layer"]
    if missing or groups is None:
        raise _incomplete(facts, missing)
    kinds = [_kind(spec, facts) for spec in facts.layer_specs]
    if any(spec.params is None for spec in facts.layer_specs):
        raise _incomplete(facts, ["the weights of each layer"])
    runs: list[tuple[LayerKind, int]] = []
    for index in facts.layer_spec_of:
        kind = kinds[index]
        if runs and runs[-1][0] == kind:
            runs[-1] = (kind, runs[-1][1] + 1)
        else:
            runs.append((kind, 1))
    in_layers = sum(kind.params * count for kind, count in runs)
    outside = groups.total() - groups.embedding - groups.lm_head - in_layers
    width, expanded = _ffn(facts)
    stored, group, zeros = _stored(facts)
    return Shape(
        name=facts.name or facts.family or "model",
        hidden_size=facts.hidden_size or 0,
        vocab_size=facts.vocab_size or 0,
        num_heads=facts.num_attention_heads or 0,
        num_kv_heads=facts.num_kv_heads or facts.num_attention_heads or 0,
        head_dim=facts.head_dim or 0,
        ffn_width=width,
        embedding=groups.embedding,
        lm_head=groups.lm_head,
        tied=groups.lm_head == 0,
        final=max(outside, 0),
        runs=tuple(runs),
        num_layers=len(facts.layer_spec_of),
        expanded=expanded,
        other=facts.other_params or 0,
        max_positions=facts.max_position_embeddings,
        valid_tp=facts.valid_tp,
        tp_reasons=facts.tp_reasons,
        stored_as=stored,
        stored_group=group,
        stored_zeros=zeros,
    )


def _incomplete(facts: ModelFacts, missing: list[str]) -> InvalidInput:
    listed = ", ".join(missing)
    finding = Finding(
        "facts_incomplete",
        "error",
        f"The checkpoint does not tell {listed}, so its memory cannot be planned.",
        "checkpoint",
        "Give the config.json (or the GGUF file) that the weights came with.",
    )
    findings = (*facts.errors(), finding)
    return InvalidInput(
        finding.id, finding.message, field="checkpoint", remedy=finding.remedy, findings=findings
    )


def _kind(spec: LayerSpec, facts: ModelFacts) -> LayerKind:
    params = spec.params or LayerParams()
    experts = facts.moe.num_experts if facts.moe and params.experts else 0
    latent = spec.kind == "mla"
    return LayerKind(
        sharded=params.attention + params.mixer + params.mlp + params.shared_experts,
        kv_projection=params.attention_kv,
        replicated=params.attention_replicated,
        expert=-(-params.experts // experts) if experts else 0,
        num_experts=experts,
        small=params.router + params.norms + params.other,
        biases=params.biases,
        kv_biases=params.kv_biases,
        kv_heads=1 if latent else (spec.num_kv_heads or facts.num_kv_heads or 1),
        kv_values=spec.kv_values_per_token or 0,
        window=spec.window,
        state_values=spec.state_values,
    )


def _ffn(facts: ModelFacts) -> tuple[int, int]:
    """Width of a token's feed-forward and copies of its hidden state: of all the experts that it uses."""
    dense = facts.intermediate_size or 4 * (facts.hidden_size or 0)
    moe = facts.moe
    if moe is None:
        return dense, 1
    used = moe.experts_per_token or 1
    each = moe.moe_intermediate_size or dense
    routed = used * each + (moe.shared_intermediate_size or (moe.num_shared_experts or 0) * each)
    has_dense = bool(moe.dense_layers)
    return (max(dense, routed) if has_dense else routed), used


# TensorRT-LLM's and the checkpoints' own words -> the planner's formats.
_ALGORITHMS = {
    "W4A16_GPTQ": "int4_gptq",
    "W8A16_GPTQ": "int8",
    "W4A16_AWQ": "int4_awq",
    "W4A8_AWQ": "w4a8_awq",
    "W4A16": "int4",
    "W8A16": "int8",
    "INT8": "int8",
    "FP8": "fp8",
    "FP8_PER_CHANNEL_PER_TOKEN": "fp8",
    "FP8_BLOCK_SCALES": "fp8_block",
    "NVFP4": "nvfp4",
    "W4A8_NVFP4_FP8": "nvfp4",
    "MXFP4": "mxfp4",
    "W4A16_MXFP4": "mxfp4",
    "W4A8_MXFP4_MXFP8": "mxfp4",
    "W4A8_MXFP4_FP8": "mxfp4",
}
_DTYPES = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}


def _stored(facts: ModelFacts) -> tuple[str | None, int | None, bool]:
    """Format in which the checkpoint is stored, its group width, whether it keeps zero points."""
    found = facts.quantization
    if found is None:
        return _DTYPES.get((facts.dtype or "").removeprefix("torch.")), None, False
    zeros = bool(found.zero_points)
    if found.method == "gguf":
        return (found.weight_dtype or found.algorithm or "").lower() or None, None, False
    name = _ALGORITHMS.get((found.algorithm or "").upper())
    if name is None and (found.algorithm or "").upper().startswith("W8A8_SQ"):
        name = "int8_sq"
    if name is None and found.bits is not None:
        name = {4: "int4", 8: "int8", 16: "fp16"}.get(int(found.bits))
    if name == "int4_awq" and zeros:
        name = "int4_awq_zeros"
    return name, found.group_size, zeros
