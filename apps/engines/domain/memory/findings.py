"""What is worth knowing about a plan: limits that bind and settings that do not go together, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from apps.core.exceptions import Finding
from apps.engines.domain.memory.activations import step_tokens
from apps.engines.domain.memory.units import shown

if TYPE_CHECKING:
    from apps.engines.domain.memory.plan import Plan

# Weights over this share of the card leave so little that batch-sized buffers decide (pitfall: cudaMallocAsync out of
# memory before the cache is made, with max_batch_size 2048 on a card that is 80 % full of weights).
CROWDED_SHARE = 0.7


def judge(plan: Plan) -> list[Finding]:
    """Findings of a plan that was computed; none of them is an error."""
    return [
        *_fit(plan),
        *_cache(plan),
        *_batch(plan),
        *_tokens(plan),
        *_formats(plan),
        *_model(plan),
    ]


def _fit(plan: Plan) -> list[Finding]:
    rank, memory = plan.rank, plan.request.gpu_memory
    if not plan.fits:
        over = rank.required - memory
        biggest = max(
            (
                ("weights", rank.weights.likely),
                ("activations", rank.activations.high),
                ("overhead", rank.overhead.likely),
                ("the cache of one sequence", rank.one_sequence),
            ),
            key=lambda part: part[1],
        )
        where, remedy = _smaller(plan, biggest[0])
        return [
            Finding(
                "does_not_fit",
                "warning",
                f"It needs {shown(rank.required)} of each GPU and there are {shown(memory)}: {shown(over)} too much. "
                f"Most of it is {biggest[0]} ({shown(biggest[1])}).",
                where,
                remedy,
            )
        ]
    worst = rank.weights.high + rank.activations.high + rank.overhead.high + rank.one_sequence
    if worst > memory:
        return [
            Finding(
                "fits_narrowly",
                "warning",
                f"At the high end of the estimates it needs {shown(worst)}, {shown(worst - memory)} more than a GPU "
                "has.",
                "max_batch_size" if rank.overhead.high > rank.activations.high else "max_num_tokens",
                "Lower max_batch_size or max_num_tokens, or measure one load: the estimates then become narrower.",
            )
        ]
    return []


def _smaller(plan: Plan, biggest: str) -> tuple[str, str]:
    if biggest == "weights":
        return "tp", "Spread it over more GPUs (tp), or choose a narrower weight format (weights)."
    if biggest == "activations":
        return "max_num_tokens", "Lower max_num_tokens; with chunked context long prompts still work."
    if biggest == "overhead":
        return "max_batch_size", "Lower max_batch_size to what is really needed, or max_seq_len."
    return "max_seq_len", "Lower max_seq_len, or store the cache in FP8 (kv)."


def _cache(plan: Plan) -> list[Finding]:
    rank, request = plan.rank, plan.request
    found = []
    if plan.fits and rank.groups and plan.sequences_at_max_seq_len < 1:
        found.append(
            Finding(
                "kv_cache_smaller_than_one_sequence",
                "warning",
                f"The pool holds {plan.kv_capacity_tokens:,} tokens, less than one sequence of "
                f"{request.max_seq_len:,}. TensorRT-LLM then starts with silently smaller limits.",
                "kv_fraction" if request.kv_max_tokens is None else "kv_max_tokens",
                "Raise kv_fraction, lower max_seq_len, or store the cache in a narrower format.",
            )
        )
    windowed = sorted({group.window for group in rank.groups if group.window}, reverse=True)
    if windowed and request.max_seq_len > windowed[-1]:
        listed = ", ".join(f"{window:,}" for window in windowed)
        found.append(
            Finding(
                "window_must_be_set",
                "info",
                f"The cache is counted with the model's sliding window ({listed} tokens); the server keeps so little "
                "only where max_attention_window is set to it.",
                "windows",
                "Set max_attention_window when serving, or plan without windows.",
            )
        )
    return found


def _batch(plan: Plan) -> list[Finding]:
    rank, request = plan.rank, plan.request
    found = []
    buffers = [term for term in rank.terms if term.name in {"logits", "decoder"}]
    high = sum(term.high for term in buffers)
    crowded = rank.weights.likely > CROWDED_SHARE * request.gpu_memory
    left = request.gpu_memory - rank.weights.likely - rank.activations.likely
    if left > 0 and ((crowded and high > left * 0.1) or high > left * 0.5):
        found.append(
            Finding(
                "batch_buffers_large",
                "warning",
                f"Buffers that grow with max_batch_size {request.max_batch_size:,} take up to {shown(high)} before "
                f"the cache is made, of {shown(max(left, 0))} beside weights and activations. A lower KV "
                "fraction does not help there.",
                "max_batch_size",
                "Build with the max_batch_size that is really needed.",
            )
        )
    if plan.fits and rank.groups and request.max_batch_size * request.pp > plan.sequences_at_max_seq_len > 0:
        found.append(
            Finding(
                "kv_cache_binds",
                "info",
                f"The pool holds {plan.sequences_at_max_seq_len:,} sequences of {request.max_seq_len:,} tokens, "
                f"fewer than max_batch_size {request.max_batch_size:,}: longer queues, or pauses under "
                "MAX_UTILIZATION, when all are long.",
                "kv_fraction",
                "Give the cache more memory (kv_fraction, kv, tp), or expect shorter sequences.",
            )
        )
    elif plan.fits and rank.groups and request.max_batch_size * request.pp < plan.sequences_at_max_seq_len:
        found.append(
            Finding(
                "batch_binds",
                "info",
                f"max_batch_size {request.max_batch_size:,} binds: the pool would hold "
                f"{plan.sequences_at_max_seq_len:,} sequences of {request.max_seq_len:,} tokens.",
                "max_batch_size",
                "Raise max_batch_size where more requests are to run at once.",
            )
        )
    return found


def _tokens(plan: Plan) -> list[Finding]:
    request = plan.request
    tokens = step_tokens(request)
    found = []
    if plan.longest_prompt < request.max_seq_len - 1:
        found.append(
            Finding(
                "prompt_limited_by_max_num_tokens",
                "warning",
                f"Prompts longer than {plan.longest_prompt:,} tokens are refused although max_seq_len is "
                f"{request.max_seq_len:,}: max_num_tokens is the limit.",
                "max_num_tokens",
                "Raise max_num_tokens (it costs activations), or switch chunked context on with paged context FMHA.",
            )
        )
    if request.remove_input_padding and request.max_num_tokens > tokens:
        found.append(
            Finding(
                "max_num_tokens_clamped",
                "info",
                f"max_num_tokens {request.max_num_tokens:,} is more than max_batch_size x max_seq_len; the builder "
                f"uses {tokens:,}.",
                "max_num_tokens",
                f"Use {tokens:,}.",
            )
        )
    if not request.remove_input_padding:
        found.append(
            Finding(
                "padding_not_removed",
                "warning",
                f"Without padding removal each step is priced as {tokens:,} tokens, and in-flight "
                "batching cannot run.",
                "remove_input_padding",
                "Leave padding removal on.",
            )
        )
    positions = plan.shape.max_positions
    if positions and request.max_seq_len > positions:
        found.append(
            Finding(
                "longer_than_trained",
                "warning",
                f"max_seq_len {request.max_seq_len:,} is more than the {positions:,} positions of the model: its "
                "answers might be worse.",
                "max_seq_len",
                f"Use at most {positions:,}.",
            )
        )
    return found


def _formats(plan: Plan) -> list[Finding]:
    request, stored = plan.request, plan.shape.stored_as
    found = []
    plain = {None, "fp32", "fp16", "bf16"}
    if stored not in plain and not request.weights.everything and request.weights.name != stored:
        found.append(
            Finding(
                "weights_stored_otherwise",
                "warning",
                f"The checkpoint is stored as {stored}; this plan is for {request.weights.name}.",
                "weights",
                f"Plan with {stored}, or start from the 16-bit checkpoint of the same model.",
            )
        )
    if request.kv.name == "fp8" and request.weights.name not in {"fp8", "fp8_block", "w4a8_awq", "nvfp4"}:
        found.append(
            Finding(
                "kv_without_paged_context",
                "info",
                "An FP8 cache with weights that are not FP8 switches paged context FMHA off: no reuse of prefixes "
                "and no chunked context.",
                "kv",
                "Use FP8 weights, or a 16-bit cache.",
            )
        )
    if request.kv.name == "int8":
        found.append(
            Finding(
                "kv_without_paged_context",
                "info",
                "An INT8 cache switches paged context FMHA off: no reuse of prefixes and no chunked context.",
                "kv",
                "Use FP8 where the GPU can, or a 16-bit cache.",
            )
        )
    return found + _hardware(plan)


def _hardware(plan: Plan) -> list[Finding]:
    """Formats that this GPU cannot compute with."""
    request = plan.request
    if request.sm is None:
        return []
    found = []
    barred = request.weights.barred
    inside = barred is not None and barred[0] <= request.sm <= barred[1]
    if request.sm < request.weights.min_sm or inside:
        why = "the builder refuses it there" if inside else f"it needs SM {request.weights.min_sm} or newer"
        fp8 = request.weights.name.startswith(("fp8", "w4a8"))
        found.append(
            Finding(
                "fp8_unsupported_gpu" if fp8 and not inside else "format_unsupported_gpu",
                "warning",
                f"{request.weights.label} weights do not run on SM {request.sm}: {why}.",
                "weights",
                "Choose another weight format or another GPU.",
            )
        )
    if request.sm < request.kv.min_sm:
        found.append(
            Finding(
                "fp8_unsupported_gpu" if request.kv.name == "fp8" else "format_unsupported_gpu",
                "warning",
                f"A cache in {request.kv.label} needs SM {request.kv.min_sm} or newer; this GPU is SM {request.sm}.",
                "kv",
                "Use a 16-bit cache.",
            )
        )
    return found


def _model(plan: Plan) -> list[Finding]:
    shape, request = plan.shape, plan.request
    found = []
    if request.pp > 1 and shape.num_layers % request.pp:
        counts = sorted(
            {sum(stage_count for _, stage_count in stage.layers) for stage in shape.stages(request.pp)}
        )
        found.append(
            Finding(
                "pp_uneven",
                "warning",
                f"{shape.num_layers} layers over pp {request.pp} give ranks of {counts[0]} and {counts[-1]} layers; "
                "older engines assume that there is no remainder.",
                "pp",
                "Choose a pp that divides the number of layers.",
            )
        )
    if request.tp > shape.num_kv_heads > 0 and any(kind.kv_heads > 1 for kind, _ in shape.runs):
        found.append(
            Finding(
                "kv_heads_copied",
                "info",
                f"tp {request.tp} is more than the {shape.num_kv_heads} KV heads: each is copied "
                f"{request.tp // shape.num_kv_heads} times, so the cache of a rank becomes no smaller than at tp "
                f"{shape.num_kv_heads}.",
                "tp",
                f"Beyond tp {shape.num_kv_heads} only the weights become smaller.",
            )
        )
    for name, on in (("lora", request.lora), ("draft", request.draft)):
        if on is not None:
            found.append(
                Finding(
                    "unproven", "info", f"{name} is counted by formula and was never measured here.", name
                )
            )
    return found
