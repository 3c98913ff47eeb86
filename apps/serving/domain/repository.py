"""The model repository of the llama.cpp model as data: its config.pbtxt and its files, and writing them.

The tensors are those of the TensorRT-LLM ensemble where a name exists there. Every input is optional in the
configuration and has a default here, which callers send: Triton never batches requests that differ in the
optional inputs they carry.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tritonclient.grpc import model_config_pb2

from apps.core.exceptions import InvalidInput
from apps.serving.domain import pbtxt
from apps.serving.domain.batching import BatchingFacts

Device = Literal["cpu", "gpu"]
Scalar = str | int | float | bool
CODE_FILES = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}\Z")
TYPES: dict[str, int] = {
    "BYTES": model_config_pb2.TYPE_STRING,
    "BOOL": model_config_pb2.TYPE_BOOL,
    "INT32": model_config_pb2.TYPE_INT32,
    "UINT64": model_config_pb2.TYPE_UINT64,
    "FP32": model_config_pb2.TYPE_FP32,
}


@dataclass(frozen=True, slots=True)
class TensorInput:
    """One input. `default` is null for the required one; `many` is a list of values (dims -1)."""

    name: str
    datatype: str
    default: Scalar | tuple[Scalar, ...] | None
    many: bool = False


@dataclass(frozen=True, slots=True)
class TensorOutput:
    """One output of each response."""

    name: str
    datatype: str


INPUTS: tuple[TensorInput, ...] = (
    TensorInput("text_input", "BYTES", None),
    TensorInput("max_tokens", "INT32", 256),
    TensorInput("stream", "BOOL", True),
    TensorInput("temperature", "FP32", 0.0),
    TensorInput("top_k", "INT32", 0),
    TensorInput("top_p", "FP32", 1.0),
    TensorInput("repetition_penalty", "FP32", 1.0),
    TensorInput("presence_penalty", "FP32", 0.0),
    TensorInput("frequency_penalty", "FP32", 0.0),
    TensorInput("seed", "UINT64", 0),
    TensorInput("stop_words", "BYTES", (), many=True),
    TensorInput("bad_words", "BYTES", (), many=True),
)
OUTPUTS: tuple[TensorOutput, ...] = (TensorOutput("text_output", "BYTES"),)


@dataclass(frozen=True, slots=True)
class LlamaCppModel:
    """One model directory: `name` inside Triton, the engine file, where it runs, how requests share it."""

    name: str
    gguf_path: str
    device: Device
    batching: BatchingFacts


@dataclass(frozen=True, slots=True)
class RepositoryFile:
    """One file, by its path inside the repository."""

    path: str
    content: bytes


def model_config(model: LlamaCppModel) -> pbtxt.ModelConfig:
    """The configuration: decoupled, one instance, every input with a default, settings as string parameters.

    `max_batch_size` is 1: the engine takes one prompt per request and batches over its slots itself.
    """
    config = pbtxt.ModelConfig(name=pbtxt.check_model_name(model.name), backend="python", max_batch_size=1)
    for tensor in INPUTS:
        config.input.append(
            pbtxt.ModelInput(
                name=tensor.name,
                data_type=TYPES[tensor.datatype],
                dims=[-1 if tensor.many else 1],
                optional=tensor.default is not None,
            )
        )
    for output in OUTPUTS:
        config.output.append(pbtxt.ModelOutput(name=output.name, data_type=TYPES[output.datatype], dims=[1]))
    kind = "KIND_GPU" if model.device == "gpu" else "KIND_CPU"
    config.instance_group.append(pbtxt.InstanceGroup(kind=kind, count=1))
    config.model_transaction_policy.decoupled = True
    config.version_policy.latest.num_versions = 1
    pbtxt.set_parameters(config, model_parameters(model))
    return config


def model_parameters(model: LlamaCppModel) -> dict[str, str]:
    """Settings of the llama.cpp model, as it reads them (docs/llamacpp-model.md)."""
    batching = model.batching
    return {
        "gguf_path": model.gguf_path,
        "strategy": batching.strategy,
        "slots": str(batching.slots),
        "context_per_slot": str(batching.context_per_slot),
        "threads": str(batching.threads),
        "max_queue_size": str(batching.max_queue_size),
    }


def files(model: LlamaCppModel, code: Mapping[str, bytes]) -> tuple[RepositoryFile, ...]:
    """Every file of the repository. `code` are the files of version 1 by name, `model.py` among them."""
    if "model.py" not in code:
        raise InvalidInput(
            "model_code_missing",
            "The code of the llama.cpp model has no model.py.",
            field="code",
            remedy="Install Inflight again: its file workers/triton_models/llamacpp/1/model.py is missing.",
        )
    for name in code:
        if not CODE_FILES.match(name):
            raise InvalidInput(
                "model_file_name",
                f"{name!r} cannot name a file of a model.",
                field="code",
                remedy="Use letters, digits, dots, dashes and underscores.",
            )
    text = pbtxt.render(model_config(model))
    parts = [RepositoryFile(f"{model.name}/1/{name}", content) for name, content in sorted(code.items())]
    return (RepositoryFile(f"{model.name}/{pbtxt.FILE_NAME}", text.encode()), *parts)


def write(root: Path, wanted: tuple[RepositoryFile, ...]) -> None:
    """Write the repository at `root`, read-only, whole or not at all; an older one there is replaced.

    The files' times are now: Triton skips a load where no file is newer than the last one that it read.
    """
    temporary = root.with_name(f".{root.name}.{os.getpid()}")
    remove(temporary)
    for file in wanted:
        path = temporary / file.path
        if not path.resolve().is_relative_to(temporary.resolve()):
            raise InvalidInput("path_escapes", f"{file.path} leaves the repository.", field="path")
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as handle:
            handle.write(file.content)
            handle.flush()
            os.fsync(handle.fileno())
        path.chmod(0o444)
    # A server that only reads its folder writes no byte code there either (PYTHONDONTWRITEBYTECODE is set).
    for folder in sorted((path for path in temporary.rglob("*") if path.is_dir()), reverse=True):
        folder.chmod(0o555)
    remove(root)
    temporary.rename(root)
    root.chmod(0o555)


def remove(root: Path) -> None:
    """Remove a repository that was written read-only; nothing happens where there is none."""
    if not root.exists():
        return
    for folder in (root, *(path for path in root.rglob("*") if path.is_dir())):
        folder.chmod(0o755)
    shutil.rmtree(root)
