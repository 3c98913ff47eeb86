"""What a GGUF header says about a model, in the words of the field. Absent is None, never 0."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from apps.registry.domain.gguf_cursor import refuse
from apps.registry.domain.gguf_reader import Array, Header, read_header, read_strings
from apps.registry.domain.gguf_types import FILE_TYPES
from apps.registry.domain.regular_files import clean_text

KV_BYTES = 2  # 16-bit keys and values


class Rope(BaseModel):
    """Rotary embedding as the header states it."""

    model_config = ConfigDict(frozen=True)

    dimensions: int | None = None
    freq_base: float | None = None
    scaling_type: str | None = None
    scaling_factor: float | None = None
    original_context: int | None = None


class GgufFacts(BaseModel):
    """Facts of one GGUF file.

    `heads_kv` is the largest of the layers where they differ. `params` counts the weights stored (tied ones once).
    `kv_bytes_per_token` is for 16-bit keys and values over all layers; None for models without attention in every
    layer. `tensor_types` counts tensors by weight type.
    """

    model_config = ConfigDict(frozen=True)

    gguf_version: int
    architecture: str | None = None
    name: str | None = None
    layers: int | None = None
    heads: int | None = None
    heads_kv: int | None = None
    head_dim: int | None = None
    hidden_size: int | None = None
    feed_forward: int | None = None
    context_length: int | None = None
    vocab_size: int | None = None
    experts: int | None = None
    rope: Rope = Rope()
    file_type: str | None = None
    tensor_types: dict[str, int] = {}
    tensors: int = 0
    params: int = 0
    kv_bytes_per_token: int | None = None
    tokenizer: str | None = None
    chat_template: str | None = None
    bos_token: str | None = None
    bos_token_id: int | None = None
    eos_token: str | None = None
    eos_token_id: int | None = None
    add_bos: bool | None = None
    shards: int | None = None


def read_facts(path: Path) -> tuple[GgufFacts, Header]:
    """Facts and header of a GGUF file. Raises InvalidInput as read_header does, also for a lone shard."""
    header = read_header(path)
    facts = facts_of(header, path)
    if facts.shards is not None and facts.shards > 1:
        raise refuse(
            "gguf_sharded",
            f"{path.name} is one of {facts.shards} shards.",
            "Merge the shards first: llama-gguf-split --merge.",
        )
    if not header.tensors:
        raise refuse(
            "gguf_no_weights", f"{path.name} holds metadata only, no weights.", "Name the file with weights."
        )
    if facts.architecture is None:
        raise refuse("gguf_no_architecture", f"{path.name} does not say which architecture it holds.")
    return facts, header


def facts_of(header: Header, path: Path) -> GgufFacts:
    """Facts of a header; `path` is read again for the texts of the special tokens."""
    reader = _Reader(header)
    arch = reader.text("general.architecture")
    tokens = header.get("tokenizer.ggml.tokens")
    bos, eos = reader.number("tokenizer.ggml.bos_token_id"), reader.number("tokenizer.ggml.eos_token_id")
    wanted = {index for index in (bos, eos) if index is not None and index >= 0}
    texts = read_strings(path, tokens, wanted) if isinstance(tokens, Array) else {}
    vocab = reader.arch_number("vocab_size")
    if vocab is None and isinstance(tokens, Array):
        vocab = tokens.length
    heads = reader.arch_numbers("attention.head_count")
    heads_kv = reader.arch_numbers("attention.head_count_kv") or heads
    hidden = reader.arch_number("embedding_length")
    file_type = reader.number("general.file_type")
    return GgufFacts(
        gguf_version=header.version,
        architecture=arch,
        name=reader.text("general.name"),
        layers=reader.arch_number("block_count"),
        heads=max(heads, default=None),
        heads_kv=max(heads_kv, default=None),
        head_dim=_head_dim(reader, hidden, heads),
        hidden_size=hidden,
        feed_forward=max(reader.arch_numbers("feed_forward_length"), default=None),
        context_length=reader.arch_number("context_length"),
        vocab_size=vocab,
        experts=reader.arch_number("expert_count"),
        rope=_rope(reader),
        file_type=None if file_type is None else FILE_TYPES.get(file_type, f"file type {file_type}"),
        tensor_types=dict(sorted(Counter(tensor.type for tensor in header.tensors).items())),
        tensors=len(header.tensors),
        params=sum(tensor.elements for tensor in header.tensors),
        kv_bytes_per_token=_kv_bytes_per_token(reader, hidden, heads, heads_kv),
        tokenizer=reader.text("tokenizer.ggml.model"),
        chat_template=reader.text("tokenizer.chat_template"),
        bos_token=_token(texts, bos),
        bos_token_id=bos,
        eos_token=_token(texts, eos),
        eos_token_id=eos,
        add_bos=reader.flag("tokenizer.ggml.add_bos_token"),
        shards=reader.number("split.count"),
    )


def clean(text: str) -> str:
    """The text as any database and terminal takes it."""
    return clean_text(text)


def _token(texts: dict[int, str], index: int | None) -> str | None:
    text = None if index is None else texts.get(index)
    return None if text is None else clean(text)


class _Reader:
    """Typed look-ups. A value of another type than the specification's counts as absent."""

    def __init__(self, header: Header) -> None:
        self._header = header
        self._arch = self.text("general.architecture") or ""

    def text(self, key: str) -> str | None:
        value = self._header.get(key)
        return clean(value) if isinstance(value, str) else None

    def number(self, key: str) -> int | None:
        value = self._header.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def real(self, key: str) -> float | None:
        value = self._header.get(key)
        if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
            return None
        return float(value)

    def flag(self, key: str) -> bool | None:
        value = self._header.get(key)
        return value if isinstance(value, bool) else None

    def arch_key(self, key: str) -> str:
        return f"{self._arch}.{key}"

    def arch_number(self, key: str) -> int | None:
        return self.number(self.arch_key(key))

    def arch_numbers(self, key: str) -> list[int]:
        """One number for all layers gives a list of one; an array gives one for each layer."""
        value = self._header.get(self.arch_key(key))
        if isinstance(value, Array):
            whole = len(value.values) == value.length
            return [item for item in value.values if isinstance(item, int)] if whole else []
        single = self.arch_number(key)
        return [] if single is None else [single]

    def has_prefix(self, prefix: str) -> bool:
        return any(key.startswith(self.arch_key(prefix)) for key in self._header.entries)


def _head_dim(reader: _Reader, hidden: int | None, heads: list[int]) -> int | None:
    stated = reader.arch_number("attention.key_length")
    if stated is not None:
        return stated
    largest = max(heads, default=0)
    return hidden // largest if hidden and largest else None


def _rope(reader: _Reader) -> Rope:
    return Rope(
        dimensions=reader.arch_number("rope.dimension_count"),
        freq_base=reader.real(reader.arch_key("rope.freq_base")),
        scaling_type=reader.text(reader.arch_key("rope.scaling.type")),
        scaling_factor=reader.real(reader.arch_key("rope.scaling.factor")),
        original_context=reader.arch_number("rope.scaling.original_context_length"),
    )


def _kv_bytes_per_token(
    reader: _Reader, hidden: int | None, heads: list[int], heads_kv: list[int]
) -> int | None:
    layers = reader.arch_number("block_count")
    if not layers or not heads or reader.has_prefix("ssm."):
        return None
    latent = reader.arch_number("attention.kv_lora_rank")
    if latent is not None:
        # Multi-head latent attention keeps one compressed vector and the rotary part for each layer.
        return (latent + (reader.arch_number("rope.dimension_count") or 0)) * layers * KV_BYTES
    key = _head_dim(reader, hidden, heads)
    value = reader.arch_number("attention.value_length") or key
    if key is None or value is None or not heads_kv:
        return None
    if len(heads_kv) not in (1, layers):
        return None
    kv_heads = heads_kv[0] * layers if len(heads_kv) == 1 else sum(heads_kv)
    return kv_heads * (key + value) * KV_BYTES
