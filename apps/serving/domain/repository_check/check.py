"""The check of a whole repository: its models, what is none, the graph of its ensembles, every finding."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from apps.serving.domain import pbtxt
from apps.serving.domain.repository_check import ensembles, files, parameters, python_models, together
from apps.serving.domain.repository_check.findings import Remark
from apps.serving.domain.repository_check.folders import ModelFolder, read_repository
from apps.serving.domain.repository_check.kinds import kind_of
from apps.serving.domain.repository_check.one_config import ReadConfig, read_config

_ORDER = {"error": 0, "warning": 1, "info": 2}


@dataclass(frozen=True, slots=True)
class Report:
    """`models` as data, `not_models` are folders that Triton would stumble over, `graphs` by ensemble."""

    models: tuple[dict[str, Any], ...]
    not_models: tuple[str, ...]
    graphs: Mapping[str, list[dict[str, str]]]
    findings: tuple[Remark, ...]

    @property
    def good(self) -> bool:
        """Whether nothing keeps a model from loading."""
        return all(found.severity != "error" for found in self.findings)

    def as_dict(self) -> dict[str, Any]:
        """JSON form."""
        return {
            "models": list(self.models),
            "findings": [found.as_dict() for found in self.findings],
            "not_models": list(self.not_models),
            "graphs": dict(self.graphs),
        }


def check_repository(path: Path) -> Report:
    """Check a repository, one model's folder or one config.pbtxt. Raises InvalidInput where there is none."""
    folders, whole = read_repository(path)
    models = [folder for folder in folders if folder.is_model]
    strays = [folder for folder in folders if not folder.is_model]
    reads = {folder.name: _read(folder) for folder in models}
    kinds = {folder.name: kind_of(reads[folder.name], folder) for folder in models}
    findings = [remark for read in reads.values() for remark in read.remarks]
    for folder in models:
        findings += _one(reads[folder.name], folder, kinds[folder.name], whole)
    configs = {name: read.config for name, read in reads.items() if read.config is not None}
    for name, read in reads.items():
        if kinds[name] == "ensemble" and whole:
            findings += ensembles.check_ensemble(read, configs, frozenset(reads))
    findings += together.check_together(reads, kinds)
    findings += _strays(strays, reads)
    graphs = {name: ensembles.edges(config) for name, config in configs.items() if kinds[name] == "ensemble"}
    return Report(
        tuple(_model(folder, reads[folder.name], kinds[folder.name], findings) for folder in models),
        tuple(folder.name for folder in strays),
        graphs,
        tuple(sorted(findings, key=lambda found: (_ORDER[found.severity], found.model, found.where))),
    )


def _read(folder: ModelFolder) -> ReadConfig:
    if folder.text is not None:
        return read_config(folder.text, folder.name)
    if folder.problem:
        message = f"config.pbtxt cannot be read: {folder.problem}."
        remark = Remark(
            "config_unreadable", "error", folder.name, pbtxt.FILE_NAME, message, "Write it as UTF-8 text."
        )
        return ReadConfig(folder.name, pbtxt.FILE_NAME, "", remarks=[remark])
    message = "There is no config.pbtxt; Triton makes one up where the model file tells enough, and fails otherwise."
    remedy = "Write a config.pbtxt; servers with --disable-auto-complete-config need it."
    remark = Remark("config_missing", "warning", folder.name, folder.name, message, remedy)
    return ReadConfig(folder.name, pbtxt.FILE_NAME, "", remarks=[remark])


def _one(read: ReadConfig, folder: ModelFolder, kind: str, whole: bool) -> Iterator[Remark]:
    yield from parameters.check_parameters(read, kind)
    yield from together.check_alone(read, kind)
    yield from python_models.check_python_model(read, folder, kind)
    if whole or folder.versions:
        yield from files.check_versions(read, folder, kind)
        yield from files.check_backend(read, folder)
        yield from files.check_code(read, folder, kind)
    if kind == "tensorrt_llm" and whole:
        remarks, engine = files.check_engine(read, folder)
        yield from remarks
        yield from files.check_batch_limit(read, engine)
    if kind in ("preprocessing", "postprocessing") and whole:
        yield from files.check_tokenizer(read, folder)


def _strays(strays: Iterable[ModelFolder], reads: Mapping[str, ReadConfig]) -> Iterator[Remark]:
    for folder in strays:
        users = sorted(
            f"{name}.{key}"
            for name, read in reads.items()
            for key, value in (pbtxt.parameters(read.config) if read.config is not None else {}).items()
            if value.rstrip("/").split("/")[-1] == folder.name
        )
        tokenizer = files.looks_like_tokenizer(folder.path)
        message = (
            f"{folder.name} has neither config.pbtxt nor a version folder: it is no model, but Triton takes every "
            "subfolder for one, reports a poll error, and ends where it is started to exit on errors."
        )
        if tokenizer:
            message += " It holds a tokenizer."
        remedy = "Move it out of the repository"
        remedy += f", and write its new place into {', '.join(users)}." if users else "."
        facts = {"tokenizer": tokenizer, "used_by": users}
        yield Remark("not_a_model", "warning", folder.name, folder.name, message, remedy, facts)


def _model(folder: ModelFolder, read: ReadConfig, kind: str, findings: Iterable[Remark]) -> dict[str, Any]:
    config = read.config
    return {
        "name": folder.name,
        "kind": kind,
        "backend": config.backend or None if config is not None else None,
        "platform": config.platform or None if config is not None else None,
        "max_batch_size": config.max_batch_size if config is not None else None,
        "decoupled": config.model_transaction_policy.decoupled if config is not None else None,
        "versions": sorted(folder.versions),
        "readable": read.readable,
        "refused_by": read.refused_by or None,
        "loads": not any(found.severity == "error" and found.model == folder.name for found in findings),
        "inputs": [tensor.name for tensor in config.input] if config is not None else None,
        "outputs": [tensor.name for tensor in config.output] if config is not None else None,
    }
