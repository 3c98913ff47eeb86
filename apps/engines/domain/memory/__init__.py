"""Memory of one GPU: weights, KV cache, activations, overhead, each with its formula, range and source.

Plain Python. `plan(shape_of(facts), PlanRequest(...))` is the way in; docs/memory-plan.md explains the arithmetic.
"""

from __future__ import annotations

from apps.engines.domain.memory.formats import kv_format, weight_format
from apps.engines.domain.memory.plan import Plan, as_dict, plan
from apps.engines.domain.memory.request import Draft, Lora, PlanRequest
from apps.engines.domain.memory.shape import LayerKind, Shape, shape_of
from apps.engines.domain.memory.terms import Term
from apps.engines.domain.memory.units import parse_bytes

__all__ = [
    "Draft",
    "LayerKind",
    "Lora",
    "Plan",
    "PlanRequest",
    "Shape",
    "Term",
    "as_dict",
    "kv_format",
    "parse_bytes",
    "plan",
    "shape_of",
    "weight_format",
]
