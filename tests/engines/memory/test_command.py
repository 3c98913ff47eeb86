"""`manage.py plan_memory`: the answer as JSON and as text, and its exit codes. No database is touched."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from tests.support.llama import write_llama

FIRST = [
    "weights_bytes",
    "kv_bytes_per_token",
    "kv_pool_bytes",
    "kv_capacity_tokens",
    "sequences_at_max_seq_len",
    "activations_bytes",
    "activations_low",
    "activations_high",
    "fits",
    "findings",
]
LLAMA_8B = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14_336,
    "vocab_size": 128_256,
    "max_position_embeddings": 8192,
    "torch_dtype": "bfloat16",
}
DEEPSEEK_V3 = {
    "model_type": "deepseek_v3",
    "architectures": ["DeepseekV3ForCausalLM"],
    "hidden_size": 7168,
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "intermediate_size": 18_432,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 3,
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "vocab_size": 129_280,
    "max_position_embeddings": 163_840,
    "num_nextn_predict_layers": 1,
    "torch_dtype": "bfloat16",
    "quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]},
}
LIMITS = ("--max-batch-size", "16", "--max-seq-len", "8192", "--max-num-tokens", "8192")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return written(tmp_path, LLAMA_8B)


def written(folder: Path, values: dict[str, Any]) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "config.json"
    path.write_text(json.dumps(values))
    return path


def run(path: Path, *options: str) -> tuple[int, Any]:
    """Exit code and JSON."""
    out = io.StringIO()
    try:
        call_command("plan_memory", str(path), *options, "--json", stdout=out)
    except SystemExit as end:
        return int(end.code or 0), json.loads(out.getvalue())
    return 0, json.loads(out.getvalue())


def test_the_answer_begins_with_the_agreed_keys(config: Path) -> None:
    code, found = run(
        config,
        "--gpu-memory",
        "80GiB",
        "--tp",
        "1",
        "--pp",
        "1",
        "--weights",
        "fp16",
        "--kv",
        "fp16",
        *LIMITS,
    )
    assert code == 0
    assert list(found)[: len(FIRST)] == FIRST
    assert found["weights_bytes"] == 2 * 8_030_261_248
    assert found["kv_bytes_per_token"] == 131_072
    assert found["activations_bytes"] == 416 * 2**20
    assert found["fits"] is True
    assert found["sequences_at_max_seq_len"] == found["kv_capacity_tokens"] // 8192
    assert found["kv_pool_bytes"] == found["kv_capacity_tokens"] * 131_072


def test_what_does_not_fit_is_an_answer(config: Path) -> None:
    code, found = run(config, "--gpu-memory", "10GiB", *LIMITS)
    assert (code, found["fits"]) == (0, False)
    assert "does_not_fit" in {finding["id"] for finding in found["findings"]}
    assert found["fewest_gpus"] == 2


@pytest.mark.parametrize(
    ("options", "field"),
    [
        (("--gpu-memory", "80GiB", "--tp", "3"), "tp"),
        (("--gpu-memory", "eighty"), "gpu_memory"),
        (("--gpu-memory", "0GiB"), "gpu_memory"),
        (("--gpu-memory", "-1"), "gpu_memory"),
        (("--gpu", "abacus"), "gpu"),
        (("--gpu-memory", "80GiB", "--weights", "int3"), "weights"),
        (("--gpu-memory", "80GiB", "--kv", "fp2"), "kv"),
        (("--gpu-memory", "80GiB", "--kv-fraction", "1.0"), "kv_fraction"),
        (("--gpu-memory", "80GiB", "--max-batch-size", "0"), "max_batch_size"),
        (("--gpu-memory", "80GiB", "--pp", "33"), "pp"),
        (("--gpu-memory", "80GiB", "--ep", "2", "--tp", "2"), "ep"),
    ],
)
def test_refused_input_exits_1_and_names_the_field(
    config: Path, options: tuple[str, ...], field: str
) -> None:
    code, found = run(config, *options)
    assert code == 1
    assert [finding["where"] for finding in found["findings"]] == [field]
    assert all(finding["severity"] == "error" and finding["remedy"] for finding in found["findings"])


@pytest.mark.parametrize(
    "options",
    [(), ("--gpu-memory", "80GiB", "--tp", "two"), ("--gpu-memory", "80GiB", "--gpu", "l4"), ("--colour",)],
)
def test_wrong_usage_is_no_plan(config: Path, options: tuple[str, ...]) -> None:
    # On the command line argparse exits 2; called from Python, Django raises it.
    with pytest.raises(CommandError):
        call_command("plan_memory", str(config), *options)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"model_type": "llama"}', '{"hidden_size": -1}', "\xff\xfe", '{"a": ' * 5000]
)
def test_a_broken_config_gives_findings(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(text.encode("latin-1"))
    code, found = run(path, "--gpu-memory", "80GiB")
    assert code == 1
    assert any(finding["severity"] == "error" for finding in found["findings"])


def test_a_missing_path_says_only_that(tmp_path: Path) -> None:
    code, found = run(tmp_path / "none", "--gpu-memory", "80GiB")
    assert code == 1
    assert len(found["findings"]) == 1


def test_latent_attention_is_not_divided_and_fp8_decides(tmp_path: Path) -> None:
    path = written(tmp_path, DEEPSEEK_V3)
    code, found = run(path, "--gpu", "h200", "--tp", "8", *LIMITS)
    assert code == 0
    assert found["kv_bytes_per_token"] == 70_272
    assert found["weights_format"] == "fp8_block"
    # About one byte a weight and a share of an eighth, not torch_dtype's two.
    assert found["weights_bytes"] < 671_026_419_200 / 8 * 1.15
    assert found["fits"] is True


def test_a_gguf_is_planned_as_it_is_stored(tmp_path: Path) -> None:
    path = write_llama(tmp_path / "tiny.gguf")
    code, found = run(path, "--gpu-memory", "8GiB", "--max-seq-len", "256")
    assert code == 0
    assert found["fits"] is True


def test_a_draft_model_and_adapters_are_counted(config: Path, tmp_path: Path) -> None:
    small = written(tmp_path / "small", {**LLAMA_8B, "hidden_size": 2048, "num_hidden_layers": 16})
    _code, alone = run(config, "--gpu-memory", "80GiB", *LIMITS)
    code, both = run(config, "--gpu-memory", "80GiB", "--draft", str(small), *LIMITS)
    assert code == 0
    assert both["weights_bytes"] > alone["weights_bytes"]
    assert both["kv_bytes_per_token"] == alone["kv_bytes_per_token"] + 16 * 2 * 8 * 64 * 2
    assert "unproven" in {finding["id"] for finding in both["findings"]}
    _code, adapted = run(config, "--gpu-memory", "80GiB", "--lora-rank", "64", *LIMITS)
    assert adapted["overhead_bytes"] > alone["overhead_bytes"]
    assert adapted["kv_pool_bytes"] < alone["kv_pool_bytes"]


def test_text_says_verdict_terms_and_limits(config: Path) -> None:
    out = io.StringIO()
    call_command("plan_memory", str(config), "--gpu", "l4", *LIMITS, stdout=out)
    text = out.getvalue()
    assert text.startswith("fits: needs")
    assert "Linear layers" in text
    assert "6,979,321,856 weights" in text
    assert "[kv_cache_binds]" in text
