"""Parameters of public architectures: exactly the weights that their files hold, or the published figure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from apps.registry.domain.model_config import facts_of

DATA = Path(__file__).resolve().parents[2] / "data/hf_configs/architectures.json"
KNOWN: dict[str, dict[str, Any]] = json.loads(DATA.read_text())


def test_the_table_is_large_enough() -> None:
    assert len(KNOWN) >= 25
    assert sum("params" in entry for entry in KNOWN.values()) >= 25


@pytest.mark.parametrize("name", KNOWN)
def test_parameters(name: str) -> None:
    entry = KNOWN[name]
    facts = facts_of(entry["config"])
    assert not [finding for finding in facts.findings if finding.severity != "info"]
    assert facts.params is not None
    if "params" in entry:
        assert facts.params == entry["params"]
    else:
        assert abs(facts.params - entry["published"]) <= entry["rounding"]


@pytest.mark.parametrize("name", KNOWN)
def test_layers_and_groups_add_up(name: str) -> None:
    facts = facts_of(KNOWN[name]["config"])
    assert facts.param_groups is not None
    assert facts.param_groups.total() == facts.params
    assert len(facts.layer_spec_of) == facts.num_layers
    each = [facts.layer_specs[index] for index in facts.layer_spec_of]
    layers = sum(spec.params.total() for spec in each if spec.params)
    groups = facts.param_groups
    assert 0 <= groups.total() - groups.embedding - groups.lm_head - layers < 0.01 * groups.total()
    assert facts.kv_bytes_per_token == 2 * sum(spec.kv_values_per_token or 0 for spec in each)
    assert facts.active_params is not None
    assert 0 < facts.active_params <= facts.params
    assert facts.valid_tp
    assert facts.valid_tp[0] == 1


@pytest.mark.parametrize(
    ("name", "active"),
    [
        ("mixtral-8x7b", 12_879_925_248),
        ("dbrx", 36_469_708_800),
        ("qwen3-30b-a3b", 3_353_032_704),
        ("deepseek-v3", 37_552_297_472),
    ],
)
def test_parameters_of_one_token(name: str, active: int) -> None:
    assert facts_of(KNOWN[name]["config"]).active_params == active


@pytest.mark.parametrize(
    ("name", "per_token"),
    [
        ("falcon-7b", 2 * 32 * 1 * 64 * 2),
        ("falcon-40b", 2 * 60 * 8 * 64 * 2),
        ("falcon-rw-1b", 2 * 24 * 32 * 64 * 2),
        ("starcoder", 2 * 40 * 1 * 128 * 2),
        ("chatglm2-6b", 2 * 28 * 2 * 128 * 2),
        ("gemma-7b", 2 * 28 * 16 * 256 * 2),
        ("gpt-oss-20b", 2 * 24 * 8 * 64 * 2),
        ("deepseek-v2-lite", 27 * (512 + 64) * 2),
        ("jamba-v0.1", 2 * 4 * 8 * 128 * 2),
        ("qwen3-next-80b-a3b", 2 * 12 * 2 * 256 * 2),
        ("nemotron-h-8b", 2 * 4 * 8 * 128 * 2),
        ("mamba-2.8b", 0),
    ],
)
def test_keys_and_values_of_one_token(name: str, per_token: int) -> None:
    assert facts_of(KNOWN[name]["config"]).kv_bytes_per_token == per_token


@pytest.mark.parametrize(
    ("name", "full", "windowed", "window"),
    [
        ("gemma-2-9b", 21, 21, 4096),
        ("gemma-3-4b", 5, 29, 1024),
        ("gpt-oss-120b", 18, 18, 128),
        ("command-r7b", 8, 24, 4096),
        ("llama-4-scout", 12, 36, 8192),
        ("gpt-neo-2.7b", 16, 16, 256),
    ],
)
def test_windows_by_pattern(name: str, full: int, windowed: int, window: int) -> None:
    found = facts_of(KNOWN[name]["config"]).attention_window
    assert found is not None
    assert not isinstance(found, int)
    assert (found.full_layers, found.windowed_layers, found.window) == (full, windowed, window)


def test_which_layers_have_the_window() -> None:
    gemma2, gemma3 = (facts_of(KNOWN[name]["config"]) for name in ("gemma-2-2b", "gemma-3-1b"))
    assert gemma2.layer_windows is not None
    assert gemma3.layer_windows is not None
    assert gemma2.layer_windows[:4] == (4096, None, 4096, None)
    assert gemma3.layer_windows[:7] == (512, 512, 512, 512, 512, None, 512)


def test_kinds_of_hybrid_layers() -> None:
    jamba, nemotron, qwen = (
        facts_of(KNOWN[name]["config"]) for name in ("jamba-v0.1", "nemotron-h-8b", "qwen3-next-80b-a3b")
    )
    assert jamba.layer_kinds is not None
    assert [layer for layer, kind in enumerate(jamba.layer_kinds) if kind == "attention"] == [4, 12, 20, 28]
    assert nemotron.layer_kinds is not None
    assert nemotron.layer_kinds[:9] == ("mamba", "mlp") * 3 + ("mamba", "attention", "mlp")
    assert qwen.layer_kinds is not None
    assert qwen.layer_kinds[:4] == ("linear", "linear", "linear", "attention")
    assert all(facts.state_bytes_per_sequence for facts in (jamba, nemotron, qwen))
