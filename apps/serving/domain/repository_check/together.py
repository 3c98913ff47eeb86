"""What models of one repository must agree on, and settings that do nothing where they stand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tritonclient.grpc.model_config_pb2 import ModelInstanceGroup

from apps.serving.domain.repository_check.findings import Remark, at
from apps.serving.domain.repository_check.one_config import ReadConfig
from apps.serving.domain.repository_check.parameters import given

# The models of one request's way; their batch limits belong together.
_PIPELINE = ("preprocessing", "tensorrt_llm", "postprocessing", "tensorrt_llm_bls", "ensemble")


def check_together(reads: Mapping[str, ReadConfig], kinds: Mapping[str, str]) -> Iterator[Remark]:
    """Remarks about models against each other. Both mappings are by folder."""
    understood = {name: read for name, read in reads.items() if read.config is not None}
    yield from _decoupled(understood, kinds)
    yield from _batch_sizes(understood, kinds)
    for name, read in understood.items():
        if kinds[name] == "tensorrt_llm_bls":
            yield from _bls(read, understood)


def check_alone(read: ReadConfig, kind: str) -> Iterator[Remark]:
    """Settings of one model that do nothing, or not what they seem to do."""
    if read.config is None:
        return
    if kind in ("tensorrt_llm", "llmapi"):
        yield from _queue_settings(read)
    if kind == "tensorrt_llm":
        yield from _placement(read)
    if kind in ("tensorrt_llm", "llmapi"):
        yield from _device_sets(read)
    if read.config.backend == "python" and not read.config.instance_group:
        message = "There is no instance_group: on a host with several GPUs Triton starts one copy for each."
        remedy = "Write instance_group [ { count: 1 kind: KIND_CPU } ]."
        yield Remark("instance_group_missing", "info", read.model, read.file, message, remedy)
    if read.config.response_cache.enable and kind in ("tensorrt_llm", "llmapi", "tensorrt_llm_bls", "vllm"):
        message = (
            "The response cache compares inputs alone: requests that differ in parameters get one answer."
        )
        yield Remark(
            "response_cache_generative", "warning", read.model, read.file, message, "Remove response_cache."
        )


def _decoupled(reads: Mapping[str, ReadConfig], kinds: Mapping[str, str]) -> Iterator[Remark]:
    flags = {
        name: _config(read).model_transaction_policy.decoupled
        for name, read in reads.items()
        if kinds[name] in ("tensorrt_llm", "tensorrt_llm_bls")
    }
    engines = {name: flag for name, flag in flags.items() if kinds[name] == "tensorrt_llm"}
    for name, flag in flags.items():
        if kinds[name] != "tensorrt_llm_bls" or not engines or flag in engines.values():
            continue
        other = ", ".join(engines)
        message = f"{name} has decoupled: {str(flag).lower()}, {other} has {str(not flag).lower()}."
        remedy = "Give both the same model_transaction_policy: true to stream."
        facts = {"decoupled": dict(flags)}
        yield Remark("decoupled_differs", "error", name, reads[name].file, message, remedy, facts)
    for name, read in reads.items():
        if kinds[name] == "ensemble" and _config(read).model_transaction_policy.decoupled:
            message = "An ensemble streams where one of its steps does; its own decoupled flag does nothing."
            yield Remark("decoupled_on_ensemble", "warning", name, read.file, message, "Remove it.")


def _batch_sizes(reads: Mapping[str, ReadConfig], kinds: Mapping[str, str]) -> Iterator[Remark]:
    sizes = {name: _config(read).max_batch_size for name, read in reads.items() if kinds[name] in _PIPELINE}
    if len(set(sizes.values())) > 1 and len(sizes) > 2:
        listed = ", ".join(f"{name} {size}" for name, size in sizes.items())
        message = f"The models have different batch limits: {listed}. The smallest one decides."
        remedy = "Write the same max_batch_size into all of them."
        yield Remark("batch_sizes_differ", "warning", "", "max_batch_size", message, remedy, {"sizes": sizes})


def _bls(read: ReadConfig, reads: Mapping[str, ReadConfig]) -> Iterator[Remark]:
    for key in ("tensorrt_llm_model_name", "tensorrt_llm_draft_model_name", "multimodal_encoders_name"):
        named = given(read, key)
        if named and named not in reads:
            message = f"{key} names {named}, and the repository has no such model."
            facts = {"key": key, "model_name": named}
            remedy = f"Write one of: {', '.join(sorted(reads))}."
            yield Remark("bls_model_missing", "error", read.model, read.file, message, remedy, facts)
    groups = _config(read).instance_group
    count = sum(max(1, group.count) for group in groups) if groups else 1
    if count == 1 and _config(read).max_batch_size != 1:
        message = "One BLS instance handles one request at a time, so nothing is batched behind it."
        remedy = "Set the count of its instance_group to the engine's batch size."
        yield Remark("bls_instances", "warning", read.model, read.file, message, remedy, {"count": count})


def _queue_settings(read: ReadConfig) -> Iterator[Remark]:
    config = _config(read)
    if config.WhichOneof("scheduling_choice") != "dynamic_batching":
        return
    batching = config.dynamic_batching
    set_here = [
        field.name
        for field, value in batching.ListFields()
        if field.name in ("max_queue_delay_microseconds", "priority_levels", "priority_queue_policy")
    ]
    sizes = [size for size in batching.preferred_batch_size if size != config.max_batch_size]
    if sizes:
        set_here.append("preferred_batch_size")
    if not set_here:
        return
    message = (
        f"{', '.join(set_here)} of Triton's queue {'does' if len(set_here) == 1 else 'do'} almost nothing here: the "
        "engine takes requests out of that queue at once and batches by itself."
    )
    remedy = "Bound what waits in the gateway, and batching by the engine's own settings."
    place = at(read.file, next((node.line for node in read.nodes if node.name == "dynamic_batching"), 1))
    yield Remark("queue_setting_idle", "info", read.model, place, message, remedy, {"fields": set_here})


def _placement(read: ReadConfig) -> Iterator[Remark]:
    for index, group in enumerate(_config(read).instance_group):
        kind = ModelInstanceGroup.Kind.Name(group.kind)
        if group.gpus or kind == "KIND_GPU":
            where = f"{read.file}: instance_group[{index}]"
            message = "The C++ backend ignores where instance_group wants its instances."
            remedy = "Keep count: 1 kind: KIND_CPU, and write GPUs into the parameter gpu_device_ids."
            yield Remark("instance_group_ignored", "warning", read.model, where, message, remedy)


def _device_sets(read: ReadConfig) -> Iterator[Remark]:
    named = given(read, "gpu_device_ids")
    count = sum(max(1, group.count) for group in _config(read).instance_group) or 1
    if count > 1 and len(named.split(";")) < count:
        sets = len(named.split(";")) if named else 0
        message = f"There are {count} instances and {sets} sets of GPUs in gpu_device_ids."
        remedy = "Write one set for each instance, with ; between them: 0,1;2,3."
        facts = {"instances": count, "sets": sets}
        yield Remark("device_sets", "error", read.model, read.file, message, remedy, facts)


def _config(read: ReadConfig) -> Any:
    """The message of a model that was understood; check_together and check_alone pass no other."""
    return read.config
