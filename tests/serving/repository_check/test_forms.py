"""Wrong forms that people write, and the right one that is named: fields, values, whole files."""

from __future__ import annotations

import pytest

from apps.serving.domain.repository_check.one_config import read_config

# What is written, and what the remedy says.
FORMS = {
    "dynamic_batching { priority_levels { level: 2 } }": "priority_levels: 2",
    "dynamic_batching { priority_levels: [ { priority: 1 } ] }": "priority_queue_policy { key: 1",
    "dynamic_batching { delay_ms: 5 }": "max_queue_delay_microseconds: 1000",
    "dynamic_batching { max_queue_size: 5 }": "default_queue_policy { max_queue_size",
    'dynamic_batching { priority_levels: 1 priority_queue_policy { key: "high" value { } } }': "key: 1",
    'dynamic_batching { max_queue_delay_microseconds: "100ms" }': "max_queue_delay_microseconds: 100000",
    "dynamic_batching { max_queue_delay_microseconds: 1e3 }": "max_queue_delay_microseconds: 1000",
    "dynamic_batching { max_queue_delay_microseconds: -1 }": "max_queue_delay_microseconds: 0",
    'dynamic_batching { preferred_batch_size: "4,8" }': "preferred_batch_size: [ 4, 8 ]",
    "dynamic_batching { default_queue_policy { timeout_action: reject } }": "timeout_action: REJECT",
    'instance_group { kind: "GPU" }': "kind: KIND_GPU",
    "instance_group { kind: kind_cpu }": "kind: KIND_CPU",
    'instance_group { gpus: "0,1" }': "gpus: [ 0, 1 ]",
    "instance_group { gpu_ids: [ 0 ] }": "gpus: [ 0 ]",
    'model_parameters { memory_pool: "x" }': "memory pools are flags of tritonserver",
    "cuda_memory_pool_byte_size: 5": "--cuda-memory-pool-byte-size",
    'parameters: { a: "b" }': 'key: "a" value { string_value: "b" }',
    'parameters { key: "a" value: "b" }': "value { string_value",
    'parameters { key: "a" value { string_value: 3 } }': 'string_value: "3"',
    'version_policy: "latest"': "version_policy { latest { num_versions: 1 } }",
    "version_policy { latest: 1 }": "latest { num_versions: 1 }",
    "version_policy { specific: [ 1 ] }": "specific { versions: [ 1",
    'model_transaction_policy { decoupled: "true" }': "decoupled: true",
    "model_transaction_policy { decoupled: no }": "decoupled: false",
    'input { name: "a" data_type: FP32 dims: [ 1 ] }': "data_type: TYPE_FP32",
    'input { name: "a" data_type: BYTES dims: [ 1 ] }': "data_type: TYPE_STRING",
    'input { name: "a" data_type: TYPE_FLOAT16 dims: [ 1 ] }': "data_type: TYPE_FP16",
    'input { name: "a" data_type: TYPE_FP32 dims: "-1" }': "dims: [ -1 ]",
    "response_cache { enabled: true }": "response_cache { enable: true }",
    "optimization { cuda_graphs: true }": "cuda { graphs: true }",
    'ensemble_scheduling { step { model_name: "a" inputs { } } }': "input_map",
    "temperature: 1": "setting of the engine",
    # Whole files.
    '{"name": "m", "max_batch_size": 4}': "JSON",
    "dynamic_batching:\n  max_queue_delay_microseconds: 5\n": "YAML",
    "max_batch_size: {{ batch }}": "template",
    "max_batch_size: <batch size>": "angle brackets",
    "name: \u201cm\u201d": "quotes",
    "// first\nmax_batch_size: 1": "#",
}


@pytest.mark.parametrize("text", FORMS)
def test_the_right_form_is_named(text: str) -> None:
    errors = [remark for remark in read_config(text, "m").remarks if remark.severity == "error"]
    assert any(FORMS[text] in remark.remedy for remark in errors), [remark.as_dict() for remark in errors]
