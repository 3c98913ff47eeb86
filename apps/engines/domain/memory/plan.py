"""The plan of one model on one kind of GPU: whether it fits, and why."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from apps.core.exceptions import Finding
from apps.engines.domain.memory import activations, kv, overhead
from apps.engines.domain.memory.findings import judge
from apps.engines.domain.memory.host import host_terms
from apps.engines.domain.memory.request import Draft, PlanRequest, check_ranges, refuse
from apps.engines.domain.memory.shape import Shape, Stage
from apps.engines.domain.memory.terms import KV_MANAGER, Term, exact
from apps.engines.domain.memory.weights import weight_terms


@dataclass(frozen=True, slots=True)
class Totals:
    """Whole bytes of one rank: low end, likely, high end."""

    low: int = 0
    likely: int = 0
    high: int = 0


@dataclass(frozen=True)
class RankPlan:
    """One pipeline rank, bytes of one GPU.

    `required` is weights + activations (high end) + overhead + the cache of one sequence.
    """

    stage: int
    terms: tuple[Term, ...]
    weights: Totals
    activations: Totals
    overhead: Totals
    groups: tuple[kv.WindowGroup, ...]
    bytes_per_token: int
    one_sequence: int
    free_for_kv: int
    pool: kv.Pool
    required: int


@dataclass(frozen=True)
class Plan:
    """The answer. All bytes are whole and of one GPU; `rank` is the one that needs most, capacity the least of all.

    `sequences_at_max_seq_len` is what the pool holds, `max_concurrency` also bounded by max_batch_size x pp.
    """

    shape: Shape
    request: PlanRequest
    ranks: tuple[RankPlan, ...]
    rank: RankPlan
    fits: bool
    kv_capacity_tokens: int
    kv_blocks: int
    sequences_at_max_seq_len: int
    max_concurrency: int
    longest_prompt: int
    host: tuple[Term, ...] = ()
    findings: tuple[Finding, ...] = field(default=())

    @property
    def required_bytes(self) -> int:
        """What one GPU must have for one sequence of max_seq_len."""
        return self.rank.required

    @property
    def activations_formula(self) -> int:
        """Bytes of the activations by the formula alone, uncalibrated; measured runs are held against it."""
        return activations.formula_bytes(self.shape, self.request)

    @property
    def kv_pool_bytes(self) -> int:
        """The pool of the rank that needs most, in the blocks that every rank can have."""
        return self.rank.pool.bytes


def plan(shape: Shape, request: PlanRequest) -> Plan:
    """Plan. Raises InvalidInput with every reason where the input is refused; what does not fit is an answer."""
    found = check_ranges(request)
    if not any(finding.severity == "error" for finding in found):
        found += _splits(shape, request)
    refuse(found)
    stages = shape.stages(request.pp)
    ranks = tuple(_rank(shape, stage, index, request) for index, stage in enumerate(stages))
    worst = max(ranks, key=lambda rank: rank.required)
    # All ranks agree on the smallest number of blocks (an MPI all-reduce).
    tightest = min(ranks, key=lambda rank: rank.pool.blocks)
    sequences = min(rank.pool.sequences for rank in ranks)
    answer = Plan(
        shape=shape,
        request=request,
        ranks=ranks,
        rank=worst,
        fits=worst.required <= request.gpu_memory,
        kv_capacity_tokens=tightest.pool.tokens,
        kv_blocks=tightest.pool.blocks,
        sequences_at_max_seq_len=sequences,
        max_concurrency=min(sequences, request.max_batch_size * request.pp),
        longest_prompt=longest_prompt(request),
        host=tuple(host_terms(worst.weights.likely, request)),
    )
    object.__setattr__(answer, "findings", (*found, *judge(answer)))
    return answer


def longest_prompt(request: PlanRequest) -> int:
    """Tokens: min(max_seq_len - 1, max_num_tokens), without the second where the context is chunked."""
    whole = request.max_seq_len - 1
    return whole if request.chunked_context else min(whole, activations.step_tokens(request))


def _splits(shape: Shape, request: PlanRequest) -> list[Finding]:
    """Sizes of tp, pp and ep that this model cannot be split into."""
    found = []
    heads, kv_heads, tp = shape.num_heads, shape.num_kv_heads, request.tp
    reason = shape.tp_reasons.get(str(tp), "")
    if not reason and heads and heads % tp:
        reason = f"num_attention_heads {heads} is not divisible by tp {tp}"
    elif not reason and kv_heads and kv_heads % tp and tp % kv_heads:
        reason = f"{kv_heads} KV heads can neither be divided by tp {tp} nor copied evenly over it"
    if reason:
        allowed = shape.valid_tp or tuple(size for size in (1, 2, 4, 8) if not heads or heads % size == 0)
        listed = ", ".join(str(size) for size in allowed)
        found.append(
            Finding("tp_invalid", "error", f"tp {tp}: {reason.rstrip('.')}.", "tp", f"Use tp {listed}.")
        )
    if request.pp > shape.num_layers:
        found.append(
            Finding(
                "pp_invalid",
                "error",
                f"pp {request.pp} is more than the {shape.num_layers} layers of the model.",
                "pp",
                f"Use pp 1 to {shape.num_layers}.",
            )
        )
    experts = max((kind.num_experts for kind, _ in shape.runs), default=0)
    if request.ep > 1 and (not experts or experts % request.ep):
        what = f"{experts} experts are not divisible by ep {request.ep}" if experts else "it has no experts"
        found.append(Finding("ep_invalid", "error", f"ep {request.ep}: {what}.", "ep", "Use ep 1."))
    return found


def _sum(terms: list[Term], group: str) -> Totals:
    low = likely = high = 0
    for term in terms:
        if term.group == group:
            low, likely, high = low + term.low, likely + term.likely, high + term.high
    return Totals(low, likely, high)


def _rank(shape: Shape, stage: Stage, index: int, request: PlanRequest) -> RankPlan:
    terms = weight_terms(shape, stage, request.tp, request.ep, request.weights, request.parallel_embedding)
    groups = kv.window_groups(stage, request.tp, request.kv, request.windows)
    state = kv.state_bytes(stage, request.tp)
    if request.draft is not None:
        whole = request.draft.shape.stages(1)[0]
        terms.append(_draft_weights(request.draft, whole, request))
        groups = _merged(groups, kv.window_groups(whole, request.tp, request.kv, request.windows))
    terms += activations.activation_terms(shape, request)
    terms += overhead.overhead_terms(shape, stage, request)
    if state:
        terms.append(
            exact(
                "states",
                "Recurrent states",
                "overhead",
                state * request.max_batch_size,
                f"{state:,} B for each of {request.max_batch_size:,} sequences, whatever their length",
                KV_MANAGER,
            )
        )
    weights, acts, extra = (_sum(terms, group) for group in ("weights", "activations", "overhead"))
    block, tokens = request.tokens_per_block, request.max_seq_len + request.draft_tokens
    one = kv.sequence_bytes(groups, tokens, block, bubble=request.sink_bubble, beam=request.beam_width)
    free = request.gpu_memory - weights.likely - acts.likely - extra.likely
    if request.lora is not None:
        free -= int(max(free, 0) * request.lora.fraction)
    pool = kv.pool_of(
        free,
        request.kv_fraction,
        groups,
        tokens,
        block,
        max_tokens=request.kv_max_tokens,
        bubble=request.sink_bubble,
        beam=request.beam_width,
    )
    terms.append(_pool_term(pool, free, groups, request))
    return RankPlan(
        stage=index,
        terms=tuple(terms),
        weights=weights,
        activations=acts,
        overhead=extra,
        groups=groups,
        bytes_per_token=sum(group.bytes_per_token for group in groups),
        one_sequence=one,
        free_for_kv=free,
        pool=pool,
        required=weights.likely + acts.high + extra.likely + one,
    )


def _draft_weights(draft: Draft, stage: Stage, request: PlanRequest) -> Term:
    shape = draft.shape
    parts = weight_terms(shape, stage, request.tp, 1, draft.weights)
    total = _sum(parts, "weights")
    return Term(
        "draft",
        "Draft model",
        "weights",
        total.low,
        total.likely,
        total.high,
        f"{shape.params:,} weights of {shape.name} in {draft.weights.label}; unproven",
        KV_MANAGER,
    )


def _merged(
    left: tuple[kv.WindowGroup, ...], right: tuple[kv.WindowGroup, ...]
) -> tuple[kv.WindowGroup, ...]:
    """The caches of a target and its draft, which keep the same tokens."""
    found = {group.window: group for group in left}
    for group in right:
        other = found.get(group.window)
        layers = group.layers + (other.layers if other else 0)
        size = group.bytes_per_token + (other.bytes_per_token if other else 0)
        found[group.window] = kv.WindowGroup(group.window, layers, size)
    return tuple(sorted(found.values(), key=lambda group: -(group.window or 2**62)))


def _pool_term(pool: kv.Pool, free: int, groups: tuple[kv.WindowGroup, ...], request: PlanRequest) -> Term:
    parts = " + ".join(
        f"{group.bytes_per_token:,} B over {group.layers} layers"
        + (f" (window {group.window:,})" if group.window else "")
        for group in groups
    )
    limit = f", at most {request.kv_max_tokens:,} tokens" if request.kv_max_tokens is not None else ""
    return exact(
        "kv_pool",
        "KV cache pool",
        "kv",
        pool.bytes,
        f"{request.kv_fraction:g} of the {max(free, 0):,} B that are left{limit}, in blocks of "
        f"{request.tokens_per_block} tokens; a token takes {parts or 'nothing'}",
        KV_MANAGER,
    )


def as_dict(answer: Plan) -> dict[str, Any]:
    """The plan as the command line, the API and the page give it. What DESIGN names comes first."""
    rank, request = answer.rank, answer.request
    return {
        "weights_bytes": rank.weights.likely,
        "kv_bytes_per_token": rank.bytes_per_token,
        "kv_pool_bytes": rank.pool.bytes,
        "kv_capacity_tokens": answer.kv_capacity_tokens,
        "sequences_at_max_seq_len": answer.sequences_at_max_seq_len,
        "activations_bytes": rank.activations.likely,
        "activations_low": rank.activations.low,
        "activations_high": rank.activations.high,
        "fits": answer.fits,
        "findings": [finding.as_dict() for finding in answer.findings],
        "required_bytes": rank.required,
        "gpu_memory_bytes": request.gpu_memory,
        "weights_low": rank.weights.low,
        "weights_high": rank.weights.high,
        "overhead_bytes": rank.overhead.likely,
        "overhead_low": rank.overhead.low,
        "overhead_high": rank.overhead.high,
        "one_sequence_bytes": rank.one_sequence,
        "free_for_kv_bytes": rank.free_for_kv,
        "kv_blocks": answer.kv_blocks,
        "max_concurrency": answer.max_concurrency,
        "longest_prompt_tokens": answer.longest_prompt,
        "gpus": request.world_size,
        "rank": rank.stage,
        "params": answer.shape.params,
        "weights_format": request.weights.name,
        "kv_format": request.kv.name,
        "terms": [term.as_dict() for term in rank.terms],
        "host": [term.as_dict() for term in answer.host],
    }
