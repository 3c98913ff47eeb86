"""Activations: the execution context that is fixed at build and grows with max_num_tokens.

The formula: 2 * (intermediate / tp + 3 * hidden) bytes for each token of max_num_tokens, and 2 * vocabulary with
context logits; fitted on one logged case (128,000 tokens, 37,812.51 MiB), so the range is +-50 % until runs here
have calibrated it.
"""

from __future__ import annotations

from fractions import Fraction

from apps.engines.domain.memory.request import PlanRequest
from apps.engines.domain.memory.shape import HALF, Shape
from apps.engines.domain.memory.terms import LOGS, Term

LOW, HIGH = Fraction(1, 2), Fraction(3, 2)


def step_tokens(request: PlanRequest) -> int:
    """Tokens of one step as the builder sets them (clamped, raised for drafts)."""
    longest = request.max_batch_size * request.max_seq_len
    if not request.remove_input_padding:
        return longest
    tokens = max(min(request.max_num_tokens, longest), min(request.tokens_per_block, longest))
    return max(tokens, request.max_batch_size * (request.draft_tokens + 1) if request.draft_tokens else 0)


def bytes_per_token(shape: Shape, tp: int) -> int:
    """Bytes for each token of a step."""
    hidden = 3 + shape.expanded - 1
    return HALF * (-(-shape.ffn_width // tp) + hidden * shape.hidden_size)


def formula_bytes(shape: Shape, request: PlanRequest) -> int:
    """The execution context with context logits, by the formula alone."""
    logits = HALF * shape.vocab_size if request.gather_context_logits else 0
    return step_tokens(request) * (bytes_per_token(shape, request.tp) + logits)


def activation_terms(shape: Shape, request: PlanRequest) -> list[Term]:
    """The execution context; with its range, calibrated where enough runs were measured."""
    tokens = step_tokens(request)
    each = bytes_per_token(shape, request.tp)
    base = tokens * each
    copies = 3 + shape.expanded - 1
    formula = (
        f"{tokens:,} tokens x 2 B x (feed-forward {shape.ffn_width:,} / tp {request.tp} + {copies} x hidden "
        f"{shape.hidden_size:,})"
    )
    low, likely, high, source = _range(base, request)
    found = [Term("context", "Execution context", "activations", low, likely, high, formula, source)]
    if request.gather_context_logits:
        logits = tokens * HALF * shape.vocab_size
        found.append(
            Term(
                "context_logits",
                "Context logits",
                "activations",
                logits,
                logits,
                logits + logits // 2,
                f"{tokens:,} tokens x vocabulary {shape.vocab_size:,} x 2 B",
                LOGS,
            )
        )
    return found


def _range(base: int, request: PlanRequest) -> tuple[int, int, int, str]:
    scale = request.activations_scale
    if scale is None:
        return (
            int(base * LOW),
            base,
            int(base * HIGH),
            f"fitted to {LOGS}: an estimate, +-50 %",
        )
    low, likely, high = (int(base * Fraction(part).limit_denominator(10**6)) for part in scale)
    return (
        min(low, likely),
        likely,
        max(high, likely),
        f"calibrated on {request.calibrated_runs} measured runs of this GPU kind and version",
    )
