"""Triton's model configuration, only through its protobuf message: composed as data, rendered, parsed, checked.

Source of the rules: Triton core's model configuration validation (2.73) and its directory rules.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import (
    TYPE_INVALID,
    DataType,
    ModelConfig,
    ModelInput,
    ModelInstanceGroup,
    ModelOutput,
    ModelQueuePolicy,
)

from apps.core.exceptions import Finding, InvalidInput
from apps.serving.domain import model_rules, server_release
from apps.serving.domain.server_release import Release

__all__ = ["DataType", "ModelConfig", "ModelInput", "ModelInstanceGroup", "ModelOutput", "ModelQueuePolicy"]

FILE_NAME = "config.pbtxt"
MODEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z")
VERSION = re.compile(r"[1-9][0-9]{0,8}\Z")
# Folders of a model directory that Triton does not read as versions.
NOT_A_MODEL = frozenset({"warmup", "configs", "initial_state"})


class PbtxtError(InvalidInput):
    """The text is no model configuration. `line` and `column` count from 1; 0 where protobuf names no place."""

    def __init__(self, where: str, line: int, column: int, detail: str) -> None:
        place = f"{where}:{line}:{column}" if line else where
        super().__init__(
            "config_unreadable",
            f"{place}: {detail}",
            field=where,
            remedy="Correct the file: field names and value forms are those of Triton's ModelConfig message.",
            facts={"line": line, "column": column, "detail": detail},
        )
        self.line = line
        self.column = column
        self.detail = detail


def parse(text: str, where: str = FILE_NAME) -> ModelConfig:
    """Read the text form. Raises PbtxtError naming line and column."""
    config = ModelConfig()
    try:
        text_format.Parse(text, config)
    except text_format.ParseError as error:
        line, column = error.GetLine() or 0, error.GetColumn() or 0
        detail = re.sub(r"^\d+:\d+ : ", "", str(error)).strip()
        raise PbtxtError(where, line, column, detail) from error
    return config


def render(config: ModelConfig) -> str:
    """Write the text form and read it back, so that what is written is what Triton will read."""
    text = text_format.MessageToString(config)
    if parse(text) != config:
        raise AssertionError("the text form of a model configuration lost something")
    return text


def set_parameters(config: ModelConfig, values: dict[str, str]) -> None:
    """Set string parameters, the form in which Triton hands settings to a backend."""
    for key, value in values.items():
        config.parameters[key].string_value = value


def parameters(config: ModelConfig) -> dict[str, str]:
    """The string parameters."""
    return {key: value.string_value for key, value in config.parameters.items()}


def check_model_name(name: str) -> str:
    """Return the name of a model directory, or raise InvalidInput."""
    if not MODEL_NAME.match(name) or name in NOT_A_MODEL or ".." in name:
        raise InvalidInput(
            "model_name",
            f"{name!r} cannot name a model in Triton.",
            field="name",
            remedy="Use letters, digits, dots, dashes and underscores; begin with a letter or digit.",
        )
    return name


def check_version(version: str) -> str:
    """Return the name of a version directory, or raise InvalidInput. `1.bak` would be read as version 1."""
    if not VERSION.match(version):
        raise InvalidInput(
            "model_version",
            f"{version!r} is no version: Triton reads the digits at its beginning.",
            field="version",
            remedy="Use a whole number from 1 on, without leading zeros.",
        )
    return version


def findings(
    config: ModelConfig, directory: str | None = None, release: Release | None = None
) -> list[Finding]:
    """What Triton would refuse in a configuration, and what it would silently do otherwise than written.

    `directory` is the name of the model's folder; `release` that of the server, null for the newest one that we know.
    The checks mirror Triton's own, in its order.
    """
    found = [*_general(config, directory), *_tensors(config), *_batching(config), *_groups(config)]
    if config.response_cache.enable and config.model_transaction_policy.decoupled:
        message = "The response cache does not work with decoupled responses."
        found.append(
            Finding("cache_with_decoupled", "error", message, "response_cache", "Remove response_cache.")
        )
    for field in ("model_operations", "model_repository_agents"):
        if config.HasField(field):
            message = f"{field} loads a shared library into the server."
            found.append(Finding("loads_library", "error", message, field, f"Remove {field}."))
    return [*found, *model_rules.findings(config), *server_release.findings(config, release)]


def _general(config: ModelConfig, directory: str | None) -> Iterator[Finding]:
    if directory is not None and config.name and config.name != directory:
        message = f"The folder is named {directory}, the model {config.name}: Triton refuses that."
        yield Finding("name_directory_mismatch", "error", message, "name", "Give both the same name.")
    if not config.backend and not config.platform:
        message = "Neither backend nor platform is set; Triton guesses from the name of the model's file."
        yield Finding("no_backend", "warning", message, "backend", "Set backend.")
    if config.max_batch_size < 0:
        message = f"max_batch_size is {config.max_batch_size}."
        yield Finding("negative_batch_size", "error", message, "max_batch_size", "Use 0 or more.")
    policy = config.version_policy
    if policy.WhichOneof("policy_choice") == "specific" and not policy.specific.versions:
        message = "specific without versions selects no version at all."
        yield Finding("no_version_selected", "error", message, "version_policy", "Name versions.")
    if policy.WhichOneof("policy_choice") == "latest" and policy.latest.num_versions == 0:
        message = "latest without num_versions selects no version at all."
        yield Finding("no_version_selected", "error", message, "version_policy", "Set num_versions: 1.")


def _tensors(config: ModelConfig) -> Iterator[Finding]:
    for kind, tensors in (("input", config.input), ("output", config.output)):
        seen: set[str] = set()
        for index, tensor in enumerate(tensors):
            where = f"{kind}[{index}]"
            if not tensor.name:
                yield Finding("tensor_without_name", "error", f"An {kind} has no name.", where, "Set name.")
            if tensor.name in seen:
                message = f"The {kind} {tensor.name} appears twice."
                yield Finding("tensor_twice", "error", message, where, "Remove one of them.")
            seen.add(tensor.name)
            if tensor.data_type == TYPE_INVALID:
                message = f"The {kind} {tensor.name} has no data_type."
                yield Finding("tensor_without_type", "error", message, where, "Set data_type.")
            if not tensor.dims:
                message = f"The {kind} {tensor.name} has no dims."
                yield Finding("tensor_without_dims", "error", message, where, "Set dims, without the batch.")
            if any(size < 1 and size != -1 for size in tensor.dims):
                message = f"The {kind} {tensor.name} has a dimension that is neither 1 or more nor -1."
                yield Finding("tensor_dims", "error", message, where, "Use -1 for a variable dimension.")


def _batching(config: ModelConfig) -> Iterator[Finding]:
    if config.WhichOneof("scheduling_choice") != "dynamic_batching":
        return
    batching = config.dynamic_batching
    where = "dynamic_batching"
    for size in batching.preferred_batch_size:
        if not 0 < size <= config.max_batch_size:
            message = f"The preferred batch size {size} is not between 1 and max_batch_size."
            yield Finding("preferred_batch_size", "error", message, where, "Leave preferred_batch_size out.")
    levels = batching.priority_levels
    if levels and not 1 <= batching.default_priority_level <= levels:
        message = f"default_priority_level must be from 1 to {levels}."
        yield Finding("default_priority_level", "error", message, where, "Set default_priority_level.")
    if not levels and batching.priority_queue_policy:
        message = "priority_queue_policy does nothing without priority_levels."
        yield Finding("priority_without_levels", "warning", message, where, "Set priority_levels.")
    if any(not 1 <= key <= levels for key in batching.priority_queue_policy) and levels:
        message = f"A priority_queue_policy names a level that is not from 1 to {levels}."
        yield Finding("priority_level", "error", message, where, "Correct the key.")
    if batching.preserve_ordering and levels > 1:
        message = "preserve_ordering allows one priority level only."
        yield Finding("ordering_with_priorities", "error", message, where, "Drop one of the two.")


def _groups(config: ModelConfig) -> Iterator[Finding]:
    for index, group in enumerate(config.instance_group):
        where = f"instance_group[{index}]"
        kind = ModelInstanceGroup.Kind.Name(group.kind)
        if group.gpus and kind in ("KIND_CPU", "KIND_MODEL"):
            message = f"{kind} with gpus is refused."
            yield Finding("gpus_with_kind", "error", message, where, "Remove gpus, or use KIND_GPU.")
        if group.count < 1:
            message = f"count {group.count} is silently replaced by the default."
            yield Finding("group_count", "warning", message, where, "Set count: 1.")
        if any(not profile.isdigit() for profile in group.profile):
            yield Finding("group_profile", "error", "A profile is not a number.", where, "Use its number.")
        elif group.profile and "tensorrt" not in (config.backend, config.platform.split("_")[0]):
            message = "Profiles are those of TensorRT models alone."
            yield Finding("group_profile", "error", message, where, "Remove profile.")
        shared = {item.name for item in group.rate_limiter.resources if getattr(item, "global")}
        own = {item.name for item in group.rate_limiter.resources if not getattr(item, "global")}
        for name in sorted(shared & own):
            message = (
                f"The resource {name} is both global and of a device; with a rate limit that is refused."
            )
            yield Finding("resource_twice", "warning", message, where, "Give one of them another name.")
