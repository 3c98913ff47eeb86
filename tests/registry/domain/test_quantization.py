"""Quantised checkpoints: scheme, width, groups; what TensorRT-LLM does not take; tp that cuts a group."""

from __future__ import annotations

from typing import Any

import pytest

from apps.registry.answers import facts_answer
from apps.registry.domain.model_config import facts_of
from apps.registry.domain.model_facts import ModelFacts, Quantization
from tests.support.hugging_face import TINY


def facts(quantization: Any, *, extra: dict[str, Any] | None = None, **config: Any) -> ModelFacts:
    return facts_of({**TINY, **config, "quantization_config": quantization}, quantization=extra)


def stored(quantization: Any, **more: Any) -> Quantization:
    found = facts(quantization, **more).quantization
    assert found is not None
    return found


def compressed(form: str, **weights: Any) -> dict[str, Any]:
    group = {"targets": ["Linear"], "weights": weights, "input_activations": None}
    return {
        "quant_method": "compressed-tensors",
        "format": form,
        "config_groups": {"group_0": group},
        "ignore": ["lm_head"],
    }


@pytest.mark.parametrize(
    ("config", "algorithm", "dtype", "bits", "per_weight", "group"),
    [
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, "W4A16_GPTQ", "int4", 4, 4 + 20 / 128, 128),
        ({"quant_method": "gptq", "bits": 8, "group_size": 64}, "W8A16_GPTQ", "int8", 8, 8 + 24 / 64, 64),
        ({"quant_method": "awq", "w_bit": 4, "q_group_size": 128}, "W4A16_AWQ", "int4", 4, 4 + 20 / 128, 128),
        ({"quant_method": "fp8"}, "FP8", "fp8", 8, 8, None),
        ({"quant_method": "fp8", "weight_block_size": None}, "FP8", "fp8", 8, 8, None),
        (
            {"quant_method": "fp8", "weight_block_size": [128, 128]},
            "FP8_BLOCK_SCALES",
            "fp8",
            8,
            8 + 32 / 128**2,
            None,
        ),
        ({"quant_method": "fbgemm_fp8"}, "FP8_PER_CHANNEL_PER_TOKEN", "fp8", 8, 8, None),
        ({"quant_method": "mxfp4"}, "W4A16_MXFP4", "mxfp4", 4, 4.25, 32),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "NVFP4", "nvfp4", 4, 4.5, 16),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "FP8", "fp8", 8, 8, None),
        (
            compressed("float-quantized", num_bits=8, type="float", strategy="tensor"),
            "FP8",
            "fp8",
            8,
            8,
            None,
        ),
        (
            compressed("float-quantized", num_bits=8, type="float", strategy="channel"),
            "FP8_PER_CHANNEL_PER_TOKEN",
            "fp8",
            8,
            8,
            None,
        ),
        (
            compressed(
                "nvfp4-pack-quantized", num_bits=4, type="float", strategy="tensor_group", group_size=16
            ),
            "NVFP4",
            "nvfp4",
            4,
            4.5,
            16,
        ),
        (
            compressed("pack-quantized", num_bits=4, type="int", strategy="group", group_size=128),
            None,
            "int4",
            4,
            4 + 16 / 128,
            128,
        ),
    ],
)
def test_schemes(
    config: dict[str, Any],
    algorithm: str | None,
    dtype: str,
    bits: int,
    per_weight: float,
    group: int | None,
) -> None:
    found = stored(config)
    assert (found.algorithm, found.weight_dtype, found.bits, found.group_size) == (
        algorithm,
        dtype,
        bits,
        group,
    )
    assert found.bits_per_weight == pytest.approx(per_weight)


def test_modelopt_in_a_file_of_its_own() -> None:
    extra = {
        "producer": {"name": "modelopt", "version": "0.37"},
        "quantization": {
            "quant_algo": "NVFP4",
            "kv_cache_quant_algo": "FP8",
            "group_size": 16,
            "exclude_modules": ["lm_head"],
        },
    }
    found = facts(None, extra=extra).quantization
    assert found is not None
    assert (found.algorithm, found.kv_cache_dtype, found.modules_to_not_convert) == (
        "NVFP4",
        "fp8",
        ("lm_head",),
    )


@pytest.mark.parametrize("nothing", [None, {}])
def test_none(nothing: object) -> None:
    assert facts(nothing).quantization is None


@pytest.mark.parametrize(
    ("config", "finding", "severity"),
    [
        ({"quant_method": "gptq", "bits": 4, "group_size": 32}, "quantization_group_size", "error"),
        ({"quant_method": "gptq", "bits": 4, "group_size": -1}, "quantization_group_size", "error"),
        ({"quant_method": "awq", "bits": 4, "group_size": 256}, "quantization_group_size", "error"),
        ({"quant_method": "gptq", "bits": 3, "group_size": 128}, "quantization_bits", "error"),
        ({"quant_method": "awq", "bits": 8, "group_size": 128}, "quantization_bits", "error"),
        (
            {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": True},
            "gptq_act_order",
            "warning",
        ),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "quantization_unsupported", "error"),
        ({"load_in_8bit": True}, "quantization_unsupported", "error"),
        ({"quant_method": "hqq"}, "quantization_unsupported", "error"),
        ({"quant_method": "something_new"}, "quantization_unknown", "warning"),
        ({"quant_method": "gptq", "bits": "four"}, "config_field_invalid", "error"),
        ("int4", "config_field_invalid", "error"),
    ],
)
def test_what_is_not_taken(config: Any, finding: str, severity: str) -> None:
    found = [item for item in facts(config).findings if item.id == finding]
    assert [item.severity for item in found] == [severity]
    assert found[0].message
    assert found[0].remedy


def test_the_dtype_of_the_model_does_not_size_quantised_weights() -> None:
    read = facts({"quant_method": "awq", "bits": 4, "group_size": 128})
    assert read.dtype == "bfloat16"
    assert read.quantization is not None
    assert read.quantization.bits == 4


class TestTensorParallelism:
    """Legal sizes, and why the others are refused."""

    QWEN72 = {"hidden_size": 8192, "num_attention_heads": 64, "num_key_value_heads": 8}

    def test_a_group_is_never_cut(self) -> None:
        awq = {"quant_method": "awq", "bits": 4, "group_size": 128}
        read = facts(awq, **self.QWEN72, intermediate_size=29568)
        assert read.valid_tp == (1,)
        assert "29568 / tp 2 = 14784 is not a multiple of group_size 128" in read.tp_reasons["2"]
        padded = facts(awq, **self.QWEN72, intermediate_size=29696)
        assert padded.valid_tp == (1, 2, 4, 8)
        plain = facts(None, **self.QWEN72, intermediate_size=29568)
        assert plain.valid_tp == (1, 2, 4, 8, 16, 32, 64)

    def test_a_block_is_never_cut(self) -> None:
        block = {"quant_method": "fp8", "weight_block_size": [128, 128]}
        moe = {"num_experts": 128, "moe_intermediate_size": 768, "num_experts_per_tok": 8, "head_dim": 128}
        read = facts(block, model_type="qwen3_moe", architectures=[], **self.QWEN72, **moe)
        assert read.valid_tp == (1, 2)
        assert "moe_intermediate_size 768 / tp 4 = 192" in read.tp_reasons["4"]

    def test_heads_are_repeated_but_not_torn(self) -> None:
        phi = {
            "hidden_size": 5120,
            "num_attention_heads": 40,
            "num_key_value_heads": 10,
            "intermediate_size": 17920,
        }
        read = facts(None, **phi)
        assert read.valid_tp == (1, 2)
        assert "num_kv_heads 10" in read.tp_reasons["4"]
        assert facts(None, **{**phi, "num_key_value_heads": 1}).valid_tp == (1, 2, 4, 8)

    def test_every_size_when_asked(self) -> None:
        read = facts(
            None, hidden_size=48, num_attention_heads=12, num_key_value_heads=6, intermediate_size=96
        )
        assert facts_answer(read)["valid_tp"] == [1, 2]
        assert facts_answer(read, all_tp=True)["valid_tp"] == [1, 2, 3, 6, 12]
        assert facts_answer(read, all_tp=True)["tp_reasons"]["5"] == "num_attention_heads 12 % tp 5 != 0"

    def test_the_vocabulary_never_refuses(self) -> None:
        assert facts(None, vocab_size=97).valid_tp == facts(None).valid_tp

    def test_stages(self) -> None:
        read = facts(None, num_hidden_layers=28)
        assert read.valid_pp == (1, 2, 4)
        assert read.pp_reasons["8"] == "num_layers 28 % pp 8 != 0"
        assert read.pp_reasons["32"] == "num_layers 28 < pp 32"
