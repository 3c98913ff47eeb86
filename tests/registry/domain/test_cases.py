"""The reported cases of configurations that others read wrongly: each with the right value."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from apps.registry.answers import facts_answer
from apps.registry.domain.checkpoint_reader import read_checkpoint

CASES = Path(__file__).resolve().parents[2] / "data/cases"


def answer(case: str, name: str = "input.config.json") -> dict[str, Any]:
    return facts_answer(read_checkpoint(CASES / case / name).facts)


def expected(case: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((CASES / case / "expected.json").read_text())
    return found


def errors(found: dict[str, Any]) -> list[str]:
    return [finding["message"] for finding in found["findings"] if finding["severity"] == "error"]


def test_explicit_head_dim() -> None:
    case = "01-qwen3-32b-explicit-head-dim"
    found, right = answer(case), expected(case)
    assert (found["head_dim"], found["num_kv_heads"]) == (right["head_dim"], right["num_kv_heads"])
    assert found["kv_bytes_per_token"] == right["kv_bytes_per_token_16bit_tp1"]
    assert found["params"] == right["params"]
    heads = found["num_attention_heads"] + 2 * found["num_kv_heads"]
    assert heads * found["head_dim"] == right["qkv_rows"]
    assert not errors(found)


def test_null_is_absent() -> None:
    case = "03-null-head-dim-and-null-kv-heads"
    found, right = answer(case), expected(case)
    assert (found["head_dim"], found["num_kv_heads"]) == (right["head_dim"], right["num_kv_heads"])
    assert found["kv_bytes_per_token"] == right["kv_bytes_per_token_16bit_tp1"]
    assert (found["quantization"], found["rope"], found["findings"]) == (None, "default", [])


def test_experts_count_and_heads_decide() -> None:
    case = "05-qwen2-57b-a14b-moe-tp8"
    found, right = answer(case), expected(case)
    assert found["params"] == right["params"]
    assert found["valid_tp"] == right["valid_tp"]
    assert found["tp_reasons"]["8"] == right["reason"]
    assert found["kv_bytes_per_token"] == right["kv_bytes_per_token_16bit_tp1"]
    assert found["attention_window"] is right["attention_window"]


def test_two_dialects_of_rope() -> None:
    case = "07-rope-scaling-two-dialects"
    right = expected(case)
    for letter in "ab":
        found = answer(case, f"input.{letter}.config.json")
        assert found["rope"] == right[letter]["rope"]
        assert found["max_position_embeddings"] == right[letter]["context"]
        assert not errors(found)
    first = answer(case, "input.a.config.json")
    assert first["params"] == right["a"]["params"]
    assert first["kv_bytes_per_token"] == right["a"]["kv_bytes_per_token_16bit_tp1"]
    assert first["rope_parameters"]["factor"] == 32.0
    assert first["rope_parameters"]["original_max_position_embeddings"] == 8192
    assert answer(case, "input.b.config.json")["rope_parameters"]["factor"] == 4.0


def test_a_vision_tower_limits_nothing() -> None:
    case = "09-vision-heads-must-not-limit-tp"
    found, right = answer(case), expected(case)
    for name in ("num_attention_heads", "num_kv_heads", "head_dim"):
        assert found[name] == right[name]
    assert found["valid_tp"] == right["tp_ok"]
    assert found["dtype"] == "bfloat16"


def test_a_latent_is_cached_once() -> None:
    case = "11-deepseek-v3-mla-kv"
    found, right = answer(case), expected(case)
    assert found["kv_bytes_per_token"] == right["kv_bytes_per_token_16bit"]
    assert found["kv_bytes_per_token"] != right["wrong_generic"]
    assert found["quantization"]["weight_dtype"] == "fp8"
    assert found["quantization"]["algorithm"] == "FP8_BLOCK_SCALES"
    assert found["params"] == 671_026_419_200
    assert found["mtp_params"] > 11_000_000_000


def test_groups_of_32_are_refused() -> None:
    case = "13-gptq-group-size-32"
    found, right = answer(case), expected(case)
    assert right["accept"] is False
    assert [finding["id"] for finding in found["findings"]] == ["quantization_group_size", "gptq_act_order"]
    assert "group_size 32" in errors(found)[0]
    assert found["quantization"]["bits"] == right["weight_bits_nominal"]
    assert found["quantization"]["bits_per_weight"] == 4 + 20 / 32


def test_switches_of_sliding_windows() -> None:
    case = "15-sliding-window-flags"
    for letter, window in expected(case).items():
        assert answer(case, f"input.{letter}.json")["attention_window"] == window
