"""What a build left against what it was asked for: a table over config.json and file sizes, nothing is opened."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from apps.engines.domain.trtllm.request import BuildRequest
from apps.engines.domain.trtllm.results import check_checkpoint, check_engine, check_hugging_face

CHECKPOINT: dict[str, Any] = {
    "architecture": "LlamaForCausalLM",
    "dtype": "bfloat16",
    "mapping": {"world_size": 4, "tp_size": 2, "pp_size": 2, "cp_size": 1},
    "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"},
}
ENGINE: dict[str, Any] = {
    "version": "1.2.1",
    "pretrained_config": CHECKPOINT,
    "build_config": {
        "max_batch_size": 8,
        "max_num_tokens": 4096,
        "max_seq_len": 1024,
        "max_beam_width": 1,
        "kv_cache_type": "PAGED",
    },
}
REQUEST = BuildRequest.model_validate(
    {
        "name": "x",
        "model": "/m",
        "dtype": "bfloat16",
        "quantization": {"format": "fp8", "kvCacheDtype": "fp8"},
        "parallel": {"tp": 2, "pp": 2},
        "build": {"max_batch_size": 8, "max_num_tokens": 8192, "max_seq_len": 1024},
    }
)
SIZES = {"config.json": 900, **{f"rank{rank}.engine": 10 for rank in range(4)}}


def changed(path: str, value: Any) -> dict[str, Any]:
    found = copy.deepcopy(ENGINE)
    *way, last = path.split(".")
    inner = found
    for part in way:
        inner = inner[part]
    inner[last] = value
    return found


def test_a_whole_engine_tells_what_it_is() -> None:
    made, found = check_engine(ENGINE, SIZES, REQUEST)
    assert found == []
    assert made is not None
    assert made.as_dict() == {
        "architecture": "LlamaForCausalLM",
        "dtype": "bfloat16",
        "world_size": 4,
        "tp": 2,
        "pp": 2,
        "quant_algo": "FP8",
        "kv_cache_quant_algo": "FP8",
        # The builder clamps max_num_tokens to what batch and length allow; it never raises it silently.
        "limits": {"max_batch_size": 8, "max_num_tokens": 4096, "max_seq_len": 1024, "max_beam_width": 1},
    }


@pytest.mark.parametrize(
    ("config", "sizes", "reason", "said"),
    [
        (None, SIZES, "engine_config_json_unreadable", "missing, cut off"),
        ([], SIZES, "engine_config_json_unreadable", "missing, cut off"),
        ({}, SIZES, "engine_config_json_unreadable", "no pretrained_config"),
        (changed("build_config", 3), SIZES, "engine_config_json_unreadable", "build_config"),
        (changed("pretrained_config.mapping.tp_size", "2"), SIZES, "engine_config_json_unreadable", "ranks"),
        (changed("pretrained_config.mapping.tp_size", 0), SIZES, "engine_config_json_unreadable", "ranks"),
        (changed("pretrained_config.mapping", None), SIZES, "world_size_differs", "made for 1 ranks"),
        (changed("pretrained_config.mapping.world_size", 8), SIZES, "world_size_differs", "made for 8 ranks"),
        (changed("pretrained_config.mapping.pp_size", 1), SIZES, "world_size_differs", "pp 1"),
        (changed("pretrained_config.dtype", "float16"), SIZES, "dtype_differs", "asked was bfloat16"),
        (changed("pretrained_config.dtype", "int9"), SIZES, "dtype_differs", "int9"),
        (changed("pretrained_config.quantization", {}), SIZES, "kv_cache_differs", "16 bit"),
        (
            changed("pretrained_config.quantization", {"kv_cache_quant_algo": "FP8"}),
            SIZES,
            "quantization_differs",
            "not quantised",
        ),
        (changed("build_config.max_batch_size", 4), SIZES, "limit_differs", "max_batch_size is 4"),
        (changed("build_config.max_num_tokens", 9000), SIZES, "limit_differs", "max_num_tokens is 9000"),
        (ENGINE, {"config.json": 900}, "rank_missing", "4 of 4"),
        (ENGINE, {**SIZES, "rank3.engine": 0}, "rank_empty", "rank3.engine is empty"),
    ],
)
def test_exit_0_is_no_success(config: Any, sizes: dict[str, int], reason: str, said: str) -> None:
    found = check_engine(config, sizes, REQUEST)[1]
    assert found[0].id == reason
    assert said in found[0].message
    assert found[0].remedy


Look = Callable[[], list[Any]]


@pytest.mark.parametrize(
    ("look", "reason"),
    [
        (lambda: check_checkpoint(CHECKPOINT, {f"rank{r}.safetensors": 1 for r in range(4)}, REQUEST)[1], ""),
        (lambda: check_checkpoint(CHECKPOINT, {"rank0.safetensors": 1}, REQUEST)[1], "rank_missing"),
        (lambda: check_checkpoint("", {}, REQUEST)[1], "engine_config_json_unreadable"),
        (lambda: check_hugging_face({"architectures": ["X"]}, {"model.safetensors": 5}), ""),
        (lambda: check_hugging_face({"architectures": ["X"]}, {"model.safetensors": 0}), "weights_missing"),
        (lambda: check_hugging_face({}, {"model.safetensors": 5}), "engine_config_json_unreadable"),
        (lambda: check_hugging_face(None, {}), "engine_config_json_unreadable"),
    ],
)
def test_what_comes_before_the_engine_is_looked_at_too(look: Look, reason: str) -> None:
    found = look()
    assert (found[0].id if found else "") == reason
