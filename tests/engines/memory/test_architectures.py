"""Public models by their configurations: what the planner counts is what the facts count, at every legal tp."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from apps.core.exceptions import InvalidInput
from apps.engines.domain.memory import PlanRequest, Shape, kv_format, plan, shape_of, weight_format
from apps.registry.domain.model_config import facts_of
from apps.registry.domain.model_facts import ModelFacts

TABLE = json.loads(
    (Path(__file__).parents[2] / "data/hf_configs/architectures.json").read_text(encoding="utf-8")
)
# On one card that holds any of them, so that only the sums count.
ASK = PlanRequest(2**43, weight_format("fp16"), kv_format("fp16"), max_batch_size=8)


def facts(name: str) -> ModelFacts:
    return facts_of(TABLE[name]["config"])


@pytest.mark.parametrize("name", sorted(TABLE))
def test_weights_and_cache_are_those_of_the_facts(name: str) -> None:
    found = facts(name)
    if found.param_groups is None:
        with pytest.raises(InvalidInput, match="does not tell"):
            shape_of(found)
        return
    shape = shape_of(found)
    assert shape.params == found.params
    whole = plan(shape, ASK).rank
    # Experts may be counted up to one weight each, where their sum cannot be divided by their number.
    assert whole.weights.likely == pytest.approx(2 * (found.params or 0), rel=1e-6)
    assert whole.bytes_per_token == (found.kv_bytes_per_token or 0)
    for tp in found.valid_tp or ():
        rank = plan(shape, replace(ASK, tp=tp)).rank
        assert rank.required <= whole.required
        assert rank.weights.likely * tp >= whole.weights.likely * 0.999
        assert rank.bytes_per_token * tp >= whole.bytes_per_token


def test_windows_hold_less_than_full_attention() -> None:
    shape = shape_of(facts("gemma-3-27b"))
    long = replace(ASK, max_seq_len=131_072)
    narrow, wide = plan(shape, long), plan(shape, replace(long, windows=False))
    assert narrow.rank.one_sequence < wide.rank.one_sequence / 4
    assert "window_must_be_set" in {finding.id for finding in narrow.findings}
    assert {group.window for group in narrow.rank.groups} == {None, 1024}


def test_a_latent_cache_is_not_divided() -> None:
    shape: Shape = shape_of(facts("deepseek-v3"))
    assert {plan(shape, replace(ASK, tp=tp)).rank.bytes_per_token for tp in (1, 2, 4, 8)} == {70_272}


def test_a_model_without_attention_keeps_states_instead_of_a_cache() -> None:
    answer = plan(shape_of(facts("mamba-2.8b")), ASK)
    assert answer.rank.bytes_per_token == 0
    assert answer.rank.one_sequence == 0
    assert answer.fits
    states = next(term for term in answer.rank.terms if term.name == "states")
    assert states.likely == 8 * (facts("mamba-2.8b").state_bytes_per_sequence or 0)
