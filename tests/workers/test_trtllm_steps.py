"""The steps of the checkpoint recipe as programs: one over real files, one over a double of the library."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CONFIG = {
    "model_type": "qwen3",
    "architectures": ["Qwen3ForCausalLM"],
    "num_hidden_layers": 1,
    "hidden_size": 8,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 4,
    "intermediate_size": 16,
    "vocab_size": 32,
    "max_position_embeddings": 64,
}
LIBRARY = """
__version__ = "1.2.1"
class SamplingParams:
    def __init__(self, max_tokens):
        self.max_tokens = max_tokens
class _Text:
    text = "!"
class _Answer:
    outputs = [_Text()]
class LLM:
    def __init__(self, model, tensor_parallel_size, pipeline_parallel_size):
        assert (tensor_parallel_size, pipeline_parallel_size) == (2, 1)
    def generate(self, prompts, params):
        return [_Answer() for _ in prompts]
"""


def run(module: str, *arguments: str, path: str = "") -> subprocess.CompletedProcess[str]:
    env = {"PATH": os.defpath, "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), path]))}
    command = [sys.executable, "-P", "-u", "-m", f"workers.builders.trtllm_steps.{module}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=env, timeout=60, check=False)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A folder in Hugging Face form whose one tensor is real."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "tokenizer.json").write_text("{}")
    header = json.dumps(
        {"lm_head.weight": {"dtype": "BF16", "shape": [32, 8], "data_offsets": [0, 512]}}
    ).encode()
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(512))
    return folder


def test_a_whole_checkpoint_is_reported(checkpoint: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    ended = run("validate", "--model", str(checkpoint), "--report", str(report))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    said = json.loads(report.read_text())
    assert said["facts"]["architecture"] == "Qwen3ForCausalLM"
    assert said["size_bytes"] > 512


@pytest.mark.parametrize(
    ("gone", "reason"), [("tokenizer.json", "tokenizer_missing"), ("model.safetensors", "weights_missing")]
)
def test_a_checkpoint_that_lacks_something_ends_with_its_reason(
    checkpoint: Path, tmp_path: Path, gone: str, reason: str
) -> None:
    (checkpoint / gone).unlink()
    ended = run("validate", "--model", str(checkpoint), "--report", str(tmp_path / "report.json"))
    assert ended.returncode == 1
    assert reason in ended.stdout
    assert not (tmp_path / "report.json").exists()


def test_a_broken_config_ends_with_a_sentence_and_no_traceback(checkpoint: Path, tmp_path: Path) -> None:
    (checkpoint / "config.json").write_text("{")
    ended = run("validate", "--model", str(checkpoint), "--report", str(tmp_path / "report.json"))
    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr
    assert '"event": "failure"' in ended.stdout


def test_the_warm_up_loads_with_the_ranks_and_keeps_what_it_saw(tmp_path: Path) -> None:
    (tmp_path / "tensorrt_llm.py").write_text(LIBRARY)
    report = tmp_path / "warm.json"
    ended = run("warm_up", "--model", "/m", "--tp", "2", "--report", str(report), path=str(tmp_path))
    assert ended.returncode == 0, ended.stderr
    said = json.loads(report.read_text())
    assert (said["version"], said["text"]) == ("1.2.1", "!")
