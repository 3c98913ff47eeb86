"""The files that a model needs beside its configuration: versions, engines, tokenizers, model.py, model.yaml."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from apps.serving.domain.repository_check.findings import Remark, at
from apps.serving.domain.repository_check.folders import ModelFolder, read_text
from apps.serving.domain.repository_check.one_config import ReadConfig
from apps.serving.domain.repository_check.parameters import given, line_of

# Names by which Triton tells the backend of a model that names none.
_MODEL_FILES = (
    *("model.py", "model.onnx", "model.plan", "model.pt", "model.pt2", "model.xml", "model.dali"),
    *("model.graphdef", "model.savedmodel", "model.json"),
)
_GUESSED = re.compile(r"\.(python|onnx|plan|pt|openvino|dali|graphdef|savedmodel)$")
_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "spiece.model",
    "vocab.json",
)


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What an engine's own config.json says; None where it does not."""

    world_size: int | None = None
    max_batch_size: int | None = None
    max_num_tokens: int | None = None
    version: str | None = None


def looks_like_tokenizer(path: Path) -> bool:
    """Whether a folder holds a Hugging Face tokenizer."""
    return any((path / name).is_file() for name in _TOKENIZER_FILES)


def check_versions(read: ReadConfig, folder: ModelFolder, kind: str) -> Iterator[Remark]:
    """Version folders: Triton loads nothing without one, and reads odd names by their digits."""
    for name in folder.odd_versions:
        digits = next((number for number, path in folder.versions.items() if path.name == name), None)
        message = f"Triton reads the folder {name} as version {digits or name}."
        remedy = "Move it out of the model's folder, or give it a number without leading zeros."
        yield Remark("odd_version_folder", "warning", folder.name, name, message, remedy)
    if not folder.versions:
        message = "There is no version folder, so Triton has nothing to load."
        remedy = "Make a folder 1" + (" (an ensemble's may be empty)." if kind == "ensemble" else ".")
        yield Remark("version_missing", "error", folder.name, folder.name, message, remedy)
        return
    if read.config is None or read.config.version_policy.WhichOneof("policy_choice") != "specific":
        return
    wanted = set(read.config.version_policy.specific.versions)
    for version in sorted(wanted - set(folder.versions)):
        message = f"version_policy names version {version}, and there is no such folder."
        severity: Any = "warning" if wanted & set(folder.versions) else "error"
        yield Remark(
            "version_missing", severity, folder.name, read.file, message, "Correct version_policy.specific."
        )


def check_backend(read: ReadConfig, folder: ModelFolder) -> Iterator[Remark]:
    """A model that names no backend needs a file by which Triton tells it."""
    config = read.config
    if config is None or config.backend or config.platform or not folder.versions:
        return
    if config.WhichOneof("scheduling_choice") == "ensemble_scheduling" or _GUESSED.search(folder.name):
        return
    newest = folder.newest
    if newest is not None and not any((newest / name).exists() for name in _MODEL_FILES):
        message = "No backend is set, and no file here tells Triton which one is meant."
        yield Remark(
            "no_backend", "error", folder.name, read.file, message, 'Write backend: "python" or another.'
        )


def check_code(read: ReadConfig, folder: ModelFolder, kind: str) -> Iterator[Remark]:
    """model.py of a Python model, model.yaml of the llmapi model."""
    if read.config is None or read.config.backend != "python" or not folder.versions:
        return
    name = read.config.default_model_filename or "model.py"
    if folder.file(name) is None:
        where = f"{folder.newest.name if folder.newest else 1}/{name}"
        message = f"The python backend needs {where}, and it is not there."
        remedy = "Copy it from the template of the installed TensorRT-LLM release."
        yield Remark("model_file_missing", "error", folder.name, where, message, remedy)
    if kind == "llmapi":
        yield from _llmapi(read, folder)


def _llmapi(read: ReadConfig, folder: ModelFolder) -> Iterator[Remark]:
    path = folder.file("model.yaml")
    if path is None or read.config is None:
        return
    try:
        settings = yaml.safe_load(read_text(path))
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        message = f"model.yaml cannot be read: {first}."
        yield Remark("model_yaml_unreadable", "error", folder.name, path.name, message, "Correct the YAML.")
        return
    inner = settings.get("triton_config") if isinstance(settings, Mapping) else None
    decoupled = inner.get("decoupled") if isinstance(inner, Mapping) else None
    here = read.config.model_transaction_policy.decoupled
    if isinstance(decoupled, bool) and decoupled != here:
        message = (
            f"model.yaml says decoupled: {str(decoupled).lower()}, config.pbtxt says {str(here).lower()}. Servers "
            "that are started with --disable-auto-complete-config follow config.pbtxt, the model's code model.yaml."
        )
        remedy = (
            f"Write model_transaction_policy {{ decoupled: {str(decoupled).lower()} }} into config.pbtxt."
        )
        facts = {"model.yaml": decoupled, "config.pbtxt": here}
        yield Remark("decoupled_differs", "error", folder.name, read.file, message, remedy, facts)
    if read.config.max_batch_size > 0:
        message = "The llmapi model takes one prompt a request; Triton's batching is not supported."
        yield Remark("llmapi_batching", "error", folder.name, read.file, message, "Write max_batch_size: 0.")


def check_engine(read: ReadConfig, folder: ModelFolder) -> tuple[list[Remark], EngineFacts | None]:
    """The folder that gpt_model_path names; the engine's facts where they could be read."""
    named = given(read, "gpt_model_path")
    if not named:
        if "gpt_model_path" in (read.config.parameters if read.config is not None else ()):
            value = read.config.parameters["gpt_model_path"].string_value if read.config is not None else ""
            # An unfilled variable has its own remark.
            return ([] if value else [_no_engine(read, "gpt_model_path is empty")]), None
        return [_no_engine(read, "gpt_model_path is missing")], None
    path = _resolve(named, folder)
    place = at(read.file, line_of(read, "gpt_model_path"), "parameters[gpt_model_path]")
    if path is None or not path.is_dir():
        message = f"The engine's folder {named} cannot be seen from here."
        remedy = "Check the path on the host that serves: without it the server says that both model paths are empty."
        return [
            Remark("engine_missing", "warning", read.model, place, message, remedy, {"path": named})
        ], None
    return _engine_files(read, path, place)


def _engine_files(read: ReadConfig, path: Path, place: str) -> tuple[list[Remark], EngineFacts | None]:
    try:
        facts = _engine_facts(json.loads(read_text(path / "config.json")))
    except (OSError, ValueError, RecursionError):
        message = f"{path.name} holds no config.json that can be read, so it is no engine."
        remedy = "Point gpt_model_path at the folder that trtllm-build wrote: config.json and rank0.engine."
        return [Remark("engine_missing", "error", read.model, place, message, remedy)], None
    absent = [
        f"rank{rank}.engine"
        for rank in range(facts.world_size or 1)
        if not (path / f"rank{rank}.engine").is_file()
    ]
    if absent:
        message = f"The engine is for {facts.world_size or 1} ranks; missing: {', '.join(absent[:8])}."
        remark = Remark(
            "engine_incomplete",
            "error",
            read.model,
            place,
            message,
            "Copy every rank's file, or build the engine again.",
            {"missing": absent},
        )
        return [remark], facts
    return [], facts


def check_batch_limit(read: ReadConfig, engine: EngineFacts | None) -> Iterator[Remark]:
    """Triton's batch limit against the engine's."""
    if read.config is None or engine is None or engine.max_batch_size is None:
        return
    if read.config.max_batch_size > engine.max_batch_size:
        message = (
            f"max_batch_size is {read.config.max_batch_size}, the engine was built for {engine.max_batch_size}: "
            "requests above that are refused when they arrive."
        )
        remedy = f"Write max_batch_size: {engine.max_batch_size}, or build with a larger --max_batch_size."
        facts = {"triton": read.config.max_batch_size, "engine": engine.max_batch_size}
        yield Remark("batch_size_over_engine", "error", read.model, read.file, message, remedy, facts)


def check_tokenizer(read: ReadConfig, folder: ModelFolder) -> Iterator[Remark]:
    """The folder that tokenizer_dir names."""
    named = given(read, "tokenizer_dir")
    place = at(read.file, line_of(read, "tokenizer_dir"), "parameters[tokenizer_dir]")
    if not named:
        values = read.config.parameters if read.config is not None else {}
        if "tokenizer_dir" not in values or not values["tokenizer_dir"].string_value:
            message = "tokenizer_dir is not set: initialize fails."
            remedy = "Write the folder that holds tokenizer.json or tokenizer.model."
            yield Remark("tokenizer_missing", "error", read.model, place, message, remedy)
        return
    path = _resolve(named, folder)
    if path is None or not path.exists():
        if "/" in named:
            message = f"The tokenizer's folder {named} cannot be seen from here."
            remedy = "Check the path on the host that serves."
            facts = {"path": named}
            yield Remark("tokenizer_missing", "warning", read.model, place, message, remedy, facts)
        return
    if path.is_dir() and not looks_like_tokenizer(path):
        message = f"{named} holds no tokenizer.json, tokenizer.model or tokenizer_config.json."
        remedy = "Copy the tokenizer's files from the checkpoint."
        yield Remark("tokenizer_missing", "error", read.model, place, message, remedy, {"path": named})


def _no_engine(read: ReadConfig, what: str) -> Remark:
    message = f"{what}: the server says that both encoder and decoder model paths are empty."
    remedy = 'Add parameters { key: "gpt_model_path" value { string_value: "FOLDER" } }.'
    return Remark("engine_missing", "error", read.model, read.file, message, remedy)


def _resolve(named: str, folder: ModelFolder) -> Path | None:
    if "\0" in named:
        return None
    path = Path(named.replace("$$TRITON_MODEL_DIRECTORY", str(folder.path)))
    return path if path.is_absolute() else folder.path / path


def _engine_facts(config: Any) -> EngineFacts:
    if not isinstance(config, Mapping):
        raise ValueError("config.json is no object")
    build = config.get("build_config")
    pretrained = config.get("pretrained_config")
    mapping = pretrained.get("mapping") if isinstance(pretrained, Mapping) else None
    return EngineFacts(
        _whole(mapping, "world_size"),
        _whole(build, "max_batch_size"),
        _whole(build, "max_num_tokens"),
        str(config["version"]) if isinstance(config.get("version"), str) else None,
    )


def _whole(values: Any, key: str) -> int | None:
    value = values.get(key) if isinstance(values, Mapping) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1_000_000 else None
