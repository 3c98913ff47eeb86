"""String parameters with a wrong key or value, and variables that nobody filled in."""

from __future__ import annotations

import pytest

from tests.serving.repository_check.world import Fault, Repository, add, change, check_fault, parameter

FAULTS: dict[str, Fault] = {
    "variable name as key": (
        add("tensorrt_llm", parameter("batching_strategy", "inflight_fused_batching")),
        "unknown_parameter",
        "warning",
        "tensorrt_llm",
    ),
    "policy as parameter": (
        add("tensorrt_llm", parameter("decoupled_mode", "true")),
        "unknown_parameter",
        "warning",
        "tensorrt_llm",
    ),
    "parameter of an ensemble": (
        add("ensemble", parameter("enable_kv_cache_reuse", "true")),
        "parameter_acts_nowhere",
        "warning",
        "ensemble",
    ),
    "bool in words": (
        add("tensorrt_llm", parameter("enable_kv_cache_reuse", "yes")),
        "parameter_value",
        "error",
        "tensorrt_llm",
    ),
    "scheduler that is none": (
        add("tensorrt_llm", parameter("batch_scheduler_policy", "static")),
        "parameter_value",
        "error",
        "tensorrt_llm",
    ),
    "fraction over one": (
        add("tensorrt_llm", parameter("kv_cache_free_gpu_mem_fraction", "90")),
        "parameter_value",
        "error",
        "tensorrt_llm",
    ),
    "static batching": (
        change("tensorrt_llm", "inflight_fused_batching", "V1"),
        "static_batching_removed",
        "error",
        "tensorrt_llm",
    ),
    "lookahead without its sizes": (
        add("tensorrt_llm", parameter("decoding_mode", "lookahead")),
        "lookahead_incomplete",
        "error",
        "tensorrt_llm",
    ),
    "unfilled engine": (
        lambda repository: repository.change("tensorrt_llm", str(repository.engine), "${engine_dir}"),
        "unfilled_placeholder",
        "error",
        "tensorrt_llm",
    ),
    "unfilled optional": (
        add("tensorrt_llm", parameter("lora_prefetch_dir", "${lora_prefetch_dir}")),
        "unfilled_placeholder",
        "info",
        "tensorrt_llm",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_found_where_it_is_with_what_to_do(repository: Repository, name: str) -> None:
    check_fault(repository, FAULTS[name])
