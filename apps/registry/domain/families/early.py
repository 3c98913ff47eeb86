"""The families before Llama and their dialects: other names for the sizes, biases, learned positions, one norm."""

from __future__ import annotations

from apps.registry.domain.config_view import MOST_HEADS, Config
from apps.registry.domain.families import blocks
from apps.registry.domain.families.base import KV_HEADS, Family, Outside, Sizes
from apps.registry.domain.model_facts import LayerParams


class Gpt2(Family):
    """GPT-2: biases everywhere, learned positions, an MLP four times as wide, tied embeddings."""

    norm = "layer"
    tied = True
    qkv_bias = True
    out_bias = True
    mlp_bias = True
    gated = False
    position = "learned"

    def read_inner(self) -> int | None:
        """Four times the hidden size unless stated."""
        stated = super().read_inner()
        return stated or (4 * self.dims.hidden if self.dims.hidden else None)

    def outside(self, sizes: Sizes, tied: bool) -> Outside:
        """Token and position embeddings."""
        table = sizes.vocab * sizes.hidden
        positions = self.config.need("n_positions", "n_ctx", "max_position_embeddings", most=2**24)
        return Outside(
            table + positions * sizes.hidden, 0 if tied else table, self.norm_weights(sizes.hidden)
        )


class GptBigCode(Gpt2):
    """StarCoder 1 and SantaCoder: multi_query (on unless switched off) gives one key-value head."""

    def read_kv_heads(self) -> int | None:
        """One, or as many as heads."""
        return self.dims.heads if self.config.flag("multi_query") is False else 1


class GptNeo(Gpt2):
    """GPT-Neo: no bias on query, key and value; attention_types say which layers have window_size."""

    qkv_bias = False
    window_names = ("window_size",)
    window_period = 2

    def attention(self, sizes: Sizes, layer: int) -> LayerParams:
        """Attention of one layer."""
        return blocks.attention(sizes.hidden, sizes.heads, sizes.kv_heads, sizes.head_dim, out_bias=True)


class GptJ(Gpt2):
    """GPT-J: rotary positions, one norm before parallel blocks, an output projection with a bias."""

    tied = False
    norms_per_layer = 1
    position = "rope"

    def attention(self, sizes: Sizes, layer: int) -> LayerParams:
        """Attention of one layer."""
        return blocks.attention(sizes.hidden, sizes.heads, sizes.kv_heads, sizes.head_dim)

    def outside(self, sizes: Sizes, tied: bool) -> Outside:
        """Weights outside of the layers."""
        table = sizes.vocab * sizes.hidden
        return Outside(table, 0 if tied else table, self.norm_weights(sizes.hidden), sizes.vocab)


class GptNeoX(Gpt2):
    """GPT-NeoX and Pythia: fused projections with biases, two norms also where the blocks are parallel."""

    tied = False
    position = "rope"

    def outside(self, sizes: Sizes, tied: bool) -> Outside:
        """Weights outside of the layers."""
        return Family.outside(self, sizes, tied)


class Opt(Gpt2):
    """OPT: learned positions with two rows more; the smallest ones project their embeddings."""

    def outside(self, sizes: Sizes, tied: bool) -> Outside:
        """Weights outside of the layers."""
        width = self.config.whole("word_embed_proj_dim") or sizes.hidden
        positions = self.config.need("max_position_embeddings", most=2**24) + 2
        projections = 2 * width * sizes.hidden if width != sizes.hidden else 0
        last = self.config.flag("do_layer_norm_before") is not False
        return Outside(
            sizes.vocab * width + positions * sizes.hidden,
            0 if tied else sizes.vocab * width,
            self.norm_weights(sizes.hidden) if last else 0,
            projections,
        )


class Bloom(Gpt2):
    """BLOOM: ALiBi, a norm of the embeddings, biases everywhere."""

    position = "alibi"

    def outside(self, sizes: Sizes, tied: bool) -> Outside:
        """The embeddings have a norm of their own."""
        table = sizes.vocab * sizes.hidden
        return Outside(table, 0 if tied else table, 2 * self.norm_weights(sizes.hidden))


class Mpt(Family):
    """MPT: ALiBi, norms without bias, no biases; attn_config holds the key-value heads."""

    tied = True
    gated = False
    position = "alibi"

    def read_inner(self) -> int | None:
        """expansion_ratio times the hidden size, unless ffn_config says otherwise."""
        stated = self.config.whole("ffn_config.ffn_hidden_size")
        if stated or not self.dims.hidden:
            return stated
        return round((self.config.real("expansion_ratio") or 4) * self.dims.hidden)

    def read_kv_heads(self) -> int | None:
        """By attn_config.kv_n_heads, or one for multiquery_attention."""
        if self.config.get("attn_config.attn_type") == "multiquery_attention":
            return 1
        return self.config.whole("attn_config.kv_n_heads", most=MOST_HEADS) or self.dims.heads

    def attention(self, sizes: Sizes, layer: int) -> LayerParams:
        """Attention of one layer."""
        bias = self.config.flag("no_bias") is False
        return blocks.attention(
            sizes.hidden, sizes.heads, sizes.kv_heads, sizes.head_dim, qkv_bias=bias, out_bias=bias
        )

    def feed_forward(self, sizes: Sizes, layer: int) -> LayerParams:
        """The feed-forward part of one layer."""
        bias = self.config.flag("no_bias") is False
        return blocks.feed_forward(sizes.hidden, sizes.inner, gated=False, bias=bias)


class Falcon(Family):
    """Falcon: 7b (multi_query, one norm), 40b and 180b (new_decoder_architecture), rw (bias, ALiBi).

    RefinedWeb configurations of 2023 have n_head_kv; they are of the new architecture where it is above one.
    """

    norm = "layer"
    tied = True
    gated = False

    def _new(self) -> bool:
        stated = self.config.flag("new_decoder_architecture")
        if stated is not None:
            return stated
        return self.config.text("model_type") == "RefinedWeb" and self.config.has("n_head_kv")

    def read_inner(self) -> int | None:
        """Four times the hidden size unless stated."""
        stated = self.config.whole("ffn_hidden_size")
        return stated or (4 * self.dims.hidden if self.dims.hidden else None)

    def read_kv_heads(self) -> int | None:
        """num_kv_heads counts only for the new architecture; before it, multi_query means one."""
        if self._new():
            return self.config.whole(*KV_HEADS, most=MOST_HEADS) or self.dims.heads
        return self.dims.heads if self.config.flag("multi_query") is False else 1

    def attention(self, sizes: Sizes, layer: int) -> LayerParams:
        """Attention of one layer."""
        bias = bool(self.config.flag("bias"))
        return blocks.attention(
            sizes.hidden, sizes.heads, sizes.kv_heads, sizes.head_dim, qkv_bias=bias, out_bias=bias
        )

    def feed_forward(self, sizes: Sizes, layer: int) -> LayerParams:
        """The feed-forward part of one layer."""
        return blocks.feed_forward(
            sizes.hidden, sizes.inner, gated=False, bias=bool(self.config.flag("bias"))
        )

    def layer(self, sizes: Sizes, layer: int) -> LayerParams:
        """Two norms for the new architecture and for blocks one after the other, one for parallel blocks."""
        parallel = self.config.flag("parallel_attn") is not False
        stated = self.config.whole("num_ln_in_parallel_attn")
        before = 1 if parallel else 2
        count = stated or 2 if self._new() else before
        norms = LayerParams(norms=count * self.norm_weights(sizes.hidden))
        return blocks.add(self.attention(sizes, layer), self.feed_forward(sizes, layer), norms)


class Phi(Family):
    """Phi-1 to Phi-2: biases everywhere, one norm before parallel blocks; also in the first dialect (phi-msft)."""

    norm = "layer"
    norms_per_layer = 1
    gated = False
    mlp_bias = True

    def read_inner(self) -> int | None:
        """Four times the hidden size unless stated."""
        stated = super().read_inner()
        return stated or (4 * self.dims.hidden if self.dims.hidden else None)

    def attention(self, sizes: Sizes, layer: int) -> LayerParams:
        """Attention of one layer."""
        part = blocks.attention(
            sizes.hidden, sizes.heads, sizes.kv_heads, sizes.head_dim, qkv_bias=True, out_bias=True
        )
        both = 4 * sizes.head_dim if self.config.flag("qk_layernorm") else 0
        return blocks.add(part, LayerParams(norms=both))

    def outside(self, sizes: Sizes, tied: bool) -> Outside:
        """The output projection has a bias."""
        table = sizes.vocab * sizes.hidden
        return Outside(table, 0 if tied else table, self.norm_weights(sizes.hidden), sizes.vocab)


class Phi3Small(Family):
    """Phi-3-small: a fused gated MLP and attention with biases, layer norms, tied embeddings."""

    norm = "layer"
    tied = True
    qkv_bias = True
    out_bias = True
    mlp_bias = True


class Qwen(Family):
    """Qwen 1: intermediate_size counts both halves of the gated MLP; only query, key and value have biases."""

    def read_inner(self) -> int | None:
        """Half of what is stated."""
        stated = super().read_inner()
        return stated // 2 if stated else None

    def attention(self, sizes: Sizes, layer: int) -> LayerParams:
        """Attention of one layer."""
        return blocks.attention(sizes.hidden, sizes.heads, sizes.kv_heads, sizes.head_dim, qkv_bias=True)


class ChatGlm(Family):
    """ChatGLM 2 and 3, GLM-4-9B: multi_query_group_num key-value heads where multi_query_attention is on."""

    def read_kv_heads(self) -> int | None:
        """The groups count only where the switch is on."""
        if not self.config.flag("multi_query_attention"):
            return self.dims.heads
        return self.config.whole("multi_query_group_num", most=MOST_HEADS) or 1

    def attention(self, sizes: Sizes, layer: int) -> LayerParams:
        """Attention of one layer."""
        linear = bool(self.config.flag("add_bias_linear"))
        return blocks.attention(
            sizes.hidden,
            sizes.heads,
            sizes.kv_heads,
            sizes.head_dim,
            qkv_bias=linear or bool(self.config.flag("add_qkv_bias")),
            out_bias=linear,
        )

    def feed_forward(self, sizes: Sizes, layer: int) -> LayerParams:
        """The feed-forward part of one layer."""
        return blocks.feed_forward(sizes.hidden, sizes.inner, bias=bool(self.config.flag("add_bias_linear")))


class ChatGlm1(Gpt2):
    """ChatGLM-6B of 2023: two-dimensional rotary positions, an MLP without a gate, biases, tied embeddings."""

    position = "rope"

    def outside(self, sizes: Sizes, tied: bool) -> Outside:
        """Weights outside of the layers."""
        return Family.outside(self, sizes, tied)


def chatglm(config: Config) -> Family:
    """The first ChatGLM is told apart by its own names."""
    return ChatGlm1(config) if config.has("position_encoding_2d", "inner_hidden_size") else ChatGlm(config)
