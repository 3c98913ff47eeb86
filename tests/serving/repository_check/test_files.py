"""Files that a model needs and that are not there, or are others."""

from __future__ import annotations

import pytest

from tests.serving.repository_check.world import Fault, Repository, change, check_fault

FAULTS: dict[str, Fault] = {
    "batch over the engine": (
        lambda repository: repository.engine_config(1, 4),
        "batch_size_over_engine",
        "error",
        "tensorrt_llm",
    ),
    "a rank is missing": (
        lambda repository: repository.engine_config(2, 8),
        "engine_incomplete",
        "error",
        "tensorrt_llm",
    ),
    "no engine": (
        lambda repository: (repository.engine / "config.json").unlink(),
        "engine_missing",
        "error",
        "tensorrt_llm",
    ),
    "engine elsewhere": (
        change("tensorrt_llm", "/engine", "/nowhere"),
        "engine_missing",
        "warning",
        "tensorrt_llm",
    ),
    "no tokenizer": (
        lambda repository: (repository.tokenizer / "tokenizer.json").unlink(),
        "tokenizer_missing",
        "error",
        "preprocessing",
    ),
    "tokenizer variable": (
        change("postprocessing", "tokenizer_dir", "tokenizer_dirs"),
        "tokenizer_missing",
        "error",
        "postprocessing",
    ),
    "no version": (
        lambda repository: repository.folder("ensemble").rmdir(),
        "version_missing",
        "error",
        "ensemble",
    ),
    "odd version": (
        lambda repository: (repository.path / "ensemble/1.bak").mkdir(),
        "odd_version_folder",
        "warning",
        "ensemble",
    ),
    "no code": (
        lambda repository: (repository.folder("postprocessing") / "model.py").unlink(),
        "model_file_missing",
        "error",
        "postprocessing",
    ),
    "code that needs more": (
        lambda repository: repository.write(
            "postprocessing",
            "model.py",
            "x = model_config['parameters']['skip_special_tokens']['string_value']",
        ),
        "parameter_missing",
        "error",
        "postprocessing",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_found_where_it_is_with_what_to_do(repository: Repository, name: str) -> None:
    check_fault(repository, FAULTS[name])
