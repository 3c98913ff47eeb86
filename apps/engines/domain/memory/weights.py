"""Weights of one rank, by what is quantised, what stays in 16 bit and what each rank holds whole.

Linear layers are split over tp, KV projections copied where tp passes the KV heads, the embedding copied on every
rank unless it is sharded too, lm_head padded to a multiple of tp. The engine file was observed 0.5 % larger than the
weights (15,388 MiB for 15,317 MiB of Llama-3-8B).
"""

from __future__ import annotations

from apps.engines.domain.memory.formats import WeightFormat
from apps.engines.domain.memory.shape import HALF, LayerKind, Shape, Stage
from apps.engines.domain.memory.terms import BUILDER, Term, exact

# Plan structures beside the weights, in thousandths of the weights (observed: 4.6).
ENGINE_EXTRA_PER_MILLE = 5


def weight_terms(
    shape: Shape, stage: Stage, tp: int, ep: int, form: WeightFormat, parallel_embedding: bool = False
) -> list[Term]:
    """Terms of one rank of a pipeline stage."""
    linear = sum(_linear(kind, tp) * count for kind, count in stage.layers)
    small = sum(_small(kind, tp) * count for kind, count in stage.layers)
    norm_bytes = 4 if form.everything else HALF
    amount = form.bytes_of(linear)
    found = [
        Term(
            "linear",
            "Linear layers",
            "weights",
            amount,
            amount,
            amount + amount * ENGINE_EXTRA_PER_MILLE // 1000,
            f"{linear:,} weights of {stage.count} layers on this rank (tp {tp}) x {form.bits:g} bit",
            f"{BUILDER}; an engine file was observed 0.5 % larger",
        ),
        *_expert_terms(stage, tp, ep, form),
        exact(
            "norms",
            "Norms, biases, router",
            "weights",
            small * norm_bytes,
            f"{small:,} weights x {norm_bytes} B; they are not quantised",
            BUILDER,
        ),
    ]
    if stage.first:
        found += _first_rank(shape, tp, form, parallel_embedding)
    if stage.last:
        found.append(_lm_head(shape, stage, tp, form))
    return found


def _wide(form: WeightFormat, params: int) -> int:
    """Bytes of embedding and lm_head: 16 bit, but for formats of whole files."""
    return form.bytes_of(params) if form.everything else HALF * params


def _wide_bits(form: WeightFormat) -> str:
    return f"{form.bits:g} bit" if form.everything else "16 bit"


def _expert_terms(stage: Stage, tp: int, ep: int, form: WeightFormat) -> list[Term]:
    experts = sum(_experts(kind, tp, ep) * count for kind, count in stage.layers)
    if not experts:
        return []
    return [
        exact(
            "experts",
            "Experts",
            "weights",
            form.bytes_of(experts),
            f"{experts:,} weights of {stage.count} layers on this rank (tp {tp}, ep {ep}) x {form.bits:g} bit; every "
            "expert counts, not only those that a token uses",
            BUILDER,
        )
    ]


def _first_rank(shape: Shape, tp: int, form: WeightFormat, parallel: bool) -> list[Term]:
    """Embedding, towers and what stands outside of the layers."""
    params = -(-shape.embedding // tp) if parallel else shape.embedding
    how = f"divided by tp {tp}" if parallel and tp > 1 else "whole on every rank"
    found = [
        exact(
            "embedding",
            "Embedding",
            "weights",
            _wide(form, params),
            f"{params:,} weights, {how}, in {_wide_bits(form)}",
            BUILDER,
        )
    ]
    if shape.other:
        found.append(
            exact(
                "towers",
                "Vision and audio towers",
                "weights",
                HALF * shape.other,
                f"{shape.other:,} weights x 2 B, whole on the first rank",
                BUILDER,
            )
        )
    if shape.final:
        amount = HALF * shape.final
        found.append(
            exact(
                "final", "Last norm, positions", "weights", amount, f"{shape.final:,} weights x 2 B", BUILDER
            )
        )
    return found


def _lm_head(shape: Shape, stage: Stage, tp: int, form: WeightFormat) -> Term:
    rows = -(-shape.vocab_size // tp)
    amount = _wide(form, rows * shape.hidden_size)
    if shape.tied and stage.first:
        # An engine may keep a copy of the tied table in the layout of its matrix multiplication.
        return Term(
            "lm_head",
            "lm_head, tied to the embedding",
            "weights",
            0,
            0,
            amount,
            f"shares the embedding's table; a copy of it would take {rows:,} rows x {shape.hidden_size:,}",
            "tie_word_embeddings of the checkpoint",
        )
    return exact(
        "lm_head",
        "lm_head",
        "weights",
        amount,
        f"{rows:,} rows (vocabulary {shape.vocab_size:,} / tp {tp}, rounded up) x {shape.hidden_size:,} in "
        f"{_wide_bits(form)}",
        BUILDER,
    )


def _linear(kind: LayerKind, tp: int) -> int:
    copies = min(tp, kind.kv_heads) or 1
    return -(-kind.sharded // tp) + -(-kind.kv_projection // copies) + kind.replicated


def _experts(kind: LayerKind, tp: int, ep: int) -> int:
    return -(-kind.num_experts // ep) * -(-kind.expert // (tp // ep)) if kind.num_experts else 0


def _small(kind: LayerKind, tp: int) -> int:
    copies = min(tp, kind.kv_heads) or 1
    return kind.small + -(-kind.biases // tp) + -(-kind.kv_biases // copies)
