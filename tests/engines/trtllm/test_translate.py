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
        "quantization": {
            "format": "fp8",
            "kvCacheDtype": "fp8",
            "calibration": {"size": 256},
            "options": {"seed": 1},
        },
    }
    assert found.changes == []


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("Builder(model_path='x', precision='fp16')", "never_existed"),
        ("builder = trtllm.Builder(precision=Precision.FP16)", "never_existed"),
        ("trt_llm_server --model x", "never_existed"),
        ("trtllm-build \\ --a 1", "shell_line_continuation"),
        ("trtllm_server --model_repository /m", "never_existed"),
        ("$ tensorrt-llm-server --engine e", "never_existed"),
        ("trtllm-convert --model_dir /m --output_dir /c", "never_existed"),
        ("cd /w && trt-llm-build --model m", "never_existed"),
        ("trtllm build --checkpoint_dir /c", "never_existed"),
        ("from tensorrt_llm import Engine", "never_existed"),
        ("engine = tensorrt_llm.build_engine(model)", "never_existed"),
        ("server = TensorRTLLMServer(port=8000)", "never_existed"),
        ("trtllm-serve /m --port 8000", "command_unknown"),
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


# (what is pasted, part of the profile that it gives, what changed: was -> now)
PASTED: dict[str, tuple[str, dict[str, object], dict[str, str]]] = {
    "a prompt before it": ("$ trtllm-build --max_batch_size 8", {"build": {"max_batch_size": 8}}, {}),
    "a notebook's cell": ("!trtllm-build --max_batch_size=8", {"build": {"max_batch_size": 8}}, {}),
    "an environment before it": (
        "CUDA_VISIBLE_DEVICES=0 mpirun -n 2 trtllm-build --max_beam_width 2",
        {"build": {"max_beam_width": 2}},
        {},
    ),
    "the module": (
        "python3 -m tensorrt_llm.commands.build --max_num_tokens 4096",
        {"build": {"max_num_tokens": 4096}},
        {},
    ),
    "dashes of a word processor": (
        "trtllm-build \u2013max_batch_size 8 \u2014gemm_plugin auto",
        {"build": {"max_batch_size": 8, "gemm_plugin": "auto"}},
        {},
    ),
    "hyphens": (
        "trtllm-build --max-batch-size 8",
        {"build": {"max_batch_size": 8}},
        {"--max-batch-size": "--max_batch_size"},
    ),
    "lines without a backslash": (
        "trtllm-build --max_batch_size 8\n  --max_seq_len 4096",
        {"build": {"max_batch_size": 8, "max_seq_len": 4096}},
        {},
    ),
    "on and off in other words": (
        "trtllm-build --context_fmha True --use_paged_context_fmha=on --multiple_profiles --reduce_fusion off",
        {
            "build": {
                "context_fmha": "enable",
                "use_paged_context_fmha": "enable",
                "multiple_profiles": "enable",
                "reduce_fusion": "disable",
            }
        },
        {
            "--context_fmha True": "--context_fmha enable",
            "--use_paged_context_fmha on": "--use_paged_context_fmha enable",
            "--multiple_profiles": "--multiple_profiles enable",
            "--reduce_fusion off": "--reduce_fusion disable",
        },
    ),
    "a switch with a value": (
        "trtllm-build --gather_context_logits False --weight_streaming true",
        {"build": {"weight_streaming": True}},
        {"--gather_context_logits False": "", "--weight_streaming true": "--weight_streaming"},
    ),
    "a plugin without its type": (
        "trtllm-build --gpt_attention_plugin --gemm_plugin fp16",
        {"build": {"gpt_attention_plugin": "auto", "gemm_plugin": "float16"}},
        {
            "--gpt_attention_plugin": "--gpt_attention_plugin auto",
            "--gemm_plugin fp16": "--gemm_plugin float16",
        },
    ),
    "another name": (
        "trtllm-build --max_decoder_seq_len 4096 --max_multimodal_len 576",
        {"build": {"max_seq_len": 4096, "max_prompt_embedding_table_size": 576}},
        {
            "--max_decoder_seq_len": "--max_seq_len",
            "--max_multimodal_len": "--max_prompt_embedding_table_size",
        },
    ),
    "given twice": (
        "trtllm-build --max_batch_size 8 --max_batch_size 16",
        {"build": {"max_batch_size": 16}},
        {"--max_batch_size 8": ""},
    ),
    "an output length alone": (
        "trtllm-build --max_output_len 512",
        {"build": {"max_seq_len": 1536}},
        {"--max_output_len 512": "--max_seq_len 1536"},
    ),
    "an output length beside the sum": (
        "trtllm-build --max_seq_len 4096 --max_output_len 512",
        {"build": {"max_seq_len": 4096}},
        {"--max_output_len 512": ""},
    ),
    "no paging": (
        "trtllm-build --paged_kv_cache disable",
        {"build": {"kv_cache_type": "continuous"}},
        {"--paged_kv_cache disable": "--kv_cache_type continuous"},
    ),
    "flags that went": (
        "trtllm-build --enable_xqa enable --use_custom_all_reduce disable --strongly_typed --multi_block_mode enable "
        "--context_fmha_fp32_acc enable --builder_opt 3 --auto_parallel 2 --enable_chunked_context",
        {"build": {}},
        dict.fromkeys(
            [
                "--enable_xqa enable",
                "--use_custom_all_reduce disable",
                "--strongly_typed",
                "--multi_block_mode enable",
                "--context_fmha_fp32_acc enable",
                "--builder_opt 3",
                "--auto_parallel 2",
                "--enable_chunked_context",
            ],
            "",
        ),
    ),
    "adapters": (
        "trtllm-build --lora_plugin float16 --lora_dir /a /b --lora_target_modules attn_q,attn_v",
        {
            "build": {
                "lora_plugin": "float16",
                "lora_dir": ["/a", "/b"],
                "lora_target_modules": ["attn_q", "attn_v"],
            }
        },
        {},
    ),
    "adapters in the conversion": (
        "python convert_checkpoint.py --model_dir /m --hf_lora_dir /a --max_lora_rank 16",
        {"build": {"lora_dir": ["/a"], "max_lora_rank": 16}},
        {"--hf_lora_dir /a": "trtllm-build --lora_dir", "--max_lora_rank 16": "trtllm-build --max_lora_rank"},
    ),
    "the build.py of old": (
        "python build.py --model_dir /m --dtype float16 --use_gpt_attention_plugin float16 --use_gemm_plugin "
        "--enable_context_fmha --remove_input_padding --use_inflight_batching --world_size 2 --tp_size 2 "
        "--use_weight_only --weight_only_precision int4 --max_input_len 1024 --max_output_len 512 --output_dir /e",
        {
            "dtype": "float16",
            "parallel": {"tp": 2},
            "quantization": {"format": "int4_wo"},
            "build": {
                "gpt_attention_plugin": "float16",
                "gemm_plugin": "auto",
                "context_fmha": "enable",
                "remove_input_padding": "enable",
                "max_input_len": 1024,
                "max_seq_len": 1536,
            },
        },
        {
            "--max_output_len 512": "--max_seq_len 1536",
            "--use_gpt_attention_plugin float16": "--gpt_attention_plugin float16",
        },
    ),
    "a conversion and its build": (
        "cd /w\npython convert_checkpoint.py --model_dir /m --tp_size 2 --output_dir /c && \\\n"
        "trtllm-build --checkpoint_dir /c --max_batch_size 8",
        {"parallel": {"tp": 2}, "build": {"max_batch_size": 8}},
        {},
    ),
    "ready-made weights": (
        "convert_checkpoint.py --model_dir /m --use_weight_only --weight_only_precision int4_awq --per_group "
        "--group_size 64 --quant_ckpt_path /q",
        {"quantization": {"format": "awq", "groupSize": 64, "weights": "/q"}},
        {},
    ),
    "eight-bit GPTQ": (
        "convert_checkpoint.py --use_weight_only --weight_only_precision int8_gptq",
        {"quantization": {"format": "gptq_int8"}},
        {},
    ),
    "experts": (
        "convert_checkpoint.py --tp_size 4 --moe_tp_size 2 --moe_ep_size 2 --use_fp8_rowwise",
        {"parallel": {"tp": 4, "moeEp": 2}, "quantization": {"format": "fp8_rowwise"}},
        {},
    ),
    "a precision that does nothing": (
        "convert_checkpoint.py --weight_only_precision int8",
        {},
        {"--weight_only_precision int8": ""},
    ),
    "other spellings of a format": (
        "quantize.py --qformat int4-awq --dtype bf16 --calib_size 32",
        {"dtype": "bfloat16", "quantization": {"format": "int4_awq", "calibration": {"size": 32}}},
        {"--qformat int4-awq": "--qformat int4_awq", "--dtype bf16": "--dtype bfloat16"},
    ),
    "for the PyTorch backend": (
        "quantize.py --model_dir /m --qformat nvfp4 --export_format hf",
        {"recipe": "checkpoint", "quantization": {"format": "nvfp4"}},
        {},
    ),
}


@pytest.mark.parametrize("name", PASTED)
def test_a_paste_gives_the_profile_and_says_what_changed(name: str) -> None:
    text, part, now = PASTED[name]
    found = translate(text)
    assert not [finding for finding in found.findings if finding.severity == "error"]
    assert {key: found.profile.get(key) for key in part} == part
    said = {change.was: change.now for change in found.changes}
    assert {was: said.get(was) for was in now} == now
    assert all(change.why for change in found.changes)


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("trtllm-build --max_batch_size $BATCH", ["placeholder", "flag_value"]),
        ("trtllm-build --checkpoint_dir <path>", ["placeholder"]),
        ("trtllm-build --qformat fp8 --calib_batch 4", ["unknown_flag"]),
        ("trtllm-build --pp_size 2", ["build_flag_does_not_set_tp"]),
        ("trtllm-build --kv_cache_type blocks", ["flag_value"]),
        ("trtllm-build --context_fmha maybe", ["flag_value"]),
        ("pip install tensorrt_llm\ntrtllm-build --max_batch_size 4", ["not_read"]),
        ("quantize.py --max_num_tokens 4", ["unknown_flag"]),
    ],
)
def test_what_a_paste_cannot_give_is_a_finding_with_a_remedy(text: str, ids: list[str]) -> None:
    found = translate(text)
    assert [finding.id for finding in found.findings] == ids
    assert all(finding.remedy for finding in found.findings)


def test_an_older_release_keeps_its_own_flags() -> None:
    old = translate("trtllm-build --max_input_len 512 --max_output_len 512", release="0.10.0")
    assert old.profile["build"] == {"max_input_len": 512, "max_output_len": 512}
    assert old.changes == []
    gone = translate("trtllm-build --max_seq_len 1024", release="0.10.0")
    assert [change.why for change in gone.changes] == ["Not in this release (since 0.11)."]
