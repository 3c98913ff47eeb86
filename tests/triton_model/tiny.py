"""A complete random engine of some 100 kilobytes with a sentencepiece vocabulary that wants a BOS."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

ROWS = 32
LETTERS = "abcdefghijklmnop"


def write_tiny(path: Path, *, with_bytes: bool = True) -> Path:
    """Write a llama GGUF of one layer. Without `with_bytes` its vocabulary lacks the byte tokens that it needs."""
    random = np.random.default_rng(3)
    tokens = ["<unk>", "<s>", "</s>"]
    types = [gguf.TokenType.UNKNOWN, gguf.TokenType.CONTROL, gguf.TokenType.CONTROL]
    if with_bytes:
        tokens += [f"<0x{byte:02X}>" for byte in range(256)]
        types += [gguf.TokenType.BYTE] * 256
    tokens += list(LETTERS)
    types += [gguf.TokenType.NORMAL] * len(LETTERS)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_context_length(512)
    writer.add_embedding_length(ROWS)
    writer.add_feed_forward_length(ROWS)
    writer.add_head_count(2)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(ROWS // 2)
    writer.add_file_type(0)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * len(tokens))
    writer.add_token_types(types)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(True)
    writer.add_add_space_prefix(False)
    shapes = {
        "token_embd.weight": (len(tokens), ROWS),
        "output_norm.weight": (ROWS,),
        **{f"blk.0.attn_{part}.weight": (ROWS, ROWS) for part in ("q", "k", "v", "output")},
        **{f"blk.0.ffn_{part}.weight": (ROWS, ROWS) for part in ("gate", "up", "down")},
        **{f"blk.0.{part}_norm.weight": (ROWS,) for part in ("attn", "ffn")},
    }
    for name, shape in shapes.items():
        writer.add_tensor(name, (random.standard_normal(shape) * 0.1).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
