"""Fields that do not exist in Triton's ModelConfig although tutorials and generated files write them.

Keys are the message type and the field as written; values the right form. Checked against model_config.proto.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence

_BATCHING = "ModelDynamicBatching"
_TOP = "ModelConfig"
_GROUP = "ModelInstanceGroup"
_POLICY = "ModelQueuePolicy"
_DELAY = "max_queue_delay_microseconds: 1000  (microseconds: 1 ms is 1000)"
_PARAMETER = 'parameters { key: "NAME" value { string_value: "VALUE" } }'
_QUEUE = "dynamic_batching { default_queue_policy { max_queue_size: 128 } }"
_ENGINE = (
    f"a setting of the engine: in {_PARAMETER}, in model.yaml or model.json, or an input of each request"
)

RIGHT_FORM: dict[tuple[str, str], str] = {
    **dict.fromkeys(
        [
            (_BATCHING, name)
            for name in (
                "delay_ms",
                "max_queue_delay",
                "max_queue_delay_ms",
                "max_queue_delay_us",
                "max_delay_ms",
                "batch_timeout_micros",
                "batch_timeout_ms",
                "timeout_ms",
                "queue_delay",
                "delay_microseconds",
            )
        ],
        _DELAY,
    ),
    (_BATCHING, "preferred_batch_sizes"): "preferred_batch_size: [ 4, 8 ]",
    (_BATCHING, "preferred_sizes"): "preferred_batch_size: [ 4, 8 ]",
    (_BATCHING, "max_batch_size"): "max_batch_size: 8  at the top level of the file",
    (_BATCHING, "batch_size"): "max_batch_size: 8  at the top level of the file",
    (_BATCHING, "max_queue_size"): _QUEUE,
    (_BATCHING, "queue_policy"): "default_queue_policy { ... } inside dynamic_batching",
    (_BATCHING, "model_queue_policy"): "default_queue_policy { ... } inside dynamic_batching",
    (_BATCHING, "priority_policy"): "priority_queue_policy { key: 1 value { ... } } inside dynamic_batching",
    (_BATCHING, "default_priority"): "default_priority_level: 2 inside dynamic_batching",
    (_BATCHING, "timeout_action"): "dynamic_batching { default_queue_policy { timeout_action: REJECT } }",
    (_BATCHING, "allow_timeout_override"): "it belongs inside default_queue_policy { ... }",
    (_BATCHING, "enabled"): "dynamic_batching { }  alone switches it on",
    (_BATCHING, "enable"): "dynamic_batching { }  alone switches it on",
    (_BATCHING, "strategy"): "there is no strategy here; in-flight batching belongs to the engine",
    (_TOP, "model_queue_policy"): _QUEUE,
    (_TOP, "queue_policy"): _QUEUE,
    (_TOP, "default_queue_policy"): _QUEUE,
    (_TOP, "priority_queue_policy"): "priority_queue_policy { key: 1 value { ... } } inside dynamic_batching",
    (_TOP, "priority_levels"): "priority_levels: 2 inside dynamic_batching",
    (_TOP, "preferred_batch_size"): "preferred_batch_size: [ 4, 8 ] inside dynamic_batching",
    (_TOP, "max_queue_delay_microseconds"): f"dynamic_batching {{ {_DELAY} }}",
    (_TOP, "max_queue_size"): _QUEUE,
    (_TOP, "batching"): "dynamic_batching { }",
    (_TOP, "model_parameters"): f"{_PARAMETER}; memory pools are flags of tritonserver",
    (_TOP, "backend_parameters"): _PARAMETER,
    (_TOP, "backend_config"): f"{_PARAMETER}, or --backend-config of tritonserver",
    (_TOP, "parameter"): _PARAMETER,
    (_TOP, "decoupled"): "model_transaction_policy { decoupled: true }",
    (_TOP, "transaction_policy"): "model_transaction_policy { decoupled: true }",
    (
        _TOP,
        "scheduling_choice",
    ): "dynamic_batching { }, sequence_batching { } or ensemble_scheduling { } directly",
    (_TOP, "inputs"): "input [ { ... } ]",
    (_TOP, "outputs"): "output [ { ... } ]",
    (_TOP, "instance_groups"): "instance_group [ { count: 1 kind: KIND_CPU } ]",
    (_TOP, "instances"): "instance_group [ { count: 1 kind: KIND_CPU } ]",
    (_TOP, "ensemble"): 'platform: "ensemble"  and  ensemble_scheduling { step [ ... ] }',
    (_TOP, "model_name"): "name",
    (_TOP, "model_version_policy"): "version_policy { latest { num_versions: 1 } }",
    (_TOP, "rate_limiter"): "instance_group [ { rate_limiter { ... } } ]",
    (_TOP, "warmup"): "model_warmup [ { ... } ]",
    (_TOP, "cache"): "response_cache { enable: true }",
    **dict.fromkeys(
        [
            (_TOP, name)
            for name in (
                "memory_pool",
                "memory_pool_byte_size",
                "cuda_memory_pool",
                "cuda_memory_pool_byte_size",
                "pinned_memory_pool_byte_size",
            )
        ],
        "--cuda-memory-pool-byte-size or --pinned-memory-pool-byte-size of tritonserver",
    ),
    (_TOP, "warm_up"): "model_warmup [ { ... } ]",
    (_TOP, "timeout"): "dynamic_batching { default_queue_policy { default_timeout_microseconds: 1000000 } }",
    (_TOP, "priority"): "priority_levels: 2 inside dynamic_batching",
    (_TOP, "gpus"): "instance_group [ { kind: KIND_GPU gpus: [ 0 ] } ]",
    (_TOP, "count"): "instance_group [ { count: 1 kind: KIND_CPU } ]",
    (_TOP, "streaming"): "model_transaction_policy { decoupled: true }",
    (_TOP, "stream"): "model_transaction_policy { decoupled: true }",
    (_TOP, "kv_cache_config"): _ENGINE,
    (_TOP, "env"): "variables of tritonserver's own environment",
    (_TOP, "environment"): "variables of tritonserver's own environment",
    (_BATCHING, "priorities"): "priority_levels: 2  and  default_priority_level: 2",
    (_BATCHING, "priority_level"): "priority_levels: 2  and  default_priority_level: 2",
    (_BATCHING, "levels"): "priority_levels: 2  and  default_priority_level: 2",
    (_BATCHING, "default_timeout_microseconds"): "it belongs inside default_queue_policy { ... }",
    ("ModelOptimizationPolicy", "cuda_graphs"): "cuda { graphs: true }",
    ("ModelOptimizationPolicy", "cuda_graph"): "cuda { graphs: true }",
    ("ModelOptimizationPolicy", "tensorrt"): (
        'execution_accelerators { gpu_execution_accelerator [ { name: "tensorrt" } ] }'
    ),
    ("ModelEnsembling", "models"): "step [ { ... } ]",
    ("Step", "inputs"): 'input_map { key: "MODEL_INPUT" value: "ENSEMBLE_TENSOR" }',
    ("Step", "outputs"): 'output_map { key: "MODEL_OUTPUT" value: "ENSEMBLE_TENSOR" }',
    ("Step", "input"): 'input_map { key: "MODEL_INPUT" value: "ENSEMBLE_TENSOR" }',
    ("Step", "output"): 'output_map { key: "MODEL_OUTPUT" value: "ENSEMBLE_TENSOR" }',
    ("ModelVersionPolicy", "num_versions"): "version_policy { latest { num_versions: 1 } }",
    ("ModelVersionPolicy", "versions"): "version_policy { specific { versions: [ 1 ] } }",
    **dict.fromkeys(
        [
            (_TOP, name)
            for name in (
                "max_tokens",
                "temperature",
                "top_p",
                "top_k",
                "tensor_parallel_size",
                "pipeline_parallel_size",
                "max_beam_width",
                "kv_cache_free_gpu_mem_fraction",
                "enable_kv_cache_reuse",
                "batching_strategy",
                "engine_dir",
                "tokenizer_dir",
                "gpu_memory_utilization",
                "max_num_tokens",
                "max_seq_len",
            )
        ],
        _ENGINE,
    ),
    (_GROUP, "device"): "gpus: [ 0 ]",
    (_GROUP, "devices"): "gpus: [ 0 ]",
    (_GROUP, "gpu"): "gpus: [ 0 ]",
    (_GROUP, "gpu_ids"): "gpus: [ 0 ]",
    (_GROUP, "device_ids"): "gpus: [ 0 ]",
    (_GROUP, "instances"): "count: 1",
    (_GROUP, "type"): "kind: KIND_GPU",
    (_POLICY, "timeout_microseconds"): "default_timeout_microseconds",
    (_POLICY, "timeout_ms"): "default_timeout_microseconds  (microseconds)",
    (_POLICY, "timeout"): "default_timeout_microseconds  (microseconds)",
    (_POLICY, "priority"): "the level is the key: priority_queue_policy { key: 1 value { ... } }",
    ("ModelResponseCache", "enabled"): "response_cache { enable: true }",
    ("ModelTransactionPolicy", "enabled"): "model_transaction_policy { decoupled: true }",
    ("ModelTransactionPolicy", "streaming"): "model_transaction_policy { decoupled: true }",
    ("ModelInput", "shape"): "dims: [ 1 ]",
    ("ModelInput", "datatype"): "data_type: TYPE_INT32",
    ("ModelInput", "dtype"): "data_type: TYPE_INT32",
    ("ModelInput", "type"): "data_type: TYPE_INT32",
    ("ModelInput", "required"): "an input is required unless it has  optional: true",
    ("ModelOutput", "shape"): "dims: [ 1 ]",
    ("ModelOutput", "datatype"): "data_type: TYPE_INT32",
    ("ModelOutput", "dtype"): "data_type: TYPE_INT32",
    ("ModelOutput", "type"): "data_type: TYPE_INT32",
    ("ModelEnsembling", "steps"): "step [ { ... } ]",
    ("Step", "model"): "model_name",
    ("Step", "name"): "model_name",
    ("Step", "version"): "model_version: -1",
    ("ModelParameter", "value"): 'value { string_value: "VALUE" }',
    ("ModelParameter", "int_value"): "string_value: every parameter is a string",
    ("ModelParameter", "bool_value"): "string_value: every parameter is a string",
}

# Fields that exist, but were written in a form that belongs to no field: (type, field) -> the right form.
RIGHT_VALUE: dict[tuple[str, str], str] = {
    (_BATCHING, "priority_levels"): (
        "priority_levels: 2  and  default_priority_level: 2; what one level has for itself goes into "
        "priority_queue_policy { key: 1 value { max_queue_size: 4 } }"
    ),
    (_BATCHING, "preferred_batch_size"): "preferred_batch_size: [ 4, 8 ]",
    (_TOP, "version_policy"): "version_policy { latest { num_versions: 1 } }",
    ("ModelVersionPolicy", "latest"): "latest { num_versions: 1 }",
    ("ModelVersionPolicy", "specific"): "specific { versions: [ 1, 2 ] }",
    ("ModelVersionPolicy", "all"): "all { }",
    ("PriorityQueuePolicyEntry", "key"): "key: 1  (levels are numbers, 1 is the most urgent)",
    (_TOP, "parameters"): _PARAMETER,
    ("ParametersEntry", "value"): 'value { string_value: "VALUE" }',
    (_TOP, "dynamic_batching"): "dynamic_batching { }",
    (_TOP, "instance_group"): "instance_group [ { count: 1 kind: KIND_CPU } ]",
    (_TOP, "response_cache"): "response_cache { enable: true }",
    (_TOP, "model_transaction_policy"): "model_transaction_policy { decoupled: true }",
    (_GROUP, "kind"): "kind: KIND_GPU  (or KIND_CPU, KIND_MODEL, KIND_AUTO)",
    (_POLICY, "timeout_action"): "timeout_action: REJECT  (or DELAY)",
}


def right_form(message_type: str, name: str, existing: Sequence[str]) -> str:
    """What to write in place of an unknown field; empty where nothing is alike."""
    known = RIGHT_FORM.get((message_type, name)) or RIGHT_FORM.get((message_type, name.lower()))
    if known:
        return known
    close = difflib.get_close_matches(name, existing, n=1, cutoff=0.7)
    if close:
        return close[0]
    elsewhere = RIGHT_FORM.get((_TOP, name)) if message_type != _TOP else None
    return elsewhere or ""
