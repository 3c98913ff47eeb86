"""Models that disagree, and settings that act nowhere."""

from __future__ import annotations

import pytest

from tests.serving.repository_check.world import Fault, Repository, change, check_fault

FAULTS: dict[str, Fault] = {
    "decoupled differs": (
        change("tensorrt_llm_bls", "decoupled: true", "decoupled: false"),
        "decoupled_differs",
        "error",
        "tensorrt_llm_bls",
    ),
    "BLS names nothing": (
        change("tensorrt_llm_bls", '"tensorrt_llm" }', '"llm" }'),
        "bls_model_missing",
        "error",
        "tensorrt_llm_bls",
    ),
    "one BLS instance": (
        change("tensorrt_llm_bls", "count: 8", "count: 1"),
        "bls_instances",
        "warning",
        "tensorrt_llm_bls",
    ),
    "two instances, one set": (
        change("tensorrt_llm", "count: 1", "count: 2"),
        "device_sets",
        "error",
        "tensorrt_llm",
    ),
    "GPUs in the group": (
        change("tensorrt_llm", "count: 1 kind: KIND_CPU", "count: 1 kind: KIND_GPU gpus: [ 0 ]"),
        "instance_group_ignored",
        "warning",
        "tensorrt_llm",
    ),
    "a delay that does nothing": (
        change("tensorrt_llm", "[ 8 ]", "[ 2, 4 ] max_queue_delay_microseconds: 500"),
        "queue_setting_idle",
        "info",
        "tensorrt_llm",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_found_where_it_is_with_what_to_do(repository: Repository, name: str) -> None:
    check_fault(repository, FAULTS[name])
