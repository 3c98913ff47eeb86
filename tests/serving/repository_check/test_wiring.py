"""An ensemble whose wiring is wrong, each way."""

from __future__ import annotations

import pytest

from tests.serving.repository_check.world import Fault, Repository, change, check_fault, tensor

FAULTS: dict[str, Fault] = {
    "renamed step": (
        change("ensemble", 'model_name: "postprocessing"', 'model_name: "post"'),
        "ensemble_model_missing",
        "error",
        "ensemble",
    ),
    "unknown input": (
        change("ensemble", 'key: "TOKENS_BATCH"', 'key: "TOKENS"'),
        "ensemble_unknown_input",
        "error",
        "ensemble",
    ),
    "unknown output": (
        change("ensemble", 'key: "OUTPUT"', 'key: "TEXT"'),
        "ensemble_unknown_output",
        "error",
        "ensemble",
    ),
    "type differs": (
        change("ensemble", tensor("max_tokens", dims="1"), tensor("max_tokens", "INT64", "1")),
        "ensemble_type_differs",
        "error",
        "ensemble",
    ),
    "shape differs": (
        change("ensemble", tensor("max_tokens", dims="1"), tensor("max_tokens", dims="2")),
        "ensemble_shape_differs",
        "error",
        "ensemble",
    ),
    "unused input": (
        change("ensemble", "input [ ", f"input [ {tensor('spare')}, "),
        "ensemble_tensor_unused",
        "error",
        "ensemble",
    ),
    "unused tensor": (
        change("ensemble", 'input_map { key: "SEQUENCE_LENGTH" value: "lengths" }', ""),
        "ensemble_tensor_unused",
        "error",
        "ensemble",
    ),
    "output that nobody writes": (
        change("ensemble", 'value: "text_output"', 'value: "other"'),
        "ensemble_output_not_written",
        "error",
        "ensemble",
    ),
    "batch over a step": (
        change("postprocessing", "max_batch_size: 8", "max_batch_size: 4"),
        "ensemble_batch_size",
        "error",
        "ensemble",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_found_where_it_is_with_what_to_do(repository: Repository, name: str) -> None:
    check_fault(repository, FAULTS[name])
