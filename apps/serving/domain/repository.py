"""The model repository of the llama.cpp model as data: its config.pbtxt and its files, and writing them.

The tensors are those of the TensorRT-LLM ensemble where a name exists there. Every input but the prompt is
optional in the configuration and has a default here, which callers send: Triton never batches requests that
differ in the optional inputs they carry.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from apps.core.exceptions import InvalidInput
from apps.serving.domain import pbtxt
from apps.serving.domain.batching import STATIC_DELAY_MICROSECONDS, BatchingFacts
from apps.serving.domain.priority_reach import LEVELS

Device = Literal["cpu", "gpu"]
Value = str | int | float | bool | tuple[str, ...] | None
CODE_FILES = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}\Z")


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor of config.pbtxt: `type` without its TYPE_ prefix, `dims` without the batch dimension.

    `default` is what callers send where they have no value of their own; null for the required input and outputs.
    """

    name: str
    type: str
    dims: tuple[int, ...] = (1,)
    default: Value = None


# A copy of workers/triton_models/llamacpp/1/llamacpp_contract.py, which apps may not import; a test compares them.
INPUTS: tuple[Tensor, ...] = (
    Tensor("text_input", "STRING"),
    Tensor("max_tokens", "INT32", default=256),
    Tensor("stream", "BOOL", default=False),
    Tensor("temperature", "FP32", default=1.0),
    Tensor("top_k", "INT32", default=0),
    Tensor("top_p", "FP32", default=0.0),
    Tensor("seed", "UINT64", default=0),
    Tensor("stop_words", "STRING", dims=(-1,), default=()),
    Tensor("bad_words", "STRING", dims=(-1,), default=()),
    Tensor("repetition_penalty", "FP32", default=1.0),
    Tensor("presence_penalty", "FP32", default=0.0),
    Tensor("frequency_penalty", "FP32", default=0.0),
    Tensor("min_tokens", "INT32", default=0),
    Tensor("end_id", "INT32", default=-1),
    Tensor("return_log_probs", "BOOL", default=False),
    Tensor("num_log_probs", "INT32", default=0),
    Tensor("exclude_input_in_output", "BOOL", default=True),
    Tensor("beam_width", "INT32", default=1),
    Tensor("num_return_sequences", "INT32", default=1),
)
OUTPUTS: tuple[Tensor, ...] = (
    Tensor("text_output", "STRING"),
    Tensor("token_count", "INT32"),
    Tensor("output_log_probs", "FP32", dims=(-1, -1)),
    Tensor("top_log_probs", "STRING"),
    Tensor("finish_reason", "STRING"),
    Tensor("prompt_tokens", "INT32"),
    Tensor("completion_tokens", "INT32"),
    Tensor("cached_tokens", "INT32"),
    Tensor("queue_seconds", "FP32"),
    Tensor("cum_log_probs", "FP32", dims=(-1,)),
)


@dataclass(frozen=True, slots=True)
class LlamaCppModel:
    """One model directory: `name` inside Triton, the engine file, where it runs, how requests share it."""

    name: str
    gguf_path: str
    device: Device
    batching: BatchingFacts


@dataclass(frozen=True, slots=True)
class RepositoryFile:
    """One file by its path inside the repository; with `link` a link to that file. An ending / means a folder."""

    path: str
    content: bytes
    link: str = ""


def model_config(model: LlamaCppModel) -> pbtxt.ModelConfig:
    """The configuration: decoupled, one instance, every input with a default, settings as string parameters.

    `max_batch_size` is 1 where the engine batches over its slots itself; with strategies static and dynamic Triton
    forms batches of up to as many requests as there are slots.
    """
    size = model.batching.slots if model.batching.in_batches else 1
    config = pbtxt.ModelConfig(name=pbtxt.check_model_name(model.name), backend="python", max_batch_size=size)
    if model.batching.in_batches:
        _form_batches(config, model.batching)
    for tensor in INPUTS:
        config.input.append(
            pbtxt.ModelInput(
                name=tensor.name,
                data_type=_data_type(tensor),
                dims=tensor.dims,
                optional=tensor.default is not None,
                # Requests with lists of other lengths still belong into one batch; python models get each by itself.
                allow_ragged_batch=model.batching.in_batches and -1 in tensor.dims,
            )
        )
    for tensor in OUTPUTS:
        config.output.append(
            pbtxt.ModelOutput(name=tensor.name, data_type=_data_type(tensor), dims=tensor.dims)
        )
    kind = "KIND_GPU" if model.device == "gpu" else "KIND_CPU"
    config.instance_group.append(pbtxt.ModelInstanceGroup(kind=kind, count=1))
    config.model_transaction_policy.decoupled = True
    config.version_policy.latest.num_versions = 1
    pbtxt.set_parameters(config, model_parameters(model))
    return config


def _form_batches(config: pbtxt.ModelConfig, batching: BatchingFacts) -> None:
    """Triton's batcher: static waits for a full batch, dynamic takes what came within the delay."""
    triton = config.dynamic_batching
    if batching.strategy == "static":
        triton.preferred_batch_size.append(batching.slots)
        triton.max_queue_delay_microseconds = batching.queue_delay_microseconds or STATIC_DELAY_MICROSECONDS
    else:
        triton.preferred_batch_size.extend(batching.preferred_batch_sizes)
        triton.max_queue_delay_microseconds = batching.queue_delay_microseconds
    triton.preserve_ordering = batching.preserve_ordering
    _queue_policy(
        triton.default_queue_policy, batching, batching.max_queue_size, batching.queue_timeout_microseconds
    )
    if not batching.priority_classes:
        return
    triton.priority_levels = len(LEVELS)
    triton.default_priority_level = batching.default_priority_level
    for item in batching.priority_classes:
        size, timeout = item.max_queue_size, item.queue_timeout_microseconds
        _queue_policy(
            triton.priority_queue_policy[item.level],
            batching,
            batching.max_queue_size if size is None else size,
            batching.queue_timeout_microseconds if timeout is None else timeout,
        )


def _queue_policy(policy: pbtxt.ModelQueuePolicy, batching: BatchingFacts, size: int, timeout: int) -> None:
    # The batch that is being formed waits in the same queue as those behind it.
    policy.max_queue_size = batching.slots + size
    policy.default_timeout_microseconds = timeout
    policy.allow_timeout_override = timeout > 0 and batching.allow_timeout_override
    if timeout and batching.timeout_action == "delay" and not batching.preserve_ordering:
        policy.timeout_action = pbtxt.ModelQueuePolicy.DELAY


def _data_type(tensor: Tensor) -> int:
    return int(pbtxt.DataType.Value(f"TYPE_{tensor.type}"))


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
        if file.path.endswith("/"):
            path.mkdir(parents=True, exist_ok=True)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        if file.link:
            path.symlink_to(file.link)
            continue
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
