"""The demo checkpoint and the serving environment, for tests that build for real; and small llama-shaped files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from apps.registry.models import Checkpoint
from apps.registry.services import register_checkpoint

LACKING = "run these tests by `make test`, which fetches it, or set {name}."


@pytest.fixture
def serving_python(settings: Any) -> str:
    """Python of the serving environment: numpy, gguf and xllamacpp are there."""
    path = os.environ.get("INFLIGHT_SERVING_PYTHON", "")
    if not os.access(path, os.X_OK):
        pytest.fail("No serving environment: " + LACKING.format(name="INFLIGHT_SERVING_PYTHON"))
    settings.INFLIGHT_SERVING_PYTHON = path
    return path


@pytest.fixture
def demo_file() -> Path:
    """The demo checkpoint: a chat model of 135M parameters, 98 MB."""
    path = Path(os.environ.get("INFLIGHT_DEMO_CHECKPOINT", ""))
    if not path.is_file():
        pytest.fail("No demo checkpoint: " + LACKING.format(name="INFLIGHT_DEMO_CHECKPOINT"))
    return path


@pytest.fixture
def demo_checkpoint(demo_file: Path, settings: Any, transactional_db: None) -> Checkpoint:
    """The demo checkpoint, registered by path."""
    settings.INFLIGHT_CHECKPOINT_ROOTS = [str(demo_file.parent)]
    return register_checkpoint("test", "smollm2-135m", {"path": str(demo_file)})


def write_llama(path: Path, *, layers: int = 2, vocab: int = 64, rows: int = 64, **more: Any) -> Path:
    """Write a complete, random llama GGUF of a few hundred kilobytes: a tokenizer of bytes, F32 weights.

    `more` are further metadata strings by key (dots written as `__`).
    """
    random = np.random.default_rng(7)
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("tiny")
    for key, value in more.items():
        writer.add_string(key.replace("__", "."), value)
    writer.add_block_count(layers)
    writer.add_context_length(512)
    writer.add_embedding_length(rows)
    writer.add_feed_forward_length(2 * rows)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(rows // 4)
    writer.add_file_type(0)
    _add_tokenizer(writer, vocab)

    def weight(name: str, *shape: int) -> None:
        writer.add_tensor(name, (random.standard_normal(shape) * 0.1).astype(np.float32))

    weight("token_embd.weight", vocab, rows)
    weight("output_norm.weight", rows)
    for layer in range(layers):
        block = f"blk.{layer}."
        for name, out in (
            ("attn_q", rows),
            ("attn_k", rows // 2),
            ("attn_v", rows // 2),
            ("attn_output", rows),
        ):
            weight(f"{block}{name}.weight", out, rows)
        for name, shape in (
            ("ffn_gate", (2 * rows, rows)),
            ("ffn_up", (2 * rows, rows)),
            ("ffn_down", (rows, 2 * rows)),
        ):
            weight(f"{block}{name}.weight", *shape)
        weight(f"{block}attn_norm.weight", rows)
        weight(f"{block}ffn_norm.weight", rows)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_tokenizer(writer: gguf.GGUFWriter, vocab: int) -> None:
    tokens = ["<unk>", "<s>", "</s>"] + [f"▁w{index}" for index in range(vocab - 3)]
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * vocab)
    writer.add_token_types([2, 3, 3] + [1] * (vocab - 3))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(True)
