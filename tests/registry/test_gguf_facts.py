"""What headers say, in the words of the field; absent is None."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest

from apps.core.exceptions import InvalidInput
from apps.registry.domain.gguf_facts import GgufFacts, read_facts
from tests.support.llama import write_llama

Fill = Callable[[gguf.GGUFWriter], None]


def facts(path: Path, arch: str, fill: Fill, tensors: bool = True) -> GgufFacts:
    writer = gguf.GGUFWriter(path, arch)
    fill(writer)
    if tensors:
        writer.add_tensor("token_embd.weight", np.zeros((8, 32), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return read_facts(path)[0]


def test_facts_of_a_llama(tmp_path: Path) -> None:
    path = write_llama(tmp_path / "m.gguf", tokenizer__chat_template="{{ messages }}")
    found, _header = read_facts(path)
    assert found.model_dump(exclude={"tensor_types", "rope"}) == {
        "gguf_version": 3,
        "architecture": "llama",
        "name": "tiny",
        "layers": 2,
        "heads": 4,
        "heads_kv": 2,
        "head_dim": 16,
        "hidden_size": 64,
        "feed_forward": 128,
        "context_length": 512,
        "vocab_size": 64,
        "experts": None,
        "file_type": "F32",
        "tensors": 20,
        "params": 64 * 64 + 64 + 2 * (2 * 64 * 64 + 2 * 32 * 64 + 3 * 128 * 64 + 2 * 64),
        # keys and values, two heads of 16, two layers, 16 bit
        "kv_bytes_per_token": 2 * 2 * 16 * 2 * 2,
        "tokenizer": "llama",
        "chat_template": "{{ messages }}",
        "bos_token": "<s>",
        "bos_token_id": 1,
        "eos_token": "</s>",
        "eos_token_id": 2,
        "add_bos": True,
        "shards": None,
    }
    assert found.tensor_types == {"F32": 20}
    assert found.rope.dimensions == 16
    assert found.rope.scaling_type is None


def test_what_is_absent_is_none(tmp_path: Path) -> None:
    found = facts(tmp_path / "m.gguf", "llama", lambda writer: None)
    said = found.model_dump(
        exclude={"gguf_version", "architecture", "tensor_types", "tensors", "params", "rope"}
    )
    assert set(said.values()) == {None}


def test_stated_head_dim_wins(tmp_path: Path) -> None:
    def fill(writer: gguf.GGUFWriter) -> None:
        writer.add_block_count(64)
        writer.add_embedding_length(5120)
        writer.add_head_count(64)
        writer.add_head_count_kv(8)
        writer.add_key_length(128)
        writer.add_value_length(128)

    found = facts(tmp_path / "m.gguf", "qwen3", fill)
    assert found.head_dim == 128
    assert found.kv_bytes_per_token == 262_144


def test_latent_attention(tmp_path: Path) -> None:
    def fill(writer: gguf.GGUFWriter) -> None:
        writer.add_block_count(61)
        writer.add_embedding_length(7168)
        writer.add_head_count(128)
        writer.add_head_count_kv(1)
        writer.add_kv_lora_rank(512)
        writer.add_rope_dimension_count(64)

    assert facts(tmp_path / "m.gguf", "deepseek2", fill).kv_bytes_per_token == 70_272


def test_heads_that_differ_by_layer(tmp_path: Path) -> None:
    def fill(writer: gguf.GGUFWriter) -> None:
        writer.add_block_count(3)
        writer.add_embedding_length(256)
        writer.add_head_count([4, 4, 4])
        writer.add_head_count_kv([1, 2, 4])

    found = facts(tmp_path / "m.gguf", "llama", fill)
    assert (found.heads, found.heads_kv) == (4, 4)
    assert found.kv_bytes_per_token == (1 + 2 + 4) * 2 * 64 * 2


def test_state_space_models_have_no_such_cache(tmp_path: Path) -> None:
    def fill(writer: gguf.GGUFWriter) -> None:
        writer.add_block_count(3)
        writer.add_embedding_length(256)
        writer.add_head_count(4)
        writer.add_ssm_conv_kernel(4)

    assert facts(tmp_path / "m.gguf", "jamba", fill).kv_bytes_per_token is None


def test_values_of_a_wrong_kind_count_as_absent(tmp_path: Path) -> None:
    def fill(writer: gguf.GGUFWriter) -> None:
        writer.add_string("llama.block_count", "thirty")
        writer.add_float32("llama.rope.freq_base", float("nan"))
        writer.add_string("general.name", "a\0b")
        writer.add_uint32("tokenizer.ggml.bos_token_id", 4_000_000_000)

    found = facts(tmp_path / "m.gguf", "llama", fill)
    assert found.layers is None
    assert found.rope.freq_base is None
    assert found.name == "a\ufffdb", "PostgreSQL refuses NUL"
    assert (found.bos_token_id, found.bos_token) == (4_000_000_000, None)


def test_a_shard_and_an_empty_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput) as caught:
        facts(tmp_path / "a.gguf", "llama", lambda writer: writer.add_uint16("split.count", 4))
    assert caught.value.code == "gguf_sharded"
    with pytest.raises(InvalidInput) as caught:
        facts(tmp_path / "b.gguf", "llama", lambda writer: None, tensors=False)
    assert caught.value.code == "gguf_no_weights"
