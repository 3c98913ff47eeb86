"""Three public models as the planner sees them, from their published configurations."""

from __future__ import annotations

from dataclasses import dataclass

from apps.engines.domain.memory import LayerKind, Shape


@dataclass(frozen=True, slots=True)
class Config:
    """hidden, layers, heads, KV heads, head size, intermediate, vocabulary, biases on q, k and v."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    bias: bool = False


LLAMA_8B = Config(4096, 32, 32, 8, 128, 14_336, 128_256)
LLAMA_70B = Config(8192, 80, 64, 8, 128, 28_672, 128_256)
QWEN_7B = Config(3584, 28, 28, 4, 128, 18_944, 152_064, bias=True)


def dense(config: Config, *, tied: bool = False, window: int | None = None) -> Shape:
    """A Llama-like model: gated feed-forward, grouped queries, two norms in each layer."""
    q = config.heads * config.head_dim
    kv = config.kv_heads * config.head_dim
    layer = LayerKind(
        sharded=2 * config.hidden * q + 3 * config.hidden * config.ffn,
        kv_projection=2 * config.hidden * kv,
        small=2 * config.hidden,
        biases=q if config.bias else 0,
        kv_biases=2 * kv if config.bias else 0,
        kv_heads=config.kv_heads,
        kv_values=2 * kv,
        window=window,
    )
    table = config.vocab * config.hidden
    return Shape(
        name="model",
        hidden_size=config.hidden,
        vocab_size=config.vocab,
        num_heads=config.heads,
        num_kv_heads=config.kv_heads,
        head_dim=config.head_dim,
        ffn_width=config.ffn,
        embedding=table,
        lm_head=0 if tied else table,
        tied=tied,
        final=config.hidden,
        runs=((layer, config.layers),),
        num_layers=config.layers,
    )
