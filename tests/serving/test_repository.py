"""The llama.cpp model's repository: its configuration, its files, and how they are written."""

from __future__ import annotations

import importlib.util
import os
import stat
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

from apps.core.exceptions import InvalidInput
from apps.serving.domain import batching, pbtxt, repository
from apps.serving.domain.batching import BatchingFacts

CONTRACT = Path(__file__).resolve().parents[2] / "workers/triton_models/llamacpp/1/llamacpp_contract.py"
SNAPSHOT = {
    "name": "inflight-16",
    "strategy": "inflight",
    "max_batch_size": 16,
    "max_queue_delay_microseconds": 0,
    "max_seq_len": 1024,
    "max_queue_size": 256,
    "threads": 2,
}


def model(**changes: object) -> repository.LlamaCppModel:
    facts = batching.facts({**SNAPSHOT, **changes})
    return repository.LlamaCppModel("demo", "/home/engines/abc/model.gguf", "cpu", facts)


def contract() -> ModuleType:
    spec = importlib.util.spec_from_file_location("llamacpp_contract_of_test", CONTRACT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_tensors_are_those_of_the_models_own_contract() -> None:
    theirs = contract()
    for ours, wanted in ((repository.INPUTS, theirs.INPUTS), (repository.OUTPUTS, theirs.OUTPUTS)):
        assert [(tensor.name, tensor.type, tensor.dims) for tensor in ours] == [
            (tensor.name, tensor.type, tensor.dims) for tensor in wanted
        ]
    assert {tensor.name: tensor.default for tensor in repository.INPUTS} == {
        tensor.name: tensor.default for tensor in theirs.INPUTS
    }
    optional = {tensor.name for tensor in theirs.INPUTS if tensor.optional}
    assert {tensor.name for tensor in repository.INPUTS if tensor.default is not None} == optional


def test_parameters_are_known_to_the_model() -> None:
    known = {parameter.name for parameter in contract().PARAMETERS}
    assert set(repository.model_parameters(model())) <= known


def test_configuration_of_an_inflight_engine() -> None:
    config = repository.model_config(model())
    assert (config.name, config.backend, config.max_batch_size) == ("demo", "python", 1)
    assert config.model_transaction_policy.decoupled
    assert [(group.kind, group.count) for group in config.instance_group] == [
        (pbtxt.ModelInstanceGroup.KIND_CPU, 1)
    ]
    assert config.WhichOneof("scheduling_choice") is None
    assert pbtxt.parameters(config) == {
        "gguf_path": "/home/engines/abc/model.gguf",
        "strategy": "inflight",
        "slots": "16",
        "context_per_slot": "1024",
        "threads": "2",
        "max_queue_size": "256",
    }
    assert pbtxt.findings(config, "demo") == []
    required = [tensor.name for tensor in config.input if not tensor.optional]
    assert required == ["text_input"]


def test_strategy_none_has_one_slot_and_a_gpu_its_own_kind() -> None:
    config = repository.model_config(model(strategy="none"))
    assert pbtxt.parameters(config)["slots"] == "1"
    gpu = repository.LlamaCppModel("demo", "/e/model.gguf", "gpu", batching.facts(SNAPSHOT))
    assert repository.model_config(gpu).instance_group[0].kind == pbtxt.ModelInstanceGroup.KIND_GPU


def test_the_beginning_of_the_rendered_text() -> None:
    text = pbtxt.render(repository.model_config(model()))
    assert text.startswith(
        'name: "demo"\nversion_policy {\n  latest {\n    num_versions: 1\n  }\n}\nmax_batch_size: 1\n'
        'input {\n  name: "text_input"\n  data_type: TYPE_STRING\n  dims: 1\n}\n'
        'input {\n  name: "max_tokens"\n  data_type: TYPE_INT32\n  dims: 1\n  optional: true\n}\n'
    )
    assert (
        'parameters {\n  key: "gguf_path"\n  value {\n    string_value: "/home/engines/abc/model.gguf"\n  }\n}\n'
        in text
    )


def test_files_need_the_models_code_and_plain_names() -> None:
    code = {"model.py": b"x", "llamacpp_contract.py": b"y"}
    paths = [file.path for file in repository.files(model(), code)]
    assert paths == ["demo/config.pbtxt", "demo/1/llamacpp_contract.py", "demo/1/model.py"]
    with pytest.raises(InvalidInput, match=r"model\.py"):
        repository.files(model(), {})
    with pytest.raises(InvalidInput, match="cannot name a file"):
        repository.files(model(), {**code, "../evil.py": b""})


def test_writing_is_whole_read_only_and_newer_than_before(tmp_path: Path) -> None:
    root = tmp_path / "repository"
    files = repository.files(model(), {"model.py": b"first"})
    repository.write(root, files)
    config = root / "demo/config.pbtxt"
    before = config.stat()
    assert stat.S_IMODE(before.st_mode) == 0o444
    assert stat.S_IMODE((root / "demo/1").stat().st_mode) == 0o555
    os.utime(config, (0, 0))
    repository.write(root, repository.files(model(), {"model.py": b"second"}))
    assert (root / "demo/1/model.py").read_bytes() == b"second"
    assert config.stat().st_mtime > time.time() - 60
    assert [path.name for path in tmp_path.iterdir()] == ["repository"]
    repository.remove(root)
    assert list(tmp_path.iterdir()) == []
    repository.remove(root)


def test_a_path_out_of_the_repository_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    root = tmp_path / "repository"
    with pytest.raises(InvalidInput):
        repository.write(root, (repository.RepositoryFile("../../evil", b""),))
    assert list(tmp_path.iterdir()) == []


def test_static_and_dynamic_let_triton_form_the_batches() -> None:
    facts = BatchingFacts("static", 8, 512, 0, 32, 0, (), 7)
    config = repository.model_config(repository.LlamaCppModel("m", "/m.gguf", "cpu", facts))
    assert config.max_batch_size == 8
    assert list(config.dynamic_batching.preferred_batch_size) == [8]
    assert config.dynamic_batching.max_queue_delay_microseconds == 1_000_000
    policy = config.dynamic_batching.default_queue_policy
    assert (policy.max_queue_size, policy.default_timeout_microseconds) == (40, 7)
    ragged = {tensor.name for tensor in config.input if tensor.allow_ragged_batch}
    assert ragged == {"stop_words", "bad_words"}
    facts = BatchingFacts("dynamic", 8, 512, 0, 0, 500, (4,))
    config = repository.model_config(repository.LlamaCppModel("m", "/m.gguf", "cpu", facts))
    assert list(config.dynamic_batching.preferred_batch_size) == [4]
    assert config.dynamic_batching.max_queue_delay_microseconds == 500
    assert config.dynamic_batching.default_queue_policy.max_queue_size == 8
    assert pbtxt.findings(config, "m") == []
