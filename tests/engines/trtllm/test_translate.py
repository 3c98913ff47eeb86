"""Pasted commands become profiles; what changed is said."""

from __future__ import annotations

import pytest

from apps.core.exceptions import InvalidInput
from apps.engines.domain.trtllm.translate import translate


def changes(text: str) -> dict[str, str]:
    return {change.was: change.now for change in translate(text).changes}


def test_the_build_line_of_an_old_tutorial() -> None:
    found = translate(
        "trtllm-build --checkpoint_dir /ckpt --output_dir /engines/o --gemm_plugin float16 --max_batch_size 64 "
        "--max_input_len 2048 --max_output_len 2048 --paged_kv_cache enable --remove_input_padding "
        "--use_inflight_batching --tp_size 4 --max_num_tok 4096"
    )
    assert found.profile["build"] == {
        "gemm_plugin": "float16",
        "max_batch_size": 64,
        "max_input_len": 2048,
        "max_seq_len": 4096,
        "kv_cache_type": "paged",
        "remove_input_padding": "enable",
        "max_num_tokens": 4096,
    }
    now = {change.was: change.now for change in found.changes}
    assert now["--max_output_len 2048"] == "--max_seq_len 4096"
    assert now["--paged_kv_cache enable"] == "--kv_cache_type paged"
    assert now["--remove_input_padding"] == "--remove_input_padding enable"
    assert now["--use_inflight_batching"] == ""
    assert [finding.id for finding in found.findings] == ["build_flag_does_not_set_tp"]


def test_a_conversion_line() -> None:
    found = translate(
        "python3 examples/llama/convert_checkpoint.py --model_dir /m --output_dir /c --dtype float16 --tp_size=4 \\\n"
        "  --use_weight_only --weight_only_precision int4_gptq --per_group --quant_ckpt_path /q.safetensors"
    )
    assert found.model == "/m"
    assert found.profile["parallel"] == {"tp": 4}
    assert found.profile["quantization"] == {"format": "gptq", "weights": "/q.safetensors"}
    assert found.profile["dtype"] == "float16"
    smooth = translate("convert_checkpoint.py --model_dir /m -sq 0.5 --per_token --int8_kv_cache")
    assert smooth.profile["quantization"] == {
        "format": "int8_sq",
        "smoothquant": 0.5,
        "perChannel": False,
        "perToken": True,
        "kvCacheDtype": "int8",
    }


def test_a_quantisation_line() -> None:
    found = translate(
        "python quantize.py --model_dir /m --qformat fp8 --kv_cache_dtype fp8 --calib_size 256 --tp_size 2 --seed 1"
    )
    assert found.profile == {
        "builder": "trtllm",
        "parallel": {"tp": 2},
        "quantization": {"format": "fp8", "kvCacheDtype": "fp8", "calibration": {"size": 256}},
    }
    assert [change.was for change in found.changes] == ["--seed 1"]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("Builder(model_path='x', precision='fp16')", "never_existed"),
        ("builder = trtllm.Builder(precision=Precision.FP16)", "never_existed"),
        ("trt_llm_server --model x", "never_existed"),
        ("trtllm-build \\ --a 1", "shell_line_continuation"),
        ("vllm serve x", "command_unknown"),
        ("", "command_unknown"),
        ("trtllm-build --a 'open", "command_unreadable"),
    ],
)
def test_what_never_existed_or_is_no_command_is_said(text: str, code: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        translate(text)
    assert refused.value.code == code
    assert refused.value.remedy


def test_unknown_flags_and_stray_words_are_findings() -> None:
    found = translate("trtllm-build here --nonsense 1 --max_batch_size many")
    assert [finding.id for finding in found.findings] == ["stray_word", "unknown_flag", "flag_value"]


def test_what_follows_the_command_is_not_read_as_flags() -> None:
    found = translate("trtllm-build --max_batch_size 4 && rm --force x")
    assert found.profile["build"] == {"max_batch_size": 4}
