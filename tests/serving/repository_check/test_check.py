"""A whole TensorRT-LLM repository that is right, and each way in which one goes wrong."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from django.core.management import call_command

from apps.core.exceptions import InvalidInput
from apps.serving.domain.repository_check.check import Report, check_repository


def tensor(name: str, type: str = "INT32", dims: str = "-1", more: str = "") -> str:
    return f'{{ name: "{name}" data_type: TYPE_{type} dims: [ {dims} ] {more} }}'


def parameter(key: str, value: str) -> str:
    return f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n'


PREPROCESSING = (
    'name: "preprocessing" backend: "python" max_batch_size: 8\n'
    f"input [ {tensor('QUERY', 'STRING', '1')}, {tensor('REQUEST_OUTPUT_LEN', dims='1')} ]\n"
    f"output [ {tensor('INPUT_ID')}, {tensor('REQUEST_INPUT_LEN', dims='1')} ]\n"
    "instance_group [ { count: 1 kind: KIND_CPU } ]\n"
)
ENGINE = (
    'name: "tensorrt_llm" backend: "tensorrtllm" max_batch_size: 8\n'
    "model_transaction_policy { decoupled: true }\n"
    "dynamic_batching { preferred_batch_size: [ 8 ] }\n"
    f"input [ {tensor('input_ids', more='allow_ragged_batch: true')}, {tensor('input_lengths', dims='1')}, "
    f"{tensor('request_output_len', dims='1')}, {tensor('temperature', 'FP32', '1', 'optional: true')} ]\n"
    f"output [ {tensor('output_ids', dims='-1, -1')}, {tensor('sequence_length')} ]\n"
    "instance_group [ { count: 1 kind: KIND_CPU } ]\n"
    + parameter("gpt_model_type", "inflight_fused_batching")
)
POSTPROCESSING = (
    'name: "postprocessing" backend: "python" max_batch_size: 8\n'
    f"input [ {tensor('TOKENS_BATCH', dims='-1, -1')}, {tensor('SEQUENCE_LENGTH')} ]\n"
    f"output [ {tensor('OUTPUT', 'STRING')} ]\n"
    "instance_group [ { count: 1 kind: KIND_CPU } ]\n"
)


def step(model: str, inputs: dict[str, str], outputs: dict[str, str]) -> str:
    maps = [f'input_map {{ key: "{key}" value: "{value}" }}' for key, value in inputs.items()]
    maps += [f'output_map {{ key: "{key}" value: "{value}" }}' for key, value in outputs.items()]
    return f'{{ model_name: "{model}" model_version: -1 {" ".join(maps)} }}'


STEPS = [
    step(
        "preprocessing",
        {"QUERY": "text_input", "REQUEST_OUTPUT_LEN": "max_tokens"},
        {"INPUT_ID": "ids", "REQUEST_INPUT_LEN": "length"},
    ),
    step(
        "tensorrt_llm",
        {"input_ids": "ids", "input_lengths": "length", "request_output_len": "max_tokens"},
        {"output_ids": "tokens", "sequence_length": "lengths"},
    ),
    step(
        "postprocessing",
        {"TOKENS_BATCH": "tokens", "SEQUENCE_LENGTH": "lengths"},
        {"OUTPUT": "text_output"},
    ),
]
ENSEMBLE = (
    'name: "ensemble" platform: "ensemble" max_batch_size: 8\n'
    f"input [ {tensor('text_input', 'STRING', '1')}, {tensor('max_tokens', dims='1')} ]\n"
    f"output [ {tensor('text_output', 'STRING')} ]\n"
    f"ensemble_scheduling {{ step [ {', '.join(STEPS)} ] }}\n"
)
BLS = (
    'name: "tensorrt_llm_bls" backend: "python" max_batch_size: 8\n'
    "model_transaction_policy { decoupled: true }\n"
    f"input [ {tensor('text_input', 'STRING', '1')} ]\noutput [ {tensor('text_output', 'STRING')} ]\n"
    "instance_group [ { count: 8 kind: KIND_CPU } ]\n" + parameter("tensorrt_llm_model_name", "tensorrt_llm")
)
MODEL_PY = "class TritonPythonModel:\n    def initialize(self, args):\n        pass\n"


class Repository:
    """A repository that a test changes and checks."""

    def __init__(self, path: Path) -> None:
        self.path = path / "repository"
        self.engine = path / "engine"
        self.tokenizer = path / "tokenizer"
        self.engine.mkdir()
        self.tokenizer.mkdir()
        (self.tokenizer / "tokenizer.json").touch()
        (self.engine / "rank0.engine").touch()
        self.engine_config(1, 8)
        tokenizer = parameter("tokenizer_dir", str(self.tokenizer))
        self.texts = {
            "preprocessing": PREPROCESSING + tokenizer + parameter("visual_model_path", ""),
            "tensorrt_llm": ENGINE + parameter("gpt_model_path", str(self.engine)),
            "postprocessing": POSTPROCESSING + tokenizer,
            "ensemble": ENSEMBLE,
            "tensorrt_llm_bls": BLS,
        }
        for name in self.texts:
            self.folder(name).mkdir(parents=True)
        for name in ("preprocessing", "postprocessing", "tensorrt_llm_bls"):
            self.write(name, "model.py", MODEL_PY)

    def folder(self, name: str) -> Path:
        return self.path / name / "1"

    def write(self, name: str, file: str, text: str) -> None:
        (self.folder(name) / file).write_text(text)

    def engine_config(self, world: int, batch: int) -> None:
        config = {
            "version": "1.2.1",
            "pretrained_config": {"mapping": {"world_size": world}},
            "build_config": {"max_batch_size": batch, "max_num_tokens": 8192},
        }
        (self.engine / "config.json").write_text(json.dumps(config))

    def change(self, name: str, old: str, new: str) -> None:
        assert old in self.texts[name]
        self.texts[name] = self.texts[name].replace(old, new)

    def add(self, name: str, text: str) -> None:
        self.texts[name] += text

    def check(self) -> Report:
        for name, text in self.texts.items():
            (self.path / name / "config.pbtxt").write_text(text)
        return check_repository(self.path)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """Preprocessing, engine, postprocessing, ensemble and BLS that fit each other."""
    return Repository(tmp_path)


def test_a_right_repository_has_no_finding_and_a_graph(repository: Repository) -> None:
    report = repository.check()
    assert [found.as_dict() for found in report.findings] == []
    assert report.good
    assert {model["name"]: model["kind"] for model in report.models} == {
        name: name for name in repository.texts
    }
    assert all(model["loads"] for model in report.models)
    assert {"from": "preprocessing", "to": "tensorrt_llm", "tensor": "ids"} in report.graphs["ensemble"]
    assert {"from": "postprocessing", "to": "output", "tensor": "text_output"} in report.graphs["ensemble"]


Change = Callable[[Repository], None]


def change(name: str, old: str, new: str) -> Change:
    return lambda repository: repository.change(name, old, new)


def add(name: str, text: str) -> Change:
    return lambda repository: repository.add(name, text)


FAULTS: dict[str, tuple[Change, str, str, str]] = {
    "renamed step": (
        change("ensemble", 'model_name: "postprocessing"', 'model_name: "post"'),
        "ensemble_model_missing",
        "error",
        "ensemble",
    ),
    "unknown input": (
        change("ensemble", 'key: "TOKENS_BATCH"', 'key: "TOKENS"'),
        "ensemble_unknown_input",
        "error",
        "ensemble",
    ),
    "unknown output": (
        change("ensemble", 'key: "OUTPUT"', 'key: "TEXT"'),
        "ensemble_unknown_output",
        "error",
        "ensemble",
    ),
    "type differs": (
        change("ensemble", tensor("max_tokens", dims="1"), tensor("max_tokens", "INT64", "1")),
        "ensemble_type_differs",
        "error",
        "ensemble",
    ),
    "shape differs": (
        change("ensemble", tensor("max_tokens", dims="1"), tensor("max_tokens", dims="2")),
        "ensemble_shape_differs",
        "error",
        "ensemble",
    ),
    "unused input": (
        change("ensemble", "input [ ", f"input [ {tensor('spare')}, "),
        "ensemble_tensor_unused",
        "error",
        "ensemble",
    ),
    "unused tensor": (
        change("ensemble", 'input_map { key: "SEQUENCE_LENGTH" value: "lengths" }', ""),
        "ensemble_tensor_unused",
        "error",
        "ensemble",
    ),
    "output that nobody writes": (
        change("ensemble", 'value: "text_output"', 'value: "other"'),
        "ensemble_output_not_written",
        "error",
        "ensemble",
    ),
    "batch over a step": (
        change("postprocessing", "max_batch_size: 8", "max_batch_size: 4"),
        "ensemble_batch_size",
        "error",
        "ensemble",
    ),
    "batch over the engine": (
        lambda repository: repository.engine_config(1, 4),
        "batch_size_over_engine",
        "error",
        "tensorrt_llm",
    ),
    "a rank is missing": (
        lambda repository: repository.engine_config(2, 8),
        "engine_incomplete",
        "error",
        "tensorrt_llm",
    ),
    "no engine": (
        lambda repository: (repository.engine / "config.json").unlink(),
        "engine_missing",
        "error",
        "tensorrt_llm",
    ),
    "engine elsewhere": (
        change("tensorrt_llm", "/engine", "/nowhere"),
        "engine_missing",
        "warning",
        "tensorrt_llm",
    ),
    "no tokenizer": (
        lambda repository: (repository.tokenizer / "tokenizer.json").unlink(),
        "tokenizer_missing",
        "error",
        "preprocessing",
    ),
    "tokenizer variable": (
        change("postprocessing", "tokenizer_dir", "tokenizer_dirs"),
        "tokenizer_missing",
        "error",
        "postprocessing",
    ),
    "no version": (
        lambda repository: repository.folder("ensemble").rmdir(),
        "version_missing",
        "error",
        "ensemble",
    ),
    "odd version": (
        lambda repository: (repository.path / "ensemble/1.bak").mkdir(),
        "odd_version_folder",
        "warning",
        "ensemble",
    ),
    "no code": (
        lambda repository: (repository.folder("postprocessing") / "model.py").unlink(),
        "model_file_missing",
        "error",
        "postprocessing",
    ),
    "code that needs more": (
        lambda repository: repository.write(
            "postprocessing",
            "model.py",
            "x = model_config['parameters']['skip_special_tokens']['string_value']",
        ),
        "parameter_missing",
        "error",
        "postprocessing",
    ),
    "decoupled differs": (
        change("tensorrt_llm_bls", "decoupled: true", "decoupled: false"),
        "decoupled_differs",
        "error",
        "tensorrt_llm_bls",
    ),
    "BLS names nothing": (
        change("tensorrt_llm_bls", '"tensorrt_llm" }', '"llm" }'),
        "bls_model_missing",
        "error",
        "tensorrt_llm_bls",
    ),
    "one BLS instance": (
        change("tensorrt_llm_bls", "count: 8", "count: 1"),
        "bls_instances",
        "warning",
        "tensorrt_llm_bls",
    ),
    "variable name as key": (
        add("tensorrt_llm", parameter("batching_strategy", "inflight_fused_batching")),
        "unknown_parameter",
        "warning",
        "tensorrt_llm",
    ),
    "policy as parameter": (
        add("tensorrt_llm", parameter("decoupled_mode", "true")),
        "unknown_parameter",
        "warning",
        "tensorrt_llm",
    ),
    "parameter of an ensemble": (
        add("ensemble", parameter("enable_kv_cache_reuse", "true")),
        "parameter_acts_nowhere",
        "warning",
        "ensemble",
    ),
    "bool in words": (
        add("tensorrt_llm", parameter("enable_kv_cache_reuse", "yes")),
        "parameter_value",
        "error",
        "tensorrt_llm",
    ),
    "scheduler that is none": (
        add("tensorrt_llm", parameter("batch_scheduler_policy", "static")),
        "parameter_value",
        "error",
        "tensorrt_llm",
    ),
    "fraction over one": (
        add("tensorrt_llm", parameter("kv_cache_free_gpu_mem_fraction", "90")),
        "parameter_value",
        "error",
        "tensorrt_llm",
    ),
    "static batching": (
        change("tensorrt_llm", "inflight_fused_batching", "V1"),
        "static_batching_removed",
        "error",
        "tensorrt_llm",
    ),
    "lookahead without its sizes": (
        add("tensorrt_llm", parameter("decoding_mode", "lookahead")),
        "lookahead_incomplete",
        "error",
        "tensorrt_llm",
    ),
    "two instances, one set": (
        change("tensorrt_llm", "count: 1", "count: 2"),
        "device_sets",
        "error",
        "tensorrt_llm",
    ),
    "GPUs in the group": (
        change("tensorrt_llm", "count: 1 kind: KIND_CPU", "count: 1 kind: KIND_GPU gpus: [ 0 ]"),
        "instance_group_ignored",
        "warning",
        "tensorrt_llm",
    ),
    "a delay that does nothing": (
        change("tensorrt_llm", "[ 8 ]", "[ 2, 4 ] max_queue_delay_microseconds: 500"),
        "queue_setting_idle",
        "info",
        "tensorrt_llm",
    ),
    "unfilled engine": (
        lambda repository: repository.change("tensorrt_llm", str(repository.engine), "${engine_dir}"),
        "unfilled_placeholder",
        "error",
        "tensorrt_llm",
    ),
    "unfilled optional": (
        add("tensorrt_llm", parameter("lora_prefetch_dir", "${lora_prefetch_dir}")),
        "unfilled_placeholder",
        "info",
        "tensorrt_llm",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_found_where_it_is_with_what_to_do(repository: Repository, name: str) -> None:
    apply, id, severity, model = FAULTS[name]
    apply(repository)
    report = repository.check()
    found = [remark for remark in report.findings if remark.id == id]
    assert (severity, model) in [(remark.severity, remark.model) for remark in found]
    assert all(remark.message and remark.where and remark.remedy for remark in found)
    assert report.good is (severity != "error")


def test_the_llmapi_model_follows_its_yaml(tmp_path: Path) -> None:
    folder = tmp_path / "tensorrt_llm"
    (folder / "1").mkdir(parents=True)
    (folder / "1/model.py").write_text(MODEL_PY)
    (folder / "1/model.yaml").write_text("model: /x\ntriton_config: {decoupled: true, max_batch_size: 0}\n")
    text = 'backend: "python" max_batch_size: 0 instance_group [ { count: 1 kind: KIND_CPU } ]\n'
    (folder / "config.pbtxt").write_text(text + parameter("enable_kv_cache_reuse", "true"))
    report = check_repository(tmp_path)
    found = {remark.id: remark for remark in report.findings}
    assert "decoupled: true" in found["decoupled_differs"].remedy
    assert "enable_block_reuse" in found["unknown_parameter"].remedy
    (folder / "1/model.yaml").write_text("a: [")
    assert "model_yaml_unreadable" in {remark.id for remark in check_repository(tmp_path).findings}


def test_files_that_are_no_text_are_said_and_do_not_end_the_check(repository: Repository) -> None:
    repository.check()
    (repository.path / "ensemble/config.pbtxt").write_bytes(b"\xff\xfe\x00")
    (repository.path / "postprocessing/config.pbtxt").unlink()
    (repository.path / "postprocessing/config.pbtxt").mkdir()
    report = check_repository(repository.path)
    unreadable = [remark.model for remark in report.findings if remark.id == "config_unreadable"]
    assert sorted(unreadable) == ["ensemble", "postprocessing"]


def test_where_there_is_no_repository(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="neither"):
        check_repository(tmp_path / "missing")
    with pytest.raises(InvalidInput, match="no subfolder"):
        check_repository(tmp_path)


def test_the_command_prints_json_and_exits_by_the_answer(repository: Repository) -> None:
    repository.check()
    out = io.StringIO()
    call_command("check_repository", str(repository.path), "--json", stdout=out)
    said = json.loads(out.getvalue())
    assert (len(said["models"]), said["findings"]) == (5, [])
    repository.change("ensemble", 'model_name: "postprocessing"', 'model_name: "post"')
    repository.check()
    out = io.StringIO()
    with pytest.raises(SystemExit) as ended:
        call_command("check_repository", str(repository.path), stdout=out)
    assert ended.value.code == 1
    assert "ensemble_model_missing" in out.getvalue()
    out = io.StringIO()
    with pytest.raises(SystemExit) as ended:
        call_command("check_repository", str(repository.path / "none"), "--json", stdout=out)
    assert json.loads(out.getvalue())["findings"][0]["id"] == "repository_missing"
