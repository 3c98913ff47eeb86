"""The checkpoint recipe: the llmapi model, whose settings are the arguments of `LLM()` in `model.yaml`.

Source: `all_models/llmapi` of 0.19 to 1.x, and the arguments that 1.2 accepts; it refuses every other word.
"""

from __future__ import annotations

from typing import Any

import yaml

from apps.serving.domain import blocks
from apps.serving.domain.trtllm import settings, tensors
from apps.serving.domain.trtllm.spec import RepositorySpec

YAML_NAME = "model.yaml"
_POLICIES = {"guaranteed_no_evict": "GUARANTEED_NO_EVICT", "max_utilization": "MAX_UTILIZATION"}


def model(spec: RepositorySpec) -> blocks.Model:
    """config.pbtxt. `decoupled` stands here too: a server that completes no configuration never reads it there."""
    parameters = {}
    if devices := spec.placement.get("gpu_device_ids"):
        parameters["gpu_device_ids"] = str(devices)
    return blocks.Model(
        spec.name_of(spec.entry),
        backend="python",
        # Batching by Triton is not supported by this model.
        max_batch_size=0,
        input=tuple(_unbatched(item, spec) for item in tensors.LLMAPI_INPUTS if item.is_of(spec.release)),
        output=tuple(
            item.as_output(spec.types) for item in tensors.LLMAPI_OUTPUTS if item.is_of(spec.release)
        ),
        instance_group=(blocks.InstanceGroup("KIND_CPU", spec.instances.engine),),
        model_transaction_policy=blocks.TransactionPolicy(spec.decoupled),
        version_policy=blocks.VersionPolicy(latest=blocks.Latest(1)),
        parameters=parameters,
    )


def _unbatched(item: tensors.Tensor, spec: RepositorySpec) -> blocks.Input:
    return blocks.Input(item.name, item.data_type(spec.types), item.dims, optional=not item.needed)


def arguments(spec: RepositorySpec) -> dict[str, Any]:
    """The arguments of `LLM()` and `triton_config`, in the order in which the file has them."""
    found: dict[str, Any] = {
        "model": spec.model,
        "tokenizer": spec.placement.get("tokenizer_dir") or spec.tokenizer or spec.model,
        "tensor_parallel_size": spec.parallel.tp,
        "pipeline_parallel_size": spec.parallel.pp,
        "max_batch_size": spec.max_batch_size,
    }
    if spec.max_seq_len is not None:
        found["max_seq_len"] = spec.max_seq_len
    for key, item in settings.PROFILE.items():
        if key in spec.settings and item.yaml:
            _put(found, item.yaml, _value(key, spec.settings[key]))
    found["triton_config"] = {"max_batch_size": 0, "decoupled": spec.decoupled}
    if spec.release >= (1, 0):
        period = spec.settings.get("cancellation_check_period_ms", 100)
        found["triton_config"]["cancellation_check_period_ms"] = period
    return found


def _value(key: str, value: Any) -> Any:
    if key == "max_attention_window_size":
        return [int(part) for part in value.split(",")]
    return _POLICIES.get(value, value) if key == "batch_scheduler_policy" else value


def _put(target: dict[str, Any], path: str, value: Any) -> None:
    *folders, last = path.split(".")
    for folder in folders:
        target = target.setdefault(folder, {})
    target[last] = value


def yaml_text(spec: RepositorySpec) -> str:
    """`model.yaml`."""
    text: str = yaml.safe_dump(arguments(spec), sort_keys=False, allow_unicode=True)
    return text


def ignored_settings(spec: RepositorySpec) -> tuple[str, ...]:
    """Settings that this model has no argument for."""
    own = {"cancellation_check_period_ms"}
    return tuple(key for key in spec.settings if not settings.PROFILE[key].yaml and key not in own)
