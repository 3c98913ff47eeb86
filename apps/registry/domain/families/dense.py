"""Decoders with one dense feed-forward block in each layer, from Llama on. Shapes are those of transformers."""

from __future__ import annotations

from apps.registry.domain.families import blocks
from apps.registry.domain.families.base import Cached, Family, Outside, Sizes
from apps.registry.domain.model_facts import LayerParams


class Llama(Family):
    """Llama 1-3, Yi, Vicuna, DeepSeek-Coder, SmolLM, TinyLlama: attention_bias covers the output projection."""


class Mistral(Llama):
    """Mistral and Ministral: never a bias."""

    def attention(self, sizes: Sizes, layer: int) -> LayerParams:
        """Attention of one layer."""
        return blocks.attention(sizes.hidden, sizes.heads, sizes.kv_heads, sizes.head_dim)


class Qwen2(Family):
    """Qwen 1.5, 2 and 2.5: biases on query, key and value."""

    window_flag = True

    def attention(self, sizes: Sizes, layer: int) -> LayerParams:
        """Attention of one layer."""
        return blocks.attention(sizes.hidden, sizes.heads, sizes.kv_heads, sizes.head_dim, qkv_bias=True)


class Qwen3(Family):
    """Qwen 3: an explicit head size, norms of queries and keys over each head."""

    qk_norm = "head"
    window_flag = True
    head_dim_default = 128


class Gemma(Family):
    """Gemma 1: head size 256 unless stated, tied embeddings."""

    tied = True
    head_dim_default = 256


class Gemma2(Gemma):
    """Gemma 2: norms before and after both blocks; every other layer has the window, the first one too."""

    norms_per_layer = 4
    window_period = 2


class Gemma3(Gemma2):
    """Gemma 3: norms of queries and keys; five layers with the window, then a full one."""

    qk_norm = "head"
    window_period = 6


class Phi3(Family):
    """Phi-3 and Phi-4: fused projections of the same shapes as Llama's, no bias."""


class Granite(Llama):
    """Granite 3."""


class Smollm3(Llama):
    """SmolLM3: tied embeddings unless stated; some layers have no rotary embedding."""

    tied = True
    window_flag = True


class Cohere(Family):
    """Command R: parallel blocks after one norm, tied embeddings, norms of queries and keys with use_qk_norm."""

    tied = True
    norms_per_layer = 1

    def qk_norms(self, sizes: Sizes, kv: int) -> int:
        """One weight for each value of each head."""
        return (sizes.heads + kv) * sizes.head_dim if self.config.flag("use_qk_norm") else 0


class Cohere2(Cohere):
    """Command R7B and A: three layers with the window, then a full one."""

    window_period = 4


class Olmo(Family):
    """OLMo 1: norms without weights."""

    norm = "none"


class Olmo2(Family):
    """OLMo 2 and 3: norms after both blocks, norms of queries and keys over all heads."""

    qk_norm = "full"
    window_period = 4


class StableLm(Family):
    """StableLM: layer norms with bias; use_qkv_bias; per-head norms with qk_layernorm, one norm where parallel."""

    norm = "layer"

    def attention(self, sizes: Sizes, layer: int) -> LayerParams:
        """Attention of one layer."""
        part = blocks.attention(
            sizes.hidden,
            sizes.heads,
            sizes.kv_heads,
            sizes.head_dim,
            qkv_bias=self.bias("use_qkv_bias", False),
        )
        each = sizes.head_dim * (sizes.heads + sizes.kv_heads)
        return blocks.add(part, LayerParams(norms=each if self.config.flag("qk_layernorm") else 0))

    def layer(self, sizes: Sizes, layer: int) -> LayerParams:
        """All weights of one layer."""
        count = 1 if self.config.flag("use_parallel_residual") else 2
        norms = LayerParams(norms=count * self.norm_weights(sizes.hidden))
        return blocks.add(self.attention(sizes, layer), self.feed_forward(sizes, layer), norms)


class Internlm(Family):
    """InternLM 1: `bias` covers query, key, value and output."""

    def attention(self, sizes: Sizes, layer: int) -> LayerParams:
        """Attention of one layer."""
        bias = self.bias("bias", True)
        return blocks.attention(
            sizes.hidden, sizes.heads, sizes.kv_heads, sizes.head_dim, qkv_bias=bias, out_bias=bias
        )


class Internlm2(Internlm):
    """InternLM 2 and 2.5: fused projections, `bias` is off."""

    def attention(self, sizes: Sizes, layer: int) -> LayerParams:
        """Attention of one layer."""
        bias = self.bias("bias", False)
        return blocks.attention(
            sizes.hidden, sizes.heads, sizes.kv_heads, sizes.head_dim, qkv_bias=bias, out_bias=bias
        )


class Internlm3(Family):
    """InternLM 3: `qkv_bias` for query, key and value, `bias` for the others."""

    def attention(self, sizes: Sizes, layer: int) -> LayerParams:
        """Attention of one layer."""
        return blocks.attention(
            sizes.hidden,
            sizes.heads,
            sizes.kv_heads,
            sizes.head_dim,
            qkv_bias=self.bias("qkv_bias", False),
            out_bias=self.bias("bias", False),
        )


class Nemotron(Family):
    """Nemotron 3/4 and Minitron: layer norms with bias, squared ReLU without a gate."""

    norm = "layer"
    gated = False


class Arcee(Llama):
    """Arcee AFM: Llama with a squared ReLU without a gate."""

    gated = False


class Starcoder2(Family):
    """StarCoder 2: layer norms, use_bias everywhere, an MLP without a gate, tied embeddings."""

    norm = "layer"
    tied = True

    def attention(self, sizes: Sizes, layer: int) -> LayerParams:
        """Attention of one layer."""
        bias = self.bias("use_bias", True)
        return blocks.attention(
            sizes.hidden, sizes.heads, sizes.kv_heads, sizes.head_dim, qkv_bias=bias, out_bias=bias
        )

    def feed_forward(self, sizes: Sizes, layer: int) -> LayerParams:
        """The feed-forward part of one layer."""
        return blocks.feed_forward(sizes.hidden, sizes.inner, gated=False, bias=self.bias("use_bias", True))


class Orion(Llama):
    """Orion: Llama with layer norms."""

    norm = "layer"


class Glm(Family):
    """GLM-4 in transformers' form: biases on query, key and value."""

    norms_per_layer = 2
    head_dim_default = 128

    def attention(self, sizes: Sizes, layer: int) -> LayerParams:
        """Attention of one layer."""
        return blocks.attention(
            sizes.hidden,
            sizes.heads,
            sizes.kv_heads,
            sizes.head_dim,
            qkv_bias=self.bias("attention_bias", True),
        )


class Glm4(Glm):
    """GLM-4-0414: norms before and after both blocks; no bias unless stated."""

    norms_per_layer = 4

    def attention(self, sizes: Sizes, layer: int) -> LayerParams:
        """Attention of one layer."""
        return blocks.attention(
            sizes.hidden,
            sizes.heads,
            sizes.kv_heads,
            sizes.head_dim,
            qkv_bias=self.bias("attention_bias", False),
        )


class SeedOss(Family):
    """Seed-OSS: attention_bias for query, key and value, attention_out_bias for the output."""

    def attention(self, sizes: Sizes, layer: int) -> LayerParams:
        """Attention of one layer."""
        return blocks.attention(
            sizes.hidden,
            sizes.heads,
            sizes.kv_heads,
            sizes.head_dim,
            qkv_bias=self.bias("attention_bias", True),
            out_bias=self.bias("attention_out_bias", False),
        )


class Baichuan(Family):
    """Baichuan 1 and 2: fused query, key and value of the same shapes as Llama's."""


class Exaone(Family):
    """EXAONE 3: Llama's shapes under other names."""


class Exaone4(Family):
    """EXAONE 4: norms after both blocks, norms of queries and keys over each head; LLLG windows."""

    qk_norm = "head"
    window_period = 4


class Mllama(Llama):
    """Llama 3.2 Vision: cross-attention layers among the others, eight more rows of embeddings."""

    def kinds(self) -> list[str] | None:
        """cross_attention at the indices that the configuration lists."""
        kinds = super().kinds()
        crossing = self.config.wholes("cross_attention_layers") or (3, 8, 13, 18, 23, 28, 33, 38)
        if kinds is not None:
            for layer in crossing:
                if layer < len(kinds):
                    kinds[layer] = "cross_attention"
        return kinds

    def layer(self, sizes: Sizes, layer: int) -> LayerParams:
        """All weights of one layer; a crossing one has norms over each head and two gates."""
        crossing = (self.kinds() or [])[layer] == "cross_attention"
        extra = LayerParams(norms=2 * sizes.head_dim, other=2) if crossing else LayerParams()
        return blocks.add(super().layer(sizes, layer), extra)

    def outside(self, sizes: Sizes, tied: bool) -> Outside:
        """The embedding table has eight rows more than the vocabulary."""
        table = sizes.vocab * sizes.hidden
        return Outside(table + 8 * sizes.hidden, 0 if tied else table, sizes.hidden)


class Gemma3n(Gemma2):
    """Gemma 3n: embeddings for each layer, alternating updates, low-rank residuals; the last layers share caches."""

    qk_norm = "head"
    window_period = 5

    def read_inner(self) -> int | None:
        """The width is stated once, or for each layer."""
        if isinstance(self.config.get("intermediate_size"), list):
            found = self.config.wholes("intermediate_size", least=1)
            return max(found) if found else None
        return super().read_inner()

    def _side(self) -> int:
        return self.config.need("hidden_size_per_layer_input")

    def feed_forward(self, sizes: Sizes, layer: int) -> LayerParams:
        """The feed-forward part of one layer."""
        listed = self.config.get("intermediate_size")
        widths = self.config.wholes("intermediate_size", least=1) if isinstance(listed, list) else None
        inner = widths[layer] if widths and layer < len(widths) else sizes.inner
        return blocks.feed_forward(sizes.hidden, inner)

    def layer(self, sizes: Sizes, layer: int) -> LayerParams:
        """All weights of one layer."""
        hidden, side = sizes.hidden, self._side()
        inputs, rank = self.config.need("altup_num_inputs"), self.config.need("laurel_rank")
        altup = inputs * inputs + inputs**3 + hidden * inputs
        part = LayerParams(other=altup + 2 * hidden * rank + 2 * hidden * side, norms=4 * hidden)
        return blocks.add(super().layer(sizes, layer), part)

    def outside(self, sizes: Sizes, tied: bool) -> Outside:
        """Weights outside of the layers."""
        hidden, side = sizes.hidden, self._side()
        rows = self.config.whole("vocab_size_per_layer_input", most=2**28) or sizes.vocab
        altup = 2 * (self.config.need("altup_num_inputs") - 1) * hidden * hidden
        table = sizes.vocab * hidden + rows * sizes.layers * side
        return Outside(table, 0, hidden + side, altup + hidden * sizes.layers * side)

    def cached(self, layer: int, kind: str) -> Cached:
        """The last layers use the cache of earlier ones."""
        shared = self.config.whole("num_kv_shared_layers", least=0) or 0
        if self.dims.layers is not None and layer >= self.dims.layers - shared:
            return Cached(0)
        return super().cached(layer, kind)
