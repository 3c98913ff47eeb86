"""A whole TensorRT-LLM repository that is right, which tests change and check."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

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


Change = Callable[[Repository], None]


def change(name: str, old: str, new: str) -> Change:
    return lambda repository: repository.change(name, old, new)


def add(name: str, text: str) -> Change:
    return lambda repository: repository.add(name, text)


# What is done to the repository, and the finding that it brings: id, severity, model.
Fault = tuple[Change, str, str, str]


def check_fault(repository: Repository, fault: Fault) -> None:
    """The fault is found where it is, with what to do; it keeps the repository from being good if it is an error."""
    apply, id, severity, model = fault
    apply(repository)
    report = repository.check()
    found = [remark for remark in report.findings if remark.id == id]
    assert (severity, model) in [(remark.severity, remark.model) for remark in found]
    assert all(remark.message and remark.where and remark.remedy for remark in found)
    assert report.good is (severity != "error")
