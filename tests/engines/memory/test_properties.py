"""What must hold for every model and every plan."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.core.exceptions import InvalidInput
from apps.engines.domain.memory import (
    Draft,
    LayerKind,
    PlanRequest,
    Shape,
    as_dict,
    kv_format,
    plan,
    weight_format,
)
from apps.engines.domain.memory.answers import concurrency_table, fewest_gpus, largest_batch

# From the narrowest to the widest.
WEIGHTS = ["int4_wo", "int4_awq", "int4_gptq", "nvfp4", "fp8", "fp16", "fp32"]
GROWING = ["max_batch_size", "max_seq_len", "max_num_tokens"]
CACHES = ["fp8", "fp16", "fp32"]


@st.composite
def layers(draw: st.DrawFn, heads: int, hidden: int) -> LayerKind:
    """One kind of layer: attention (grouped, latent, windowed), experts or a state space."""
    kv_heads = draw(st.sampled_from([size for size in (1, 2, 4, 8, heads) if heads % size == 0]))
    head_dim = draw(st.sampled_from([16, 64, 80, 128, 256]))
    experts = draw(st.sampled_from([0, 0, 8, 60]))
    latent = draw(st.booleans())
    remembers = draw(st.integers(0, 3)) > 0
    return LayerKind(
        sharded=draw(st.integers(1, 3)) * hidden * hidden + draw(st.integers(0, 7)),
        kv_projection=0 if latent else 2 * hidden * kv_heads * head_dim,
        replicated=draw(st.integers(0, 2)) * hidden,
        expert=draw(st.integers(1, 2)) * hidden * 64 + 3 if experts else 0,
        num_experts=experts,
        small=2 * hidden + experts * hidden,
        biases=draw(st.integers(0, 3)) * hidden,
        kv_biases=draw(st.integers(0, 1)) * kv_heads * head_dim,
        kv_heads=1 if latent else kv_heads,
        kv_values=(576 if latent else 2 * kv_heads * head_dim) if remembers else 0,
        window=draw(st.sampled_from([None, None, 128, 1024, 4096])),
        state_values=0 if remembers else draw(st.integers(0, 10**6)),
    )


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    """A model of one to four kinds of layers, in any order."""
    heads = draw(st.sampled_from([8, 12, 28, 32, 40, 64]))
    hidden = draw(st.sampled_from([64, 576, 4096, 8192]))
    vocab = draw(st.integers(100, 300_000))
    kinds = draw(st.lists(layers(heads, hidden), min_size=1, max_size=4))
    counts = [draw(st.integers(1, 40)) for _ in kinds]
    tied = draw(st.booleans())
    return Shape(
        name="model",
        hidden_size=hidden,
        vocab_size=vocab,
        num_heads=heads,
        num_kv_heads=max(kind.kv_heads for kind in kinds),
        head_dim=64,
        ffn_width=draw(st.integers(64, 30_000)),
        embedding=vocab * hidden,
        lm_head=0 if tied else vocab * hidden,
        tied=tied,
        final=hidden,
        runs=tuple(zip(kinds, counts, strict=True)),
        num_layers=sum(counts),
        expanded=draw(st.integers(1, 8)),
        other=draw(st.sampled_from([0, 0, 10**8])),
    )


@st.composite
def requests(draw: st.DrawFn) -> PlanRequest:
    """A plan at tp 1 with any of the settings."""
    return PlanRequest(
        gpu_memory=draw(st.integers(2**30, 200 * 2**30)),
        weights=weight_format(draw(st.sampled_from(WEIGHTS))),
        kv=kv_format(draw(st.sampled_from(CACHES))),
        pp=draw(st.sampled_from([1, 1, 2, 3])),
        max_batch_size=draw(st.integers(1, 4096)),
        max_seq_len=draw(st.integers(1, 200_000)),
        max_num_tokens=draw(st.integers(1, 200_000)),
        kv_fraction=draw(st.sampled_from([0.1, 0.5, 0.9, 0.95])),
        beam_width=draw(st.sampled_from([1, 1, 4])),
        tokens_per_block=draw(st.sampled_from([16, 32, 64, 128])),
        kv_max_tokens=draw(st.sampled_from([None, None, 4096])),
        windows=draw(st.booleans()),
        gather_context_logits=draw(st.booleans()),
        remove_input_padding=draw(st.integers(0, 4)) > 0,
        parallel_embedding=draw(st.booleans()),
        draft_tokens=draw(st.sampled_from([0, 0, 5])),
        cuda_graphs=draw(st.sampled_from([0, 8])),
    )


def need(shape: Shape, request: PlanRequest) -> int:
    try:
        return plan(shape, request).required_bytes
    except InvalidInput as error:
        # More ranks than layers, or heads that cannot be divided: no plan to compare.
        if {finding.id for finding in error.findings} <= {"pp_invalid", "tp_invalid", "ep_invalid"}:
            return -1
        raise


@settings(max_examples=150, deadline=None)
@given(
    shapes(),
    requests(),
    st.sampled_from(["max_batch_size", "max_seq_len", "max_num_tokens"]),
    st.integers(1, 10**5),
)
def test_more_of_anything_never_needs_less(shape: Shape, request: PlanRequest, field: str, more: int) -> None:
    larger = replace(request, **{field: getattr(request, field) + more})
    assert need(shape, larger) >= need(shape, request)


@settings(max_examples=100, deadline=None)
@given(shapes(), requests())
def test_more_precision_never_needs_less(shape: Shape, request: PlanRequest) -> None:
    weights = [need(shape, replace(request, weights=weight_format(name))) for name in WEIGHTS]
    caches = [need(shape, replace(request, kv=kv_format(name))) for name in CACHES]
    assert weights == sorted(weights)
    assert caches == sorted(caches)


@settings(max_examples=150, deadline=None)
@given(shapes(), requests(), st.sampled_from([2, 4, 8, 16]), st.sampled_from([1, 2, 4]))
def test_tp_never_needs_more_of_a_rank_than_one(shape: Shape, request: PlanRequest, tp: int, ep: int) -> None:
    spread = need(shape, replace(request, tp=tp, ep=ep))
    assert spread == -1 or spread <= need(shape, request)


@settings(max_examples=100, deadline=None)
@given(shapes(), requests())
def test_bytes_are_whole_and_terms_add_up(shape: Shape, request: PlanRequest) -> None:
    if need(shape, request) < 0:
        return
    answer = plan(shape, request)
    for term in (*answer.rank.terms, *answer.host):
        assert all(type(value) is int for value in (term.low, term.likely, term.high))
        assert 0 <= term.low <= term.likely <= term.high
        assert term.formula
        assert term.source
    rank = answer.rank
    weights = sum(term.likely for term in rank.terms if term.group == "weights")
    overhead = sum(term.likely for term in rank.terms if term.group == "overhead")
    activations = sum(term.high for term in rank.terms if term.group == "activations")
    assert rank.required == weights + overhead + activations + rank.one_sequence
    assert answer.fits == (rank.required <= request.gpu_memory)
    assert all(isinstance(value, int) for key, value in as_dict(answer).items() if key.endswith("_bytes"))
    assert answer.kv_capacity_tokens % request.tokens_per_block == 0
    assert rank.pool.bytes <= max(rank.free_for_kv, 0) + sum(
        group.bytes_per_token * request.tokens_per_block for group in rank.groups
    )


@settings(max_examples=25, deadline=None)
@given(shapes(), requests())
def test_answers_agree_with_the_plans_behind_them(shape: Shape, request: PlanRequest) -> None:
    one = replace(request, pp=1)
    batch = largest_batch(shape, one)
    if batch:
        assert plan(shape, replace(one, max_batch_size=batch)).fits
    spread = fewest_gpus(shape, one, most=16)
    if spread is not None:
        assert plan(shape, replace(one, tp=spread.tp, pp=spread.pp)).fits
    for row in concurrency_table(plan(shape, one)):
        assert 0 <= row.running <= row.held


@settings(max_examples=50, deadline=None)
@given(shapes(), shapes(), requests())
def test_a_draft_model_never_makes_it_smaller(shape: Shape, other: Shape, request: PlanRequest) -> None:
    with_draft = need(shape, replace(request, draft=Draft(other, request.weights)))
    assert with_draft >= need(shape, request)


@pytest.mark.parametrize("field", ["tp", "pp", "max_batch_size", "max_seq_len", "max_num_tokens"])
@pytest.mark.parametrize("value", [0, -1, 10**12])
def test_senseless_figures_are_refused_by_name(field: str, value: int) -> None:
    kind = LayerKind(sharded=10, kv_heads=1, kv_values=2)
    shape = Shape("m", 8, 10, 8, 1, 8, 8, 80, 80, False, 8, ((kind, 1),), 1)
    request = PlanRequest(2**30, weight_format("fp16"), kv_format("fp16"))
    with pytest.raises(InvalidInput) as refused:
        plan(shape, replace(request, **{field: value}))  # type: ignore[arg-type]
    assert [finding.where for finding in refused.value.findings] == [field]


@pytest.mark.parametrize("fraction", [0.0, 1.0, 1.5, -0.1, float("nan")])
def test_a_fraction_that_the_server_refuses_is_refused(fraction: float) -> None:
    kind = LayerKind(sharded=10, kv_heads=1, kv_values=2)
    shape = Shape("m", 8, 10, 8, 1, 8, 8, 80, 80, False, 8, ((kind, 1),), 1)
    with pytest.raises(InvalidInput, match="kv_fraction") as refused:
        plan(shape, PlanRequest(2**30, weight_format("fp16"), kv_format("fp16"), kv_fraction=fraction))
    assert refused.value.field == "kv_fraction"
