"""Server rules beyond the common ones: ensembles, sequence batching, tensors' reshapes, warm-up, cache, metrics.

Source of the rules: Triton core's model_config_utils.cc and ensemble_utils.cc.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tritonclient.grpc.model_config_pb2 import DataType, ModelConfig, ModelDynamicBatching, ModelQueuePolicy

from apps.core.exceptions import Finding

# What Triton's own platforms are called; any other word is refused.
PLATFORMS = frozenset(
    {
        "ensemble",
        "tensorrt_plan",
        "tensorflow_graphdef",
        "tensorflow_savedmodel",
        "onnxruntime_onnx",
        "pytorch_libtorch",
    }
)
HISTOGRAM = "nv_inference_first_response_histogram_ms"
_CORRELATION = {"TYPE_UINT64", "TYPE_INT64", "TYPE_UINT32", "TYPE_INT32", "TYPE_STRING"}


def findings(config: ModelConfig) -> list[Finding]:
    """What the server would refuse, in the words of the field that is to be changed."""
    found = [*_tensors(config), *_queue_policies(config), *_cache(config), *_metrics(config)]
    if config.platform and config.platform not in PLATFORMS:
        message = f"There is no platform {config.platform}."
        found.append(Finding("unknown_platform", "error", message, "platform", "Set backend in its place."))
    if config.platform == "ensemble" or config.WhichOneof("scheduling_choice") == "ensemble_scheduling":
        found += _ensemble(config)
    if config.WhichOneof("scheduling_choice") == "sequence_batching":
        found += _sequence(config)
    return found + list(_warmup(config))


def _ensemble(config: ModelConfig) -> Iterator[Finding]:
    if config.platform != "ensemble":
        message = "ensemble_scheduling needs the platform ensemble."
        yield Finding("ensemble_platform", "error", message, "platform", 'Write platform: "ensemble".')
        return
    if config.backend:
        message = f"An ensemble has no backend, and this one has {config.backend}."
        yield Finding("ensemble_backend", "error", message, "backend", "Remove backend.")
    if config.WhichOneof("scheduling_choice") != "ensemble_scheduling":
        message = "The platform ensemble needs ensemble_scheduling."
        yield Finding("ensemble_without_steps", "error", message, "ensemble_scheduling", "Add its steps.")
        return
    for field in ("instance_group", "model_warmup"):
        if getattr(config, field):
            message = f"An ensemble computes nothing itself, so {field} is refused."
            yield Finding("ensemble_setting", "error", message, field, f"Remove {field}.")
    if config.HasField("optimization"):
        message = "An ensemble computes nothing itself, so optimization is refused."
        yield Finding("ensemble_setting", "error", message, "optimization", "Remove optimization.")
    if not config.ensemble_scheduling.step:
        message = "The ensemble has no step."
        yield Finding("ensemble_without_steps", "error", message, "ensemble_scheduling", "Add its steps.")
    for index, step in enumerate(config.ensemble_scheduling.step):
        for field, value in (
            ("model_name", step.model_name),
            ("input_map", step.input_map),
            ("output_map", step.output_map),
        ):
            if not value:
                message = f"Step {index} has no {field}."
                where = f"ensemble_scheduling.step[{index}]"
                yield Finding("ensemble_step_incomplete", "error", message, where, f"Add {field}.")
        yield from _mapped_twice(index, step)


def _mapped_twice(index: int, step: Any) -> Iterator[Finding]:
    tensors = list(step.output_map.values())
    for tensor in sorted({tensor for tensor in tensors if tensors.count(tensor) > 1}):
        message = f"Step {index} writes the ensemble tensor {tensor} from two of its outputs."
        where = f"ensemble_scheduling.step[{index}].output_map"
        yield Finding("ensemble_tensor_twice", "error", message, where, "Give each output its own tensor.")


def _tensors(config: ModelConfig) -> Iterator[Finding]:
    for kind, tensors in (("input", config.input), ("output", config.output)):
        for index, tensor in enumerate(tensors):
            if tensor.HasField("reshape"):
                yield from _reshape(config, kind, index, tensor)
        for index, tensor in enumerate(tensors):
            if tensor.is_shape_tensor and config.platform != "tensorrt_plan" and config.backend != "tensorrt":
                where = f"{kind}[{index}].is_shape_tensor"
                message = "Shape tensors are for TensorRT models alone."
                yield Finding("shape_tensor", "error", message, where, "Remove is_shape_tensor.")
    for index, tensor in enumerate(config.input):
        if tensor.format != 0 and len(tensor.dims) != 3:
            message = f"The format of {tensor.name} needs three dims."
            yield Finding("tensor_format", "error", message, f"input[{index}].format", "Remove format.")


def _reshape(config: ModelConfig, kind: str, index: int, tensor: Any) -> Iterator[Finding]:
    where = f"{kind}[{index}].reshape"
    shape = list(tensor.reshape.shape)
    if any(size < 1 and size != -1 for size in shape):
        message = f"The reshape of {tensor.name} has a dimension that is neither 1 or more nor -1."
        yield Finding("tensor_reshape", "error", message, where, "Use -1 for a variable dimension.")
        return
    if not shape and config.max_batch_size == 0:
        message = f"{tensor.name} is reshaped to a scalar, which needs a batch dimension."
        yield Finding("tensor_reshape", "error", message, where, "Set max_batch_size to 1 or more.")
    if _variable(shape) != _variable(tensor.dims):
        message = f"The reshape of {tensor.name} has another number of variable dimensions than its dims."
        yield Finding("tensor_reshape", "error", message, where, "Keep each -1.")
    elif _variable(shape) == 0 and _product(shape) != _product(tensor.dims):
        message = f"The reshape of {tensor.name} has another number of elements than its dims."
        yield Finding("tensor_reshape", "error", message, where, "Keep the product of the dims.")


def _variable(dims: Any) -> int:
    return sum(1 for size in dims if size == -1)


def _product(dims: Any) -> int:
    product = 1
    for size in dims:
        product *= size
    return product


def _queue_policies(config: ModelConfig) -> Iterator[Finding]:
    if config.WhichOneof("scheduling_choice") != "dynamic_batching":
        return
    batching: ModelDynamicBatching = config.dynamic_batching
    policies = [("default_queue_policy", batching.default_queue_policy)]
    policies += [
        (f"priority_queue_policy[{level}]", policy)
        for level, policy in sorted(batching.priority_queue_policy.items())
    ]
    for name, policy in policies:
        where = f"dynamic_batching.{name}"
        if (
            batching.preserve_ordering
            and policy.timeout_action == ModelQueuePolicy.DELAY
            and policy.default_timeout_microseconds
        ):
            message = "preserve_ordering excludes a timeout that moves requests back (DELAY)."
            yield Finding("ordering_with_delay", "error", message, where, "Use REJECT, or no ordering.")
        if policy.allow_timeout_override and not policy.default_timeout_microseconds:
            message = "Without a default timeout the timeout of a request is ignored."
            yield Finding(
                "override_without_timeout", "warning", message, where, "Set default_timeout_microseconds."
            )
    if config.max_batch_size == 0 and batching.max_queue_delay_microseconds:
        message = "With max_batch_size 0 nothing is ever combined; the delay does nothing."
        yield Finding(
            "delay_without_batching",
            "warning",
            message,
            "dynamic_batching.max_queue_delay_microseconds",
            "Remove it, or set max_batch_size.",
        )


def _cache(config: ModelConfig) -> Iterator[Finding]:
    if config.response_cache.enable and config.WhichOneof("scheduling_choice") == "sequence_batching":
        message = "The response cache does not work with sequence batching."
        yield Finding("cache_with_sequences", "error", message, "response_cache", "Remove response_cache.")


def _metrics(config: ModelConfig) -> Iterator[Finding]:
    for index, control in enumerate(config.model_metrics.metric_control):
        where = f"model_metrics.metric_control[{index}]"
        if not control.metric_identifier.family:
            yield Finding("metric_control", "error", "It names no metric family.", where, "Set family.")
        elif control.metric_identifier.family != HISTOGRAM:
            message = f"Only {HISTOGRAM} can be set; {control.metric_identifier.family} is ignored."
            yield Finding("metric_control_ignored", "warning", message, where, "Remove it.")
        if not control.histogram_options.buckets:
            yield Finding("metric_control", "error", "It has no buckets.", where, "Set buckets.")


def _warmup(config: ModelConfig) -> Iterator[Finding]:
    types = {tensor.name: tensor.data_type for tensor in config.input}
    needed = {tensor.name for tensor in config.input if not tensor.optional}
    for index, sample in enumerate(config.model_warmup):
        where = f"model_warmup[{index}]"
        if sample.batch_size == 0:
            message = "A warm-up with batch_size 0 is skipped."
            yield Finding("warmup_skipped", "warning", message, where, "Set batch_size: 1.")
            continue
        if config.max_batch_size and sample.batch_size > config.max_batch_size:
            # 24.10 may even die of it, and every model of the server with it.
            message = f"The warm-up of {sample.batch_size} requests is over max_batch_size."
            yield Finding("warmup_size", "error", message, where, f"At most {config.max_batch_size}.")
        for name in sorted((needed - sample.inputs.keys()) if types else ()):
            message = f"The warm-up has no {name}, which the model needs."
            yield Finding("warmup_input", "error", message, where, f'Add inputs {{ key: "{name}" }}.')
        for name, data in sorted(sample.inputs.items()):
            yield from _warmup_input(name, data, types, where)


def _warmup_input(name: str, data: Any, types: dict[str, int], where: str) -> Iterator[Finding]:
    if any(size < 1 for size in data.dims):
        message = f"The warm-up input {name} needs every dimension as a number."
        yield Finding("warmup_dims", "error", message, where, "Give the dims that are sent.")
    if types and name not in types:
        message = f"The warm-up has {name}, which is no input of the model."
        yield Finding("warmup_input", "error", message, where, "Remove it.")
    elif types and data.data_type != types[name]:
        message = f"The warm-up input {name} has another type than the model's."
        yield Finding("warmup_type", "error", message, where, f"Use {DataType.Name(types[name])}.")
    if data.WhichOneof("input_data_type") is None:
        message = f"The warm-up input {name} has no data."
        yield Finding("warmup_data", "error", message, where, "Set zero_data: true.")


def _sequence(config: ModelConfig) -> Iterator[Finding]:
    batching = config.sequence_batching
    where = "sequence_batching"
    for size in batching.oldest.preferred_batch_size:
        if not 0 < size <= config.max_batch_size:
            message = f"The preferred batch size {size} is not between 1 and max_batch_size."
            yield Finding("preferred_batch_size", "error", message, where, "Leave it out.")
    if not 0 <= batching.direct.minimum_slot_utilization <= 1:
        message = "minimum_slot_utilization must be from 0 to 1."
        yield Finding("slot_utilization", "error", message, where, "Use a share from 0 to 1.")
    for index, state in enumerate(batching.state):
        if len(state.initial_state) > 1:
            message = f"The state {state.input_name} begins in two ways."
            place = f"{where}.state[{index}]"
            yield Finding("initial_state_twice", "error", message, place, "Keep one initial_state.")
    kinds: list[int] = []
    names: list[str] = []
    for index, tensor in enumerate(batching.control_input):
        place = f"{where}.control_input[{index}]"
        names += [tensor.name] * len(tensor.control)
        if tensor.name and names.count(tensor.name) > 1:
            message = f"The control tensor {tensor.name} says two things."
            yield Finding("control_name_twice", "error", message, place, "Use a tensor for each control.")
        if not tensor.name:
            yield Finding(
                "control_without_name", "error", "A control tensor has no name.", place, "Set name."
            )
        for control in tensor.control:
            yield from _control(control, place, kinds)
            kinds.append(control.kind)


def _control(control: Any, where: str, seen: list[int]) -> Iterator[Finding]:
    kind = control.Kind.Name(control.kind)
    if control.kind in seen:
        message = f"Two control tensors are for {kind}."
        yield Finding("control_twice", "error", message, where, "Keep one.")
    if kind == "CONTROL_SEQUENCE_CORRID":
        if DataType.Name(control.data_type) not in _CORRELATION:
            message = "A correlation id is a whole number or a string."
            yield Finding("control_type", "error", message, where, "Set data_type: TYPE_UINT64.")
        if control.int32_false_true or control.fp32_false_true or control.bool_false_true:
            message = "A correlation id has no values for false and true."
            yield Finding("control_values", "error", message, where, "Remove them.")
        return
    given = [
        values
        for values in (control.int32_false_true, control.fp32_false_true, control.bool_false_true)
        if len(values)
    ]
    if len(given) != 1 or len(given[0]) != 2:
        message = f"{kind} needs exactly one pair of values for false and true."
        yield Finding("control_values", "error", message, where, "Set int32_false_true: [ 0, 1 ].")
