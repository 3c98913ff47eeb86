"""A GGUF file's facts in the shape that all checkpoints share."""

from __future__ import annotations

import re

from apps.core.exceptions import Finding
from apps.registry.domain.gguf_facts import GgufFacts
from apps.registry.domain.gguf_reader import Array, Header, Tensor
from apps.registry.domain.model_config import complete
from apps.registry.domain.model_facts import (
    LayerParams,
    LayerSpec,
    Mla,
    ModelFacts,
    Moe,
    ParamGroups,
    Quantization,
    Rope,
)
from apps.registry.domain.windows import summary

FLOATS = {"F32": "float32", "F16": "float16", "BF16": "bfloat16", "F64": "float64"}
LAYER = re.compile(r"^blk\.(\d+)\.(.+)$")
# Of so many layers the last sees everything, where the header has a window but no pattern (llama.cpp).
PERIODS = {"gemma2": 2, "gemma3": 6, "gemma3n": 5, "gpt-oss": 2, "cohere2": 4, "exaone4": 4, "olmo2": 4}
QUERY = re.compile(r"^attn_(q|q_a|q_b|output|out|gate)(\.|_)")
KV = re.compile(r"^attn_(k|v|k_b|v_b|kv_b)\.")
DOWN = re.compile(r"^attn_(q_a|kv_a_mqa|kv_a)\.")
MIXER = re.compile(r"^(ssm_(in|out|x|dt|beta_alpha|ba)|shortconv\.(in|out)_proj|time_mix_\w+)\.")


def model_facts(facts: GgufFacts, header: Header) -> ModelFacts:
    """Facts of one GGUF file; `params` counts every weight in it."""
    groups, layers = _groups(header, facts)
    specs, order = _specs(facts, header, layers)
    windows = tuple(specs[index].window for index in order)
    moe = _moe(facts, header)
    made = ModelFacts(
        form="gguf",
        family=facts.architecture,
        name=facts.name,
        num_layers=facts.layers,
        hidden_size=facts.hidden_size,
        num_attention_heads=facts.heads or None,
        num_kv_heads=facts.heads_kv or None,
        head_dim=facts.head_dim,
        vocab_size=facts.vocab_size,
        intermediate_size=facts.feed_forward,
        max_position_embeddings=facts.context_length,
        attention_window=summary(windows, sum(spec.kind != "mamba" for spec in _each(specs, order))),
        rope=(rope := _rope(facts, header)) and rope.type,
        rope_parameters=rope,
        position_embedding="rope" if rope else None,
        quantization=_quantization(facts, header),
        dtype=_dtype(facts),
        tied_embeddings=groups.lm_head == 0,
        moe=moe,
        mla=_mla(facts, header),
        params=facts.params,
        active_params=_active(groups, moe),
        param_groups=groups,
        layer_specs=specs,
        layer_spec_of=order,
        layer_windows=windows if windows else None,
        layer_kinds=tuple(spec.kind for spec in _each(specs, order)) or None,
        kv_bytes_per_token=facts.kv_bytes_per_token,
        tp_divides={"num_attention_heads": facts.heads} if facts.heads else {},
        row_widths={"intermediate_size": facts.feed_forward} if facts.feed_forward and not moe else {},
        weights_bytes=sum(tensor.size for tensor in header.tensors),
        file_type=facts.file_type,
        tensors=facts.tensors,
        tensor_types=facts.tensor_types,
        tokenizer=facts.tokenizer,
        bos_token=facts.bos_token,
        bos_token_id=facts.bos_token_id,
        eos_token=facts.eos_token,
        eos_token_ids=() if facts.eos_token_id is None else (facts.eos_token_id,),
        add_bos=facts.add_bos,
    )
    return complete(made, _findings(facts))


def _findings(facts: GgufFacts) -> list[Finding]:
    found = []
    if not facts.chat_template:
        found.append(
            Finding(
                "chat_template_missing",
                "warning",
                "The file has no chat template.",
                "tokenizer.chat_template",
                "Prompts go to the model as plain text; use an instruction-tuned file for chatting.",
            )
        )
    if facts.layers is not None and facts.kv_bytes_per_token is None:
        found.append(
            Finding(
                "kv_cache_unknown",
                "info",
                "The header does not say what one token takes of the KV cache.",
                f"{facts.architecture}.attention",
            )
        )
    return found


def _each(specs: tuple[LayerSpec, ...], order: tuple[int, ...]) -> list[LayerSpec]:
    return [specs[index] for index in order]


def _number(header: Header, facts: GgufFacts, key: str) -> int | None:
    value = header.get(f"{facts.architecture}.{key}")
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _group(name: str, tensor: Tensor) -> str:
    """The group of LayerParams that a layer's tensor belongs to."""
    if "norm" in name:
        return "norms"
    if name.endswith(".bias"):
        return "kv_biases" if KV.match(name) else "biases"
    if name.startswith("ffn_gate_inp"):
        return "router"
    if "_exps" in name:
        return "experts"
    if "_shexp" in name:
        return "shared_experts"
    if name.startswith("ffn_"):
        return "mlp"
    if DOWN.match(name):
        return "attention_replicated"
    if KV.match(name):
        return "attention_kv"
    if QUERY.match(name):
        return "attention"
    return "mixer" if MIXER.match(name) else "other"


def _groups(header: Header, facts: GgufFacts) -> tuple[ParamGroups, list[LayerParams]]:
    """Weights by group, over all and for each layer."""
    count = min(facts.layers or 0, 4096)
    layers: list[dict[str, int]] = [{} for _ in range(count)]
    whole: dict[str, int] = {}
    for tensor in header.tensors:
        match = LAYER.match(tensor.name)
        if match is None:
            group = _outside(tensor.name)
            whole[group] = whole.get(group, 0) + tensor.elements
            continue
        index = int(match[1]) if len(match[1]) < 6 else count
        target = layers[index] if index < count else whole
        for group, elements in _split(match[2], tensor, facts):
            target[group] = target.get(group, 0) + elements
    for layer in layers:
        for group, elements in layer.items():
            whole[group] = whole.get(group, 0) + elements
    return ParamGroups(**whole), [LayerParams(**layer) for layer in layers]


def _split(name: str, tensor: Tensor, facts: GgufFacts) -> list[tuple[str, int]]:
    """A fused projection counts for queries and for keys and values."""
    if not name.startswith("attn_qkv"):
        return [(_group(name, tensor), tensor.elements)]
    heads, kv, size = facts.heads or 0, facts.heads_kv or 0, facts.head_dim or 0
    rows = (heads + 2 * kv) * size
    if not rows or tensor.elements % rows:
        return [(_group("attn_q.weight", tensor), tensor.elements)]
    each = tensor.elements // rows
    bias = name.endswith(".bias")
    return [
        ("biases" if bias else "attention", each * heads * size),
        ("kv_biases" if bias else "attention_kv", each * 2 * kv * size),
    ]


def _outside(name: str) -> str:
    if name.startswith(("token_embd.weight", "position_embd", "per_layer_token_embd")):
        return "embedding"
    if name == "output.weight":
        return "lm_head"
    return "norms" if "norm" in name else "other"


def _specs(
    facts: GgufFacts, header: Header, layers: list[LayerParams]
) -> tuple[tuple[LayerSpec, ...], tuple[int, ...]]:
    windows = _windows(facts, header, len(layers))
    heads = _per_layer(header, facts, len(layers))
    latent = _mla(facts, header)
    value = _number(header, facts, "attention.value_length") or facts.head_dim
    known: dict[LayerSpec, int] = {}
    order = []
    for index, params in enumerate(layers):
        kv = heads[index]
        kind = "mla" if latent else "mamba" if kv == 0 else "attention"
        cached: int | None = None
        if latent:
            cached = latent.kv_lora_rank + latent.qk_rope_head_dim
        elif kv is not None and facts.head_dim and value:
            cached = kv * (facts.head_dim + value)
        spec = LayerSpec(
            kind=kind,
            window=windows[index] if kind != "mamba" else None,
            num_kv_heads=kv or None,
            head_dim=facts.head_dim if kind != "mamba" else None,
            value_head_dim=value if kind != "mamba" else None,
            kv_values_per_token=cached,
            params=params,
        )
        order.append(known.setdefault(spec, len(known)))
    return tuple(known), tuple(order)


def _per_layer(header: Header, facts: GgufFacts, layers: int) -> list[int | None]:
    """Key-value heads of each layer; 0 for one without attention."""
    value = header.get(f"{facts.architecture}.attention.head_count_kv")
    if isinstance(value, Array) and len(value.values) == layers:
        return [item if isinstance(item, int) else None for item in value.values]
    return [facts.heads_kv] * layers


def _windows(facts: GgufFacts, header: Header, layers: int) -> list[int | None]:
    window = _number(header, facts, "attention.sliding_window")
    if window is None:
        return [None] * layers
    pattern = header.get(f"{facts.architecture}.attention.sliding_window_pattern")
    if isinstance(pattern, Array) and len(pattern.values) == layers:
        return [window if item else None for item in pattern.values]
    stated = pattern if isinstance(pattern, int) and not isinstance(pattern, bool) and pattern > 0 else None
    period = stated or PERIODS.get(facts.architecture or "")
    return [window if period is None or (layer + 1) % period else None for layer in range(layers)]


def _rope(facts: GgufFacts, header: Header) -> Rope | None:
    found = facts.rope
    if found.dimensions is None and found.freq_base is None and found.scaling_type is None:
        return None
    kind = found.scaling_type if found.scaling_type not in (None, "none") else "default"
    # Llama 3's scaling is stored as a table of factors instead of its four numbers.
    if kind == "default" and any(tensor.name == "rope_freqs.weight" for tensor in header.tensors):
        kind = "llama3"
    return Rope(
        type=kind or "default",
        theta=found.freq_base,
        factor=found.scaling_factor,
        original_max_position_embeddings=found.original_context,
    )


def _mla(facts: GgufFacts, header: Header) -> Mla | None:
    rank, rotary = _number(header, facts, "attention.kv_lora_rank"), facts.rope.dimensions
    if rank is None or rotary is None:
        return None
    return Mla(
        kv_lora_rank=rank,
        qk_rope_head_dim=rotary,
        q_lora_rank=_number(header, facts, "attention.q_lora_rank"),
        v_head_dim=_number(header, facts, "attention.value_length_mla")
        or _number(header, facts, "attention.value_length"),
    )


def _moe(facts: GgufFacts, header: Header) -> Moe | None:
    if not facts.experts:
        return None
    dense = min(_number(header, facts, "leading_dense_block_count") or 0, facts.layers or 0)
    return Moe(
        num_experts=facts.experts,
        experts_per_token=_number(header, facts, "expert_used_count"),
        moe_intermediate_size=_number(header, facts, "expert_feed_forward_length") or facts.feed_forward,
        num_shared_experts=_number(header, facts, "expert_shared_count"),
        shared_intermediate_size=_number(header, facts, "expert_shared_feed_forward_length"),
        dense_layers=tuple(range(dense)),
    )


def _active(groups: ParamGroups, moe: Moe | None) -> int | None:
    if moe is None:
        return groups.total()
    if not moe.experts_per_token:
        return None
    return groups.total() - groups.experts // moe.num_experts * max(
        0, moe.num_experts - moe.experts_per_token
    )


def _dtype(facts: GgufFacts) -> str | None:
    return FLOATS.get(facts.file_type or "")


def _quantization(facts: GgufFacts, header: Header) -> Quantization | None:
    """The weight type that most weights have, unless that is a floating-point one."""
    sizes: dict[str, int] = {}
    for tensor in header.tensors:
        sizes[tensor.type] = sizes.get(tensor.type, 0) + tensor.elements
    main = max(sizes, key=lambda kind: sizes[kind], default=None)
    if main is None or main in FLOATS:
        return None
    matrices = [tensor for tensor in header.tensors if tensor.type not in FLOATS]
    weights = sum(tensor.elements for tensor in matrices)
    return Quantization(
        method="gguf",
        algorithm=facts.file_type or main,
        weight_dtype=main,
        bits_per_weight=round(8 * sum(tensor.size for tensor in matrices) / weights, 4),
        groups=("embedding", "lm_head", "attention", "attention_kv", "mlp", "experts", "shared_experts"),
    )
