"""Tiny checkpoints in Hugging Face form."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

TINY = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 96,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
BYTES = {"BF16": 2, "F16": 2, "F32": 4, "I32": 4, "U8": 1, "F8_E4M3": 1}


def llama_tensors(config: Mapping[str, Any] = TINY, dtype: str = "BF16") -> dict[str, tuple[str, list[int]]]:
    """Names, dtypes and shapes of a Llama's weights."""
    hidden, inner, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    key_rows = hidden // config["num_attention_heads"] * config["num_key_value_heads"]
    shapes = {"model.embed_tokens.weight": [vocab, hidden], "model.norm.weight": [hidden]}
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        shapes |= {
            f"{at}self_attn.q_proj.weight": [hidden, hidden],
            f"{at}self_attn.k_proj.weight": [key_rows, hidden],
            f"{at}self_attn.v_proj.weight": [key_rows, hidden],
            f"{at}self_attn.o_proj.weight": [hidden, hidden],
            f"{at}mlp.gate_proj.weight": [inner, hidden],
            f"{at}mlp.up_proj.weight": [inner, hidden],
            f"{at}mlp.down_proj.weight": [hidden, inner],
            f"{at}input_layernorm.weight": [hidden],
            f"{at}post_attention_layernorm.weight": [hidden],
        }
    shapes["lm_head.weight"] = [vocab, hidden]
    return {name: (dtype, shape) for name, shape in shapes.items()}


def write_safetensors(path: Path, tensors: Mapping[str, tuple[str, list[int]]]) -> Path:
    """A file of zeros with these tensors."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, (dtype, shape) in tensors.items():
        size = math.prod(shape) * BYTES[dtype]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    raw = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(raw)) + raw + bytes(at))
    return path


def write_hugging_face(
    folder: Path,
    config: Mapping[str, Any] | None = None,
    *,
    tensors: Mapping[str, tuple[str, list[int]]] | None = None,
) -> Path:
    """A folder with a tiny Llama: configuration (with `config` over it), tokenizer files, weights of zeros."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({**TINY, **(config or {})}))
    (folder / "tokenizer.json").write_text("{}")
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"bos_token": "<s>", "eos_token": {"content": "</s>"}, "chat_template": "{{ messages }}"})
    )
    (folder / "generation_config.json").write_text(json.dumps({"bos_token_id": 1, "eos_token_id": [2, 3]}))
    write_safetensors(folder / "model.safetensors", llama_tensors() if tensors is None else tensors)
    return folder
