"""Composed command lines against parsers typed from the reference, and against golden files."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.core.management import CommandError, call_command

from apps.engines.domain.trtllm.build_flags import BUILD_FLAGS
from apps.engines.domain.trtllm.compose import Composed, compose_documents
from apps.engines.domain.trtllm.conversion_flags import CONVERT_FLAGS, QUANTIZE_FLAGS
from apps.engines.domain.trtllm.flag import Flag
from tests.support.trtllm.flags import PARSERS

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = sorted((ROOT / "examples/trtllm").glob("*.yaml"))
GOLDEN = ROOT / "tests/data/trtllm"


def documents(path: Path) -> list[Any]:
    return list(yaml.safe_load_all(path.read_text()))


def composed(path: Path) -> Composed:
    return compose_documents(documents(path), "/build")


def parsed(argv: tuple[str, ...]) -> dict[str, Any]:
    """The arguments as the real program would see them; prefixes are not accepted, a whole flag is meant."""
    at = next(index for index, word in enumerate(argv) if word.rsplit("/", 1)[-1] in PARSERS)
    parser = PARSERS[argv[at].rsplit("/", 1)[-1]]()
    parser.allow_abbrev = False
    return vars(parser.parse_args(argv[at + 1 :]))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_gives_the_steps_of_its_golden_file(path: Path) -> None:
    found = composed(path)
    assert found.good
    golden = GOLDEN / f"{path.stem}.json"
    assert found.as_dict() == json.loads(golden.read_text())


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_real_programs_would_take_every_word(path: Path) -> None:
    for step in composed(path).steps:
        if any(word.rsplit("/", 1)[-1] in PARSERS for word in step.argv):
            assert parsed(step.argv)


def test_nothing_of_a_profile_is_left_out() -> None:
    found = composed(ROOT / "examples/trtllm/llama-3-70b-fp8-tp4.yaml")
    quantize, build = (parsed(step.argv) for step in found.steps)
    assert (quantize["qformat"], quantize["kv_cache_dtype"], quantize["tp_size"]) == ("fp8", "fp8", 4)
    assert quantize["calib_dataset"] == "/data/cnn_dailymail"
    assert build["max_batch_size"] == 128
    assert build["workers"] == 4
    assert [build[name] for name in ("reduce_fusion", "user_buffer", "multiple_profiles")] == ["enable"] * 3
    assert build["checkpoint_dir"] == quantize["output_dir"]
    assert [name.rsplit("/", 1)[-1] for name in found.steps[1].outputs] == [
        "config.json",
        *(f"rank{rank}.engine" for rank in range(4)),
    ]


@pytest.mark.parametrize(
    ("program", "flags"),
    [
        ("trtllm-build", BUILD_FLAGS),
        ("convert_checkpoint.py", CONVERT_FLAGS),
        ("quantize.py", QUANTIZE_FLAGS),
    ],
)
def test_our_table_of_a_program_is_the_references(program: str, flags: tuple[Flag, ...]) -> None:
    parser = PARSERS[program]()
    theirs = {
        option.lstrip("-"): action
        for action in parser._actions
        for option in action.option_strings
        if option.startswith("--") and option != "--help"
    }
    ours = {name: flag for flag in flags if not flag.until for name in (flag.name, *flag.aliases)}
    assert theirs.keys() == ours.keys()
    for name, flag in ours.items():
        choices = theirs[name].choices
        if choices is not None and flag.form in ("choice", "onoff"):
            assert sorted(map(str, choices)) == sorted(map(str, flag.choices)), name


BASE: dict[str, Any] = {"builder": "trtllm", "recipe": "engine", "checkpoint": "c", "quantization": "none"}
LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 32000,
    "max_position_embeddings": 8192,
}


def document(kind: str, name: str, spec: Any) -> dict[str, Any]:
    return {"apiVersion": "inflight/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def with_profile(config: Any = LLAMA, quantization: Any = None, **fields: Any) -> Composed:
    found = [document("Checkpoint", "c", {"source": {"path": "/m"}, "config": config})]
    profile = BASE | {"target": {"gpu": "h100-sxm"}, "build": {"max_seq_len": 4096}} | fields
    if quantization is not None:
        found.append(document("QuantizationProfile", "q", quantization))
        profile["quantization"] = "q"
    return compose_documents([*found, document("BuildProfile", "b", profile)], "/build")


REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "no such flag": ({"build": {"tp_size": 4}}, "unknown_flag", "build.tp_size"),
    "removed flag": ({"build": {"max_output_len": 2048}}, "unknown_flag", "build.max_output_len"),
    "bad value": ({"build": {"max_batch_size": "many"}}, "flag_value", "build.max_batch_size"),
    "value like a flag": ({"build": {"visualize_network": "--x"}}, "flag_value", "build.visualize_network"),
    "our flag": ({"build": {"output_dir": "/x"}}, "flag_is_ours", "build.output_dir"),
    "nothing": ({"build": {"max_batch_size": 0}}, "limit_too_small", "build.max_batch_size"),
    "padding": ({"build": {"remove_input_padding": "disable"}}, "in_flight_needs_packed_inputs", ""),
    "no plugin": ({"build": {"gpt_attention_plugin": "disable"}}, "in_flight_needs_attention_plugin", ""),
    "continuous KV": ({"build": {"kv_cache_type": "continuous"}}, "in_flight_needs_paged_kv", ""),
    "paged without fused": (
        {"build": {"context_fmha": "disable", "use_paged_context_fmha": "enable"}},
        "paged_fmha_needs_fmha",
        "",
    ),
    "streamingllm": ({"build": {"streamingllm": "enable"}}, "streamingllm_gone", ""),
    "profiles": (
        {"build": {"multiple_profiles": "enable", "opt_num_tokens": 64}},
        "profiles_with_opt_tokens",
        "",
    ),
    "user buffer": ({"build": {"user_buffer": "enable"}}, "user_buffer_alone", "build.user_buffer"),
    "scatter": ({"build": {"pp_reduce_scatter": "enable"}}, "pp_reduce_scatter", ""),
    "tp against heads": ({"parallel": {"tp": 3}}, "tp_illegal", "parallel.tp"),
    "experts": ({"parallel": {"tp": 4, "moeEp": 3}}, "expert_parallel", "parallel.moeEp"),
    "FP8 on Ampere": (
        {"quantization": {"format": "fp8"}, "target": {"gpu": "a100-80"}},
        "fp8_unsupported_gpu",
        "quantization",
    ),
    "NVFP4 on Hopper": ({"quantization": {"format": "nvfp4"}}, "nvfp4_unsupported_gpu", ""),
    "INT8 on Blackwell": (
        {"quantization": {"format": "int8_sq"}, "target": {"gpu": "b200"}},
        "int_unsupported_gpu",
        "",
    ),
    "old GPU": ({"target": {"gpu": "v100-32"}}, "gpu_too_old", "target.gpu"),
    "no such GPU": ({"target": {"gpu": "z9"}}, "gpu_unknown", "target.gpu"),
    "group": ({"quantization": {"format": "int4_awq", "groupSize": 32}}, "group_size", ""),
    "calibration folder": (
        {"quantization": {"format": "fp8", "calibration": {"dataset": "/data/texts"}}},
        "calibration_dataset_path_needs_cnn_dailymail",
        "",
    ),
    "lm_head": ({"quantization": {"format": "int4_awq", "quantizeLmHead": True}}, "lm_head_needs_fp8", ""),
    "GPTQ without weights": ({"quantization": {"format": "gptq"}}, "gptq_weights", ""),
    "quantised twice": (
        {
            "config": LLAMA | {"quantization_config": {"quant_method": "gptq", "bits": 4}},
            "quantization": {"format": "fp8"},
        },
        "quantized_twice",
        "",
    ),
    "engines are gone": (
        {"target": {"gpu": "h100-sxm", "tensorrtLlm": "1.3.0rc14"}},
        "engines_gone",
        "recipe",
    ),
    "no release": ({"target": {"tensorrtLlm": "newest"}}, "release_invalid", "target.tensorrtLlm"),
    "unknown field": ({"maxBatchSize": 4}, "unknown_field", "BuildProfile/b.maxBatchSize"),
    "flag in the wrong place": ({"max_batch_size": 4}, "unknown_field", "BuildProfile/b.max_batch_size"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_go_together_is_refused_with_field_and_remedy(name: str) -> None:
    fields, id, where = REFUSED[name]
    found = with_profile(**fields)
    faults = {finding.id: finding for finding in found.findings if finding.severity == "error"}
    assert id in faults
    assert faults[id].message
    assert faults[id].remedy
    assert not where or faults[id].where == where
    assert found.steps == ()


@pytest.mark.parametrize(
    ("fields", "id"),
    [
        ({"build": {}}, "max_seq_len_unset"),
        ({"build": {"max_seq_len": 8, "max_batch_size": 4}}, "max_num_tokens_clamped"),
        ({"build": {"max_seq_len": 8192, "max_num_tokens": 32768}}, "max_num_tokens_large"),
        ({"build": {"max_seq_len": 8192, "max_input_len": 4096}}, "max_input_len_ignored"),
        ({"build": {"max_seq_len": 64, "reduce_fusion": "enable"}}, "reduce_fusion_idle"),
        ({"quantization": {"format": "none", "kvCacheDtype": "int8"}}, "paged_fmha_lost"),
        ({"quantization": {"format": "int4_awq", "calibration": {"size": 512}}}, "calibration_cut"),
        ({"target": {"gpu": "h100-sxm", "gpus": 1}, "parallel": {"tp": 2}}, "more_ranks_than_gpus"),
        ({"config": None}, "script_guessed"),
        ({"target": {}}, "gpu_unnamed"),
    ],
)
def test_what_is_odd_is_warned_of_and_composed(fields: dict[str, Any], id: str) -> None:
    found = with_profile(**fields)
    assert id in [finding.id for finding in found.findings]
    assert found.good
    assert found.steps


def test_the_removed_output_length_is_rewritten_as_a_sum() -> None:
    found = with_profile(build={"max_input_len": 2048, "max_output_len": 2048})
    fault = next(finding for finding in found.findings if finding.id == "unknown_flag")
    assert "max_seq_len: 4096" in fault.remedy


def test_scripts_lie_elsewhere_in_older_releases() -> None:
    found = with_profile(target={"gpu": "h100-sxm", "tensorrtLlm": "0.16.0"})
    assert found.steps[0].argv[1] == "/app/tensorrt_llm/examples/llama/convert_checkpoint.py"


def test_from_1_3_on_auto_means_the_checkpoint_recipe() -> None:
    found = with_profile(recipe="auto", build={}, target={"gpu": "h100-sxm", "tensorrtLlm": "1.3.0"})
    assert found.recipe == "checkpoint"
    assert [step.name for step in found.steps] == ["validate", "warm_up"]
    refused = with_profile(recipe="auto", target={"gpu": "h100-sxm", "tensorrtLlm": "1.3.0"})
    assert [finding.id for finding in refused.findings] == ["no_compile"]


@pytest.mark.parametrize(
    "broken",
    [
        [],
        ["text"],
        [{"kind": "BuildProfile"}],
        [document("BuildProfile", "b", BASE)],
        [document("BuildProfile", "b", BASE), document("BuildProfile", "b", BASE)],
        [document("BuildProfile", "b", BASE), document("Checkpoint", "c", {"source": {"path": "relative"}})],
        [document("BuildProfile", "b", BASE), document("Checkpoint", "c", {"source": "x"})],
        [
            document("BuildProfile", "b", BASE | {"quantization": "q9"}),
            document("Checkpoint", "c", {"source": {"path": "/m"}}),
        ],
        [
            document("BuildProfile", "b", BASE | {"parallel": {"tp": "two"}}),
            document("Checkpoint", "c", {"source": {"path": "/m"}}),
        ],
        [
            document("BuildProfile", "b", BASE | {"build": [1]}),
            document("Checkpoint", "c", {"source": {"path": "/m"}}),
        ],
        [{"apiVersion": "v2", "kind": "BuildProfile", "metadata": {"name": "b"}, "spec": {}}],
    ],
)
def test_documents_that_are_none_give_findings(broken: list[Any]) -> None:
    found = compose_documents(broken, "/build")
    assert not found.good
    assert found.steps == ()


def test_the_command_prints_and_exits_by_the_answer(tmp_path: Path) -> None:
    out = io.StringIO()
    call_command("compose_build", str(EXAMPLES[0]), "--json", stdout=out)
    assert json.loads(out.getvalue())["recipe"] == "engine"
    call_command("compose_build", str(EXAMPLES[0]), stdout=out)
    assert "trtllm-build" in out.getvalue()
    broken = tmp_path / "broken.yaml"
    broken.write_text("a: [")
    out = io.StringIO()
    with pytest.raises(SystemExit) as ended:
        call_command("compose_build", str(broken), "--json", stdout=out)
    assert ended.value.code == 1
    assert json.loads(out.getvalue())["findings"][0]["id"] == "yaml_unreadable"
    with pytest.raises(CommandError):
        call_command("compose_build", str(tmp_path / "none.yaml"))
