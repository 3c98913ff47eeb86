"""Over how many GPUs a model may be split, and why not over others.

Rules of TensorRT-LLM: tensor parallelism divides attention heads and feed-forward widths without rest; key-value
heads are split, or repeated where tp is a multiple of them; a group or block of quantised weights is never cut;
pipeline stages get the same number of layers. The vocabulary is padded, so it never refuses.
"""

from __future__ import annotations

from apps.registry.domain.config_view import MissingField
from apps.registry.domain.families.base import Family
from apps.registry.domain.model_facts import ModelFacts, Moe, Quantization

POWERS = (1, 2, 4, 8, 16, 32, 64)
ALL = tuple(range(1, 65))


def tp_problem(facts: ModelFacts, tp: int, quantization: Quantization | None) -> str | None:
    """Why a model cannot be split over `tp` GPUs with weights quantised so; None where it can."""
    for name, number in facts.tp_divides.items():
        if number % tp:
            return f"{name} {number} % tp {tp} != 0"
    kv = facts.num_kv_heads
    if kv and facts.mla is None and kv % tp and tp % kv:
        return f"num_kv_heads {kv} can be neither split nor repeated over tp {tp}"
    unit, what = _unit(quantization)
    for name, width in facts.row_widths.items():
        if width % tp:
            return f"{name} {width} % tp {tp} != 0"
        if unit and tp > 1 and (width // tp) % unit:
            return f"{name} {width} / tp {tp} = {width // tp} is not a multiple of {what} {unit}"
    return None


def tp_divides(family: Family) -> dict[str, int]:
    """The numbers that tp has to divide."""
    heads = {} if family.dims.heads is None else {"num_attention_heads": family.dims.heads}
    try:
        return {**heads, **dict(family.tp_rules())}
    except MissingField:
        return heads


def row_widths(family: Family, moe: Moe | None) -> dict[str, int]:
    """Input widths of the projections that are split by rows."""
    dims, found = family.dims, {}
    layers = dims.layers or 0
    if dims.inner and (moe is None or moe.dense_layers) and "inner" in family.required:
        found["intermediate_size"] = dims.inner
    if moe and len(moe.dense_layers) < layers:
        if moe.moe_intermediate_size:
            found["moe_intermediate_size"] = moe.moe_intermediate_size
        if moe.shared_intermediate_size:
            found["shared_expert_intermediate_size"] = moe.shared_intermediate_size
    if dims.heads and dims.head_dim:
        found["heads x head_dim"] = dims.heads * (dims.value_dim or dims.head_dim)
    return found


def valid_tp(
    facts: ModelFacts, candidates: tuple[int, ...] = POWERS
) -> tuple[tuple[int, ...], dict[str, str]]:
    """The candidates that pass every rule, and a reason for each of the others."""
    reasons = {str(tp): why for tp in candidates if (why := tp_problem(facts, tp, facts.quantization))}
    return tuple(tp for tp in candidates if str(tp) not in reasons), reasons


def valid_pp(layers: int, candidates: tuple[int, ...] = POWERS) -> tuple[tuple[int, ...], dict[str, str]]:
    """The same for pipeline stages."""
    reasons = {str(pp): why for pp in candidates if (why := pp_problem(layers, pp))}
    return tuple(pp for pp in candidates if str(pp) not in reasons), reasons


def pp_problem(layers: int, pp: int) -> str | None:
    """Why a model cannot be split into `pp` pipeline stages; None where it can."""
    if pp > layers:
        return f"num_layers {layers} < pp {pp}"
    return f"num_layers {layers} % pp {pp} != 0" if layers % pp else None


def _unit(quantization: Quantization | None) -> tuple[int | None, str]:
    """Weights along the input that stay together, and what they are called."""
    # MXFP4 experts are padded to whole tiles when they are loaded.
    if quantization is None or quantization.weight_dtype == "mxfp4":
        return None, ""
    if quantization.block_size:
        return quantization.block_size[1], "the block size"
    return quantization.group_size, "group_size"
