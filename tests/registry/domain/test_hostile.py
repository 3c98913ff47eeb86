"""Configurations and GGUF headers that are broken, huge or made to hurt: findings, never a traceback.

Time and memory are bounded by what is read: the last test measures the memory of a process of its own, the time is
measured by benchmarks/inspection.py.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apps.registry.domain.checkpoint_reader import read_checkpoint
from apps.registry.domain.json_input import CONFIG_LIMIT
from apps.registry.domain.model_config import facts_of
from tests.support.hugging_face import TINY

ROOT = Path(__file__).resolve().parents[3]
TEXTS: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "json_empty"),
    "spaces": (b" \n", "json_empty"),
    "truncated": (json.dumps(TINY).encode()[:40], "json_malformed"),
    "no JSON": (b"hidden_size = 4096", "json_malformed"),
    "a page": (b"<!DOCTYPE html><html>", "json_malformed"),
    "a pointer": (b"version https://git-lfs.github.com/spec/v1\n", "git_lfs_pointer"),
    "a list": (b"[1]", "json_not_an_object"),
    "null": (b"null", "json_not_an_object"),
    "an object of nothing": (b"{}", "not_a_model_config"),
    "latin-1": ('{"model_type": "ll\xe4ma"}'.encode("latin-1"), "not_utf8"),
    "utf-16": (json.dumps(TINY).encode("utf-16"), "not_utf8"),
    "NUL": (b"\0" * 64, "json_malformed"),
    "deep lists": (b"[" * 100_000, "json_too_deep"),
    "deep objects": (b'{"a":' * 100_000, "json_too_deep"),
    "huge": (b" " * (CONFIG_LIMIT + 1), "file_too_large"),
    "too many values": (b'{"a":[' + b"0," * 500_000 + b"0]}", "json_too_many_values"),
    "duplicates": (b"{" + b'"a":0,' * 100_000 + b'"b":0}', "json_duplicate_key"),
    "digits": (b'{"model_type":"llama","hidden_size":' + b"9" * 100_000 + b"}", "config_field_invalid"),
}
VALUES: list[Any] = [
    0, -1, 1.5, True, False, "4096", "", "x" * 10_000, [], [4096], {}, {"a": 1}, float("nan"), float("inf"),
    -float("inf"), 2**31, 2**63, 2**64, 10**30, 10**399, "\0", "\ud800",
]  # fmt: skip


@pytest.mark.parametrize("name", TEXTS)
def test_texts(tmp_path: Path, name: str) -> None:
    raw, code = TEXTS[name]
    (tmp_path / "config.json").write_bytes(raw)
    for path in (tmp_path, tmp_path / "config.json"):
        facts = read_checkpoint(path).facts
        found = {finding.id: finding for finding in facts.findings}
        assert code in found
        assert facts.errors()
        assert len(found[code].message) < 500
        json.dumps(facts.model_dump(mode="json"), allow_nan=False).encode()


def test_a_mark_is_taken_off_and_told(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(b"\xef\xbb\xbf" + json.dumps(TINY).encode())
    facts = read_checkpoint(tmp_path / "config.json").facts
    assert [finding.id for finding in facts.findings] == ["byte_order_mark"]
    assert facts.num_layers == 2


def test_infinity_where_it_does_no_harm(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**TINY, "time_step_limit": [0.0, float("inf")]}))
    assert read_checkpoint(tmp_path / "config.json").facts.findings == ()


@pytest.mark.parametrize("value", VALUES, ids=[ascii(value)[:20] for value in VALUES])
@pytest.mark.parametrize(
    "name", ["hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size", "intermediate_size"]
)
def test_no_value_that_cannot_be(name: str, value: Any) -> None:
    facts = facts_of({**TINY, name: value})
    named = [finding for finding in facts.errors() if finding.where == name]
    if value == 2**31 or (value is True and not named):
        assert facts.errors()
    else:
        assert named
        assert facts.params is None


FIELDS = [
    "head_dim", "num_key_value_heads", "rope_scaling", "rope_parameters", "rope_theta", "sliding_window",
    "use_sliding_window", "max_window_layers", "layer_types", "quantization_config", "architectures", "model_type",
    "tie_word_embeddings", "torch_dtype", "text_config", "thinker_config", "max_position_embeddings", "num_experts",
    "mlp_only_layers", "moe_intermediate_size", "attention_bias", "num_key_value_heads_per_layer", "eos_token_id",
    "attn_config", "ffn_config", "block_configs", "hybrid_override_pattern", "pretrained_config", "build_config",
    "sliding_window_pattern", "cross_attention_layers", "no_rope_layers", "attention_chunk_size",
]  # fmt: skip
FAMILIES = [
    "llama", "qwen2", "qwen3_moe", "qwen3_next", "gemma3_text", "gemma3n_text", "falcon", "mpt", "dbrx", "jamba",
    "deepseek_v3", "nemotron_h", "nemotron-nas", "mllama", "llama4_text", "chatglm", "mamba", "mamba2", "lfm2",
    "granitemoehybrid", "recurrent_gemma", "zamba2", "ernie4_5_moe", "gpt2", "unheard_of",
]  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
def test_every_field_of_every_family_may_be_anything(family: str) -> None:
    for name in FIELDS:
        for value in VALUES:
            facts = facts_of({**TINY, "model_type": family, name: value})
            assert all(finding.message for finding in facts.findings)


leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=4),
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(FAMILIES),
    st.dictionaries(st.sampled_from([*FIELDS, *TINY]), values, max_size=8),
)
def test_any_configuration_gives_facts(family: str, changes: dict[str, Any]) -> None:
    facts = facts_of({**TINY, "model_type": family, **changes})
    assert facts.params is None or facts.params >= 0
    assert facts.kv_bytes_per_token is None or facts.kv_bytes_per_token >= 0
    json.dumps(facts.model_dump(mode="json")).encode("ascii")


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _loop(path: Path) -> None:
    path.symlink_to(path)


def _folder(path: Path) -> None:
    path.mkdir()


def _device(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("make", [_pipe, _loop, _folder, _device])
@pytest.mark.parametrize("name", ["config.json", "model.gguf"])
def test_what_is_no_file(tmp_path: Path, name: str, make: Callable[[Path], None]) -> None:
    make(tmp_path / name)
    for path in (tmp_path, tmp_path / name):
        (error, *_) = read_checkpoint(path).facts.errors()
        assert error.message


@pytest.mark.parametrize("path", ["", "\0", "/nowhere/at/all", "x" * 5000])
def test_paths_that_lead_nowhere(tmp_path: Path, path: str) -> None:
    target = tmp_path / path if path not in ("", "\0") else Path(path or str(tmp_path / "none"))
    assert read_checkpoint(target).facts.errors()


@pytest.mark.parametrize("name", ["tokenizer_config.json", "generation_config.json", "hf_quant_config.json"])
@pytest.mark.parametrize("make", [_pipe, _loop, _folder, _device])
def test_what_lies_beside_a_configuration(tmp_path: Path, name: str, make: Callable[[Path], None]) -> None:
    (tmp_path / "config.json").write_text(json.dumps(TINY))
    make(tmp_path / name)
    facts = read_checkpoint(tmp_path).facts
    assert facts.num_layers == 2
    assert [finding for finding in facts.findings if finding.where == name]


def _values_of_a_gguf(path: Path) -> None:
    entries = b"".join(_string(f"k{index}") + struct.pack("<II", 4, index) for index in range(16_000))
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 16_000) + entries)


def _numbers_of_a_gguf(path: Path) -> None:
    entry = struct.pack("<IIQ", 9, 4, 1024) + bytes(4096)
    raw = b"".join(_string(f"k{index}") + entry for index in range(8_000))
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 8_000) + raw)


def _strings_of_a_gguf(path: Path) -> None:
    raw = _string("k") + struct.pack("<IIQ", 9, 8, 1_500_000) + bytes(8 * 1_500_000)
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + raw)


def _texts_of_a_gguf(path: Path) -> None:
    raw = b"".join(
        _string(f"k{index}") + struct.pack("<IQ", 8, 3_900_000) + b"\xff" * 3_900_000 for index in range(16)
    )
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 16) + raw)


def _tensors_of_a_gguf(path: Path) -> None:
    raw = b"".join(
        _string(f"blk.{index}.t") + struct.pack("<IQIQ", 1, 32, 0, index * 128) for index in range(32_000)
    )
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 32_000, 0) + raw + bytes(32_000 * 128 + 64))


def _string(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


def _small_objects(path: Path) -> None:
    path.write_bytes(b'{"a":[' + b"{}," * 199_000 + b"{}]}")


def _layers(path: Path) -> None:
    kinds = ["sliding_attention"] * 2048
    path.write_text(
        json.dumps({**TINY, "num_hidden_layers": 2048, "layer_types": kinds, "sliding_window": 8})
    )


def _experts(path: Path) -> None:
    sizes = {"num_hidden_layers": 2048, "n_routed_experts": 65536, "kv_lora_rank": 1, "qk_rope_head_dim": 1}
    more = {
        "qk_nope_head_dim": 1,
        "v_head_dim": 1,
        "num_nextn_predict_layers": 64,
        "moe_intermediate_size": 1,
    }
    path.write_text(json.dumps({**TINY, "model_type": "deepseek_v3", **sizes, **more}))


HUNGRY: dict[str, tuple[str, Callable[[Path], None]]] = {
    "small objects": ("config.json", _small_objects),
    "most layers": ("config.json", _layers),
    "most experts": ("config.json", _experts),
    "values": ("m.gguf", _values_of_a_gguf),
    "numbers": ("m.gguf", _numbers_of_a_gguf),
    "strings": ("m.gguf", _strings_of_a_gguf),
    "texts": ("m.gguf", _texts_of_a_gguf),
    "tensors": ("m.gguf", _tensors_of_a_gguf),
}
MEASURE = """
import sys
from pathlib import Path
from apps.registry.domain.checkpoint_reader import read_checkpoint
read_checkpoint(Path(sys.argv[1]))
# The most that was resident since this program began; getrusage would count the process that started it too.
(line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
print(line.split()[1])
"""


@pytest.mark.parametrize("name", HUNGRY)
def test_memory_stays_below_200_mb(tmp_path: Path, name: str) -> None:
    file, make = HUNGRY[name]
    make(tmp_path / file)
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(tmp_path / file)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert int(done.stdout) < 200_000
