"""An ensemble's wiring against the models that it names: what is required, what exists, what fits.

The rules are Triton core's (ensemble_utils.cc); the sentences say what to mend rather than what the server prints.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tritonclient.grpc.model_config_pb2 import DataType, ModelConfig

from apps.serving.domain.repository_check.findings import Remark, at
from apps.serving.domain.repository_check.one_config import ReadConfig


@dataclass(frozen=True, slots=True)
class _End:
    """One end of an ensemble tensor: who writes or reads it, its type and its dims with the batch dimension."""

    owner: str
    tensor: str
    data_type: int
    dims: tuple[int, ...]


@dataclass(slots=True)
class _Wiring:
    written: dict[str, _End] = field(default_factory=dict)
    readers: dict[str, list[_End]] = field(default_factory=dict)
    remarks: list[Remark] = field(default_factory=list)


def check_ensemble(
    read: ReadConfig, configs: Mapping[str, ModelConfig], present: frozenset[str]
) -> list[Remark]:
    """Remarks about one ensemble. `configs` are the understood models by folder, `present` every model folder."""
    config = read.config
    if config is None:
        return []
    wiring = _Wiring()
    for tensor in config.input:
        wiring.written[tensor.name] = _end(f"ensemble input {tensor.name}", tensor, config)
    missing: dict[str, Any] = {}
    for index, step in enumerate(config.ensemble_scheduling.step):
        if step.model_name not in present:
            wiring.remarks.append(_no_model(read, index, step.model_name))
        _step(read, wiring, index, step, configs.get(step.model_name), config, missing)
    _ends(read, wiring, config)
    return wiring.remarks


def edges(config: ModelConfig) -> list[dict[str, str]]:
    """The ensemble as a graph: {from, to, tensor}, with `input` and `output` as its two ends."""
    sources: dict[str, str] = {tensor.name: "input" for tensor in config.input}
    for step in config.ensemble_scheduling.step:
        for tensor in step.output_map.values():
            sources[tensor] = step.model_name
    found = [
        {"from": sources.get(tensor, ""), "to": step.model_name, "tensor": tensor}
        for step in config.ensemble_scheduling.step
        for tensor in step.input_map.values()
    ]
    outputs = [
        {"from": sources.get(tensor.name, ""), "to": "output", "tensor": tensor.name}
        for tensor in config.output
    ]
    return [edge for edge in [*found, *outputs] if edge["from"]]


def _step(
    read: ReadConfig,
    wiring: _Wiring,
    index: int,
    step: Any,
    model: ModelConfig | None,
    ensemble: ModelConfig,
    missing: dict[str, Any],
) -> None:
    where = f"step[{index}] {step.model_name}"
    inputs = {tensor.name: tensor for tensor in model.input} if model is not None else {}
    outputs = {tensor.name: tensor for tensor in model.output} if model is not None else {}
    for key, tensor in step.input_map.items():
        end = _end(step.model_name, inputs[key], model) if key in inputs and model else None
        wiring.readers.setdefault(tensor, []).append(end or _End(step.model_name, key, 0, ()))
        if inputs and key not in inputs:
            wiring.remarks.append(_no_tensor(read, where, "input", key, tensor, step.model_name, inputs))
    for key, tensor in step.output_map.items():
        end = _end(step.model_name, outputs[key], model) if key in outputs and model else None
        if tensor in wiring.written:
            wiring.remarks.append(_written_twice(read, where, tensor, wiring.written[tensor].owner))
        wiring.written[tensor] = end or _End(step.model_name, key, 0, ())
        if outputs and key not in outputs:
            wiring.remarks.append(_no_tensor(read, where, "output", key, tensor, step.model_name, outputs))
    wiring.remarks += _unmapped(read, where, step, inputs)
    if model is not None and ensemble.max_batch_size > model.max_batch_size:
        wiring.remarks.append(_too_large(read, where, step.model_name, ensemble, model))


def _unmapped(read: ReadConfig, where: str, step: Any, inputs: Mapping[str, Any]) -> Iterator[Remark]:
    absent = [name for name in inputs if name not in step.input_map]
    required = [name for name in absent if not inputs[name].optional]
    optional = [name for name in absent if inputs[name].optional]
    for name in required:
        message = (
            f"The input {name} of {step.model_name} is required and not mapped: the ensemble does not load."
        )
        remedy = f'Add input_map {{ key: "{name}" value: "TENSOR" }} to {where}.'
        facts = {"input": name, "step": where, "missing_required": required, "missing_optional_ok": optional}
        yield _remark(read, "ensemble_input_missing", "error", where, message, remedy, facts)


def _ends(read: ReadConfig, wiring: _Wiring, config: ModelConfig) -> None:
    outputs = {tensor.name: tensor for tensor in config.output}
    for tensor, readers in wiring.readers.items():
        writer = wiring.written.get(tensor)
        if writer is None:
            wiring.remarks.append(_not_written(read, tensor, readers))
            continue
        wiring.remarks += [remark for reader in readers for remark in _fits(read, tensor, writer, reader)]
    for name, output in outputs.items():
        if name not in wiring.written:
            message = f"No step writes the ensemble's output {name}."
            remedy = f'Add output_map {{ key: "OUTPUT" value: "{name}" }} to the step that makes it.'
            wiring.remarks.append(
                _remark(read, "ensemble_output_not_written", "error", name, message, remedy, {"tensor": name})
            )
        else:
            wiring.remarks += _fits(read, name, wiring.written[name], _end("ensemble", output, config))
    for name, writer in wiring.written.items():
        if name not in wiring.readers and name not in outputs:
            what = "input" if writer.owner.startswith("ensemble input") else "tensor"
            message = f"Nothing uses the ensemble's {what} {name}; Triton refuses that."
            remedy = "Remove it, or map it to the input that was meant."
            wiring.remarks.append(
                _remark(read, "ensemble_tensor_unused", "error", name, message, remedy, {"tensor": name})
            )


def _fits(read: ReadConfig, tensor: str, writer: _End, reader: _End) -> Iterator[Remark]:
    if not writer.data_type or not reader.data_type:
        return
    if writer.data_type != reader.data_type:
        a, b = DataType.Name(writer.data_type), DataType.Name(reader.data_type)
        message = f"{tensor} is {a} from {writer.owner} and {b} at {reader.owner}."
        facts = {"tensor": tensor, "types": [a, b]}
        yield _remark(
            read, "ensemble_type_differs", "error", tensor, message, "Give both ends one data_type.", facts
        )
    elif not _compatible(writer.dims, reader.dims):
        message = (
            f"{tensor} has the shape {list(writer.dims)} from {writer.owner} and {list(reader.dims)} at "
            f"{reader.owner} (batch dimension included)."
        )
        facts = {"tensor": tensor, "shapes": [list(writer.dims), list(reader.dims)]}
        yield _remark(
            read,
            "ensemble_shape_differs",
            "error",
            tensor,
            message,
            "Give both ends equal dims, or -1 where they vary.",
            facts,
        )


def _compatible(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    return len(one) == len(other) and all(
        -1 in pair or pair[0] == pair[1] for pair in zip(one, other, strict=True)
    )


def _end(owner: str, tensor: Any, config: ModelConfig) -> _End:
    batch = (-1,) if config.max_batch_size > 0 else ()
    return _End(owner, tensor.name, tensor.data_type, (*batch, *tensor.dims))


def _no_model(read: ReadConfig, index: int, name: str) -> Remark:
    message = f"Step {index} names the model {name}, and the repository has no such folder."
    return _remark(
        read,
        "ensemble_model_missing",
        "error",
        f"step[{index}]",
        message,
        "Correct model_name, or add the model's folder.",
        {"model_name": name},
    )


def _no_tensor(
    read: ReadConfig, where: str, side: str, key: str, tensor: str, model: str, have: Mapping[str, Any]
) -> Remark:
    message = f"{model} has no {side} {key} (mapped to {tensor})."
    remedy = f"Its {side}s are: {', '.join(have)}."
    facts = {side: key, "tensor": tensor}
    return _remark(read, f"ensemble_unknown_{side}", "error", where, message, remedy, facts)


def _written_twice(read: ReadConfig, where: str, tensor: str, first: str) -> Remark:
    message = f"{tensor} is written by {where} and already by {first}."
    return _remark(
        read,
        "ensemble_tensor_written_twice",
        "error",
        where,
        message,
        "Rename one of the two.",
        {"tensor": tensor},
    )


def _not_written(read: ReadConfig, tensor: str, readers: list[_End]) -> Remark:
    who = ", ".join(f"{reader.owner}.{reader.tensor}" for reader in readers)
    message = (
        f"{who} reads {tensor}, and no step or input writes it; what depends on it is not written either."
    )
    remedy = f"Write {tensor} with an output_map entry, or map the input to a tensor that exists."
    return _remark(
        read, "ensemble_tensor_not_written", "error", tensor, message, remedy, {"unwritten": tensor}
    )


def _too_large(read: ReadConfig, where: str, name: str, ensemble: ModelConfig, model: ModelConfig) -> Remark:
    message = (
        f"The ensemble allows batches of {ensemble.max_batch_size}, its step {name} only {model.max_batch_size}: "
        "it does not load."
    )
    facts = {"ensemble": ensemble.max_batch_size, "step": model.max_batch_size}
    return _remark(
        read, "ensemble_batch_size", "error", where, message, "Give both the same max_batch_size.", facts
    )


def _remark(
    read: ReadConfig, id: str, severity: Any, where: str, message: str, remedy: str, facts: Mapping[str, Any]
) -> Remark:
    line = next((node.line for node in read.nodes if node.name == "ensemble_scheduling"), 1)
    return Remark(id, severity, read.model, at(read.file, line, where), message, remedy, facts)
