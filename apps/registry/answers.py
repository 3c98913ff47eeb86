"""Facts of a checkpoint as command line and API answer them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from apps.registry.domain.model_facts import ModelFacts
from apps.registry.domain.parallel import ALL, valid_tp

# Exit code of commands that refuse their input.
REFUSED = 1
# The keys that come first, in the order that the command documents.
FIRST = (
    "family",
    "num_layers",
    "hidden_size",
    "num_attention_heads",
    "num_kv_heads",
    "head_dim",
    "vocab_size",
    "intermediate_size",
    "max_position_embeddings",
    "attention_window",
    "rope",
    "quantization",
    "params",
    "kv_bytes_per_token",
    "valid_tp",
    "findings",
)


def stored_as(facts: Mapping[str, Any]) -> str | None:
    """How the weights are stored, in one word: the quantisation's scheme, a GGUF's weight type, or the dtype."""
    quantization = facts.get("quantization") or {}
    found = quantization.get("algorithm") or facts.get("file_type") or facts.get("dtype")
    return str(found or quantization.get("method") or "") or None


def facts_answer(facts: ModelFacts, *, all_tp: bool = False) -> dict[str, Any]:
    """JSON form of facts; with `all_tp`, valid_tp and tp_reasons cover every size up to 64."""
    if all_tp and facts.valid_tp is not None:
        sizes, reasons = valid_tp(facts, ALL)
        facts = facts.model_copy(update={"valid_tp": sizes, "tp_reasons": reasons})
    dumped = facts.model_dump(mode="json")
    return {name: dumped[name] for name in FIRST} | dumped
