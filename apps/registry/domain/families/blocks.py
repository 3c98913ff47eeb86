"""How many weights the building blocks of transformers hold. Shapes are those of transformers' modules."""

from __future__ import annotations

from apps.registry.domain.model_facts import LayerParams


def add(*parts: LayerParams) -> LayerParams:
    """The sum of several parts of a layer."""
    names = LayerParams.model_fields
    return LayerParams(**{name: sum(getattr(part, name) for part in parts) for name in names})


def attention(
    hidden: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    *,
    value_dim: int | None = None,
    qkv_bias: bool = False,
    out_bias: bool = False,
    gated: bool = False,
) -> LayerParams:
    """Multi-head or grouped-query attention; `gated`: the query projection gives a gate of the same size too."""
    values = head_dim if value_dim is None else value_dim
    query = heads * head_dim * (2 if gated else 1)
    keys = kv_heads * (head_dim + values)
    return LayerParams(
        attention=hidden * query + heads * values * hidden,
        attention_kv=hidden * keys,
        biases=(query if qkv_bias else 0) + (hidden if out_bias else 0),
        kv_biases=keys if qkv_bias else 0,
    )


def latent_attention(
    hidden: int, heads: int, *, q_lora: int | None, kv_lora: int, nope: int, rope: int, value: int
) -> LayerParams:
    """Multi-head latent attention (DeepSeek-V2): one latent for K and V; low-rank queries where `q_lora` is given."""
    query = heads * (nope + rope)
    down = hidden * (kv_lora + rope) + (hidden * q_lora if q_lora else 0)
    up = (q_lora or hidden) * query + kv_lora * heads * (nope + value)
    return LayerParams(
        attention=up + heads * value * hidden, attention_replicated=down, norms=kv_lora + (q_lora or 0)
    )


def feed_forward(hidden: int, inner: int, *, gated: bool = True, bias: bool = False) -> LayerParams:
    """A dense feed-forward block: gate, up and down, or up and down alone."""
    ups = 2 if gated else 1
    return LayerParams(mlp=(ups + 1) * hidden * inner, biases=ups * inner + hidden if bias else 0)


def experts(
    hidden: int, count: int, inner: int, *, gated: bool = True, router_bias: bool = False
) -> LayerParams:
    """Routed experts and their router."""
    matrices = 3 if gated else 2
    return LayerParams(
        experts=count * matrices * hidden * inner, router=hidden * count + (count if router_bias else 0)
    )


def shared_experts(hidden: int, inner: int, *, gate: bool = False, gated: bool = True) -> LayerParams:
    """Experts that every token passes, together `inner` wide; `gate`: a sigmoid gate of one output."""
    return LayerParams(shared_experts=(3 if gated else 2) * hidden * inner, router=hidden if gate else 0)


def mamba1(
    hidden: int, inner: int, state: int, kernel: int, rank: int, *, conv_bias: bool, bias: bool
) -> LayerParams:
    """A Mamba block (selective state space)."""
    return LayerParams(
        mixer=hidden * 2 * inner + inner * (rank + 2 * state) + rank * inner + inner * hidden,
        biases=inner + (inner if conv_bias else 0) + (2 * inner + hidden if bias else 0),
        other=inner * kernel + inner * state + inner,
    )


def mamba2(
    hidden: int,
    inner: int,
    state: int,
    kernel: int,
    heads: int,
    groups: int,
    *,
    conv_bias: bool,
    bias: bool,
    norm: bool = True,
) -> LayerParams:
    """A Mamba-2 block; dt bias, A and D have one value for each head."""
    convolved = inner + 2 * groups * state
    projected = inner + convolved + heads
    return LayerParams(
        mixer=hidden * projected + inner * hidden,
        biases=(convolved if conv_bias else 0) + (projected + hidden if bias else 0),
        norms=inner if norm else 0,
        other=convolved * kernel + 3 * heads,
    )


def delta_net(
    hidden: int, key_heads: int, value_heads: int, key_dim: int, value_dim: int, kernel: int
) -> LayerParams:
    """A gated delta net (Qwen3-Next's linear attention)."""
    keys, values = key_heads * key_dim, value_heads * value_dim
    return LayerParams(
        mixer=hidden * (2 * keys + 2 * values) + hidden * 2 * value_heads + values * hidden,
        norms=value_dim,
        other=(2 * keys + values) * kernel + 2 * value_heads,
    )
