"""Parameters of config.pbtxt, typed; errors name the parameter."""

from __future__ import annotations

from pathlib import Path

import pytest
from llamacpp_errors import EngineLoadError, SettingsError
from llamacpp_runtime import check_file
from llamacpp_settings import read_settings


def test_defaults() -> None:
    settings = read_settings({"gguf_path": "/e/model.gguf"}, "/repository/demo")
    assert (settings.strategy, settings.slots, settings.context_per_slot) == ("inflight", 8, 1024)
    assert settings.max_running == 8
    assert settings.kv_capacity_tokens == 8 * 1024
    assert settings.threads >= 1
    assert settings.gpu_layers == 0
    assert settings.gguf_path == "/e/model.gguf"


def test_a_relative_engine_lies_in_the_models_folder_and_a_gpu_takes_all_layers() -> None:
    settings = read_settings({"gguf_path": "1/model.gguf"}, "/repository/demo", "GPU")
    assert settings.gguf_path == "/repository/demo/1/model.gguf"
    assert settings.gpu_layers == -1


def test_none_keeps_its_slots_and_runs_one() -> None:
    settings = read_settings({"gguf_path": "x", "strategy": "none", "slots": "16"}, "/m")
    assert (settings.slots, settings.max_running) == (16, 1)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("gguf_path", ""),
        ("gguf_path", "${engine_dir}"),
        ("strategy", "batched"),
        ("slots", "0"),
        ("slots", "many"),
        ("context_per_slot", "8"),
        ("threads", "-1"),
        ("kv_cache_type", "FP8"),
        ("prefix_cache", "perhaps"),
        ("gpu_layers", "-2"),
        ("slotss", "4"),
    ],
)
def test_a_bad_value_is_named(name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=f"parameter {name}: "):
        read_settings({"gguf_path": "x", name: value}, "/m")


def test_a_quantised_cache_needs_flash_attention() -> None:
    with pytest.raises(SettingsError, match="flash_attention"):
        read_settings({"gguf_path": "x", "kv_cache_type": "q8_0", "flash_attention": "false"}, "/m")


def test_a_file_that_is_no_gguf_is_refused_before_llama_cpp_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    with pytest.raises(EngineLoadError, match="cannot be read: No such file"):
        check_file(str(path))
    path.write_bytes(b"PK\x03\x04rest")
    with pytest.raises(EngineLoadError, match="is no GGUF file"):
        check_file(str(path))
