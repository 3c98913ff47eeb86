"""Mixture-of-experts families and those with multi-head latent attention."""

from __future__ import annotations

from functools import cached_property

from apps.registry.domain.config_view import MOST_HEADS, MOST_LAYERS
from apps.registry.domain.families import blocks
from apps.registry.domain.families.base import EXPERTS, TOP_K, Cached, Dims, Family, Outside, Sizes
from apps.registry.domain.families.dense import Granite, Mistral, Qwen3
from apps.registry.domain.model_facts import LayerParams, Mla, Moe


class Sparse(Family):
    """Routed experts in all layers but those of `dense_layers`; shared ones where the configuration has them."""

    router_bias = False
    shared_gate = False
    correction = False

    def expert_width(self) -> int | None:
        """Width of one routed expert."""
        return self.config.whole("moe_intermediate_size", "expert_ffn_hidden_size") or self.dims.inner

    def shared_width(self) -> int | None:
        """Width of all shared experts together."""
        stated = self.config.whole("shared_expert_intermediate_size", "shared_intermediate_size")
        if stated is not None:
            return stated
        count = self.config.whole("n_shared_experts", "num_shared_experts", most=MOST_HEADS, least=0)
        width = self.expert_width()
        return count * width if count and width else None

    def dense_layers(self) -> tuple[int, ...]:
        """Layers with a plain feed-forward block."""
        layers = self.dims.layers or 0
        only = set(self.config.wholes("mlp_only_layers", MOST_LAYERS) or ())
        step = self.config.whole("decoder_sparse_step", "moe_layer_freq", most=MOST_LAYERS) or 1
        first = self.config.whole("first_k_dense_replace", most=MOST_LAYERS, least=0) or 0
        return tuple(
            layer for layer in range(layers) if layer in only or layer < first or self._skipped(layer, step)
        )

    def _skipped(self, layer: int, step: int) -> bool:
        # Qwen counts layers from one: with a step of two the second, fourth... have experts.
        return (layer + 1) % step != 0

    def count(self) -> int | None:
        """Routed experts of a layer."""
        return self.config.whole(*EXPERTS, most=MOST_HEADS)

    def moe(self) -> Moe | None:
        """The experts."""
        count = self.count()
        if count is None:
            return None
        shared = self.config.whole("n_shared_experts", "num_shared_experts", most=MOST_HEADS, least=0)
        return Moe(
            num_experts=count,
            experts_per_token=self.config.whole(*TOP_K, most=MOST_HEADS),
            moe_intermediate_size=self.expert_width(),
            num_shared_experts=shared or (1 if self.shared_width() else None),
            shared_intermediate_size=self.shared_width(),
            dense_layers=self.dense_layers(),
        )

    def sparse(self, sizes: Sizes) -> LayerParams:
        """Experts, router and shared experts of one layer."""
        count = self.config.need(*EXPERTS, most=MOST_HEADS)
        part = blocks.experts(
            sizes.hidden,
            count,
            self.expert_width() or sizes.inner,
            gated=self.gated,
            router_bias=self.router_bias,
        )
        if shared := self.shared_width():
            part = blocks.add(
                part, blocks.shared_experts(sizes.hidden, shared, gate=self.shared_gate, gated=self.gated)
            )
        return blocks.add(part, LayerParams(router=count if self.correction else 0))

    def feed_forward(self, sizes: Sizes, layer: int) -> LayerParams:
        """Experts, or a plain block in the dense layers."""
        if layer in self.dense:
            return super().feed_forward(sizes, layer)
        return self.sparse(sizes)

    @cached_property
    def dense(self) -> frozenset[int]:
        """The same as dense_layers, to look up in."""
        return frozenset(self.dense_layers())


class Mixtral(Sparse, Mistral):
    """Mixtral: intermediate_size is that of one expert."""


class Qwen2Moe(Sparse):
    """Qwen1.5-MoE and Qwen2-MoE: one shared expert with a gate; biases on query, key and value."""

    window_flag = True
    shared_gate = True

    def attention(self, sizes: Sizes, layer: int) -> LayerParams:
        """Attention of one layer."""
        bias = self.bias("qkv_bias", True)
        return blocks.attention(sizes.hidden, sizes.heads, sizes.kv_heads, sizes.head_dim, qkv_bias=bias)


class Qwen3Moe(Sparse, Qwen3):
    """Qwen3-MoE: no shared expert."""


class Olmoe(Sparse):
    """OLMoE: norms of queries and keys over all heads."""

    qk_norm = "full"


class PhiMoe(Sparse):
    """Phi-3.5-MoE: layer norms, biases on attention and on the output projection."""

    norm = "layer"

    def attention(self, sizes: Sizes, layer: int) -> LayerParams:
        """Attention of one layer."""
        bias = self.bias("attention_bias", False)
        return blocks.attention(
            sizes.hidden, sizes.heads, sizes.kv_heads, sizes.head_dim, qkv_bias=bias, out_bias=bias
        )

    def outside(self, sizes: Sizes, tied: bool) -> Outside:
        """Weights outside of the layers."""
        found = super().outside(sizes, tied)
        bias = sizes.vocab if self.config.flag("lm_head_bias") else 0
        return Outside(found.embedding, found.lm_head, found.norms, bias)


class GraniteMoe(Sparse, Granite):
    """Granite 3 MoE."""


class Dbrx(Sparse):
    """DBRX: sizes in attn_config and ffn_config; norms without bias."""


class Ernie45Moe(Sparse):
    """ERNIE 4.5 MoE: experts from moe_layer_start_index on, every moe_layer_interval layers."""

    def expert_width(self) -> int | None:
        """Width of one routed expert."""
        return self.config.whole("moe_intermediate_size")

    def shared_width(self) -> int | None:
        """Width of all shared experts together."""
        count = self.config.whole("moe_num_shared_experts", most=MOST_HEADS, least=0)
        width = self.expert_width()
        return count * width if count and width else None

    def dense_layers(self) -> tuple[int, ...]:
        """Layers before the first with experts, after the last, or between."""
        start = self.config.whole("moe_layer_start_index", most=MOST_LAYERS, least=0) or 0
        end = self.config.get("moe_layer_end_index")
        last = end if isinstance(end, int) and end >= 0 else MOST_LAYERS
        every = self.config.whole("moe_layer_interval", most=MOST_LAYERS) or 1
        layers = self.dims.layers or 0
        return tuple(
            layer for layer in range(layers) if not start <= layer <= last or (layer + 1) % every != 0
        )

    def sparse(self, sizes: Sizes) -> LayerParams:
        """The router has a correction bias for each expert."""
        count = self.config.need(*EXPERTS, most=MOST_HEADS)
        return blocks.add(super().sparse(sizes), LayerParams(router=count))


class Llama4(Sparse):
    """Llama 4: a shared expert as wide as a routed one; dense layers have intermediate_size_mlp."""

    def expert_width(self) -> int | None:
        """Width of one routed expert."""
        return self.dims.inner

    def shared_width(self) -> int | None:
        """Width of the shared expert."""
        return self.dims.inner

    def dense_layers(self) -> tuple[int, ...]:
        """By moe_layers, else every interleave_moe_layer_step-th layer has experts."""
        layers = self.dims.layers or 0
        listed = self.config.wholes("moe_layers", MOST_LAYERS)
        if listed:
            return tuple(layer for layer in range(layers) if layer not in listed)
        step = self.config.whole("interleave_moe_layer_step", most=MOST_LAYERS) or 1
        return tuple(layer for layer in range(layers) if (layer + 1) % step != 0)

    def feed_forward(self, sizes: Sizes, layer: int) -> LayerParams:
        """Experts, or the wide dense block."""
        if layer in self.dense:
            return blocks.feed_forward(sizes.hidden, self.config.need("intermediate_size_mlp"))
        return self.sparse(sizes)


class GptOss(Sparse):
    """gpt-oss: biases everywhere, one sink for each head, windows on every other layer, the first one too."""

    router_bias = True
    window_period = 2

    def attention(self, sizes: Sizes, layer: int) -> LayerParams:
        """Attention of one layer."""
        bias = self.bias("attention_bias", True)
        part = blocks.attention(
            sizes.hidden, sizes.heads, sizes.kv_heads, sizes.head_dim, qkv_bias=bias, out_bias=bias
        )
        return blocks.add(part, LayerParams(other=sizes.heads))

    def sparse(self, sizes: Sizes) -> LayerParams:
        """Experts with biases."""
        count = self.config.need(*EXPERTS, most=MOST_HEADS)
        return blocks.add(super().sparse(sizes), LayerParams(biases=count * (2 * sizes.inner + sizes.hidden)))


class DeepSeek(Sparse):
    """DeepSeekMoE (16B): the first layers dense, shared experts; plain attention."""

    def _skipped(self, layer: int, step: int) -> bool:
        return layer % step != 0

    def dense_layers(self) -> tuple[int, ...]:
        """All layers where there are no routed experts."""
        return tuple(range(self.dims.layers or 0)) if self.count() is None else super().dense_layers()


class DeepSeekV2(DeepSeek):
    """DeepSeek V2, V2-Lite: multi-head latent attention."""

    def read(self) -> Dims:
        """Heads have a part without and a part with rotary position."""
        dims = super().read()
        latent = self.mla()
        if latent is None:
            return dims
        if latent.qk_nope_head_dim is not None:
            dims.head_dim = latent.qk_nope_head_dim + latent.qk_rope_head_dim
        dims.value_dim = latent.v_head_dim
        return dims

    def mla(self) -> Mla | None:
        """The latent's sizes."""
        config = self.config
        rank = config.whole("kv_lora_rank")
        rotary = config.whole("qk_rope_head_dim", most=MOST_HEADS)
        if rank is None or rotary is None:
            return None
        return Mla(
            kv_lora_rank=rank,
            qk_rope_head_dim=rotary,
            qk_nope_head_dim=config.whole("qk_nope_head_dim", most=MOST_HEADS),
            v_head_dim=config.whole("v_head_dim", most=MOST_HEADS),
            q_lora_rank=config.whole("q_lora_rank"),
        )

    def kinds(self) -> list[str] | None:
        """Latent attention in every layer."""
        return None if self.dims.layers is None else ["mla"] * self.dims.layers

    def cached(self, layer: int, kind: str) -> Cached:
        """One latent and its rotary part, for all heads together."""
        latent = self.mla()
        if latent is None:
            return Cached(None)
        return Cached(latent.kv_lora_rank + latent.qk_rope_head_dim)

    def attention(self, sizes: Sizes, layer: int) -> LayerParams:
        """Attention of one layer."""
        config = self.config
        return blocks.latent_attention(
            sizes.hidden,
            sizes.heads,
            q_lora=config.whole("q_lora_rank"),
            kv_lora=config.need("kv_lora_rank"),
            nope=config.need("qk_nope_head_dim", most=MOST_HEADS),
            rope=config.need("qk_rope_head_dim", most=MOST_HEADS),
            value=config.need("v_head_dim", most=MOST_HEADS),
        )


class DeepSeekV3(DeepSeekV2):
    """DeepSeek V3, R1 and Kimi K2: a correction of the router; layers for multi-token prediction beside the model."""

    correction = True

    def mtp(self, sizes: Sizes) -> int | None:
        """A layer with experts, two norms, a projection, and copies of embedding, norm and output projection."""
        count = self.config.whole("num_nextn_predict_layers", most=64, least=0)
        if not count:
            return None
        layer = self.layer(sizes, sizes.layers).total()
        table = sizes.vocab * sizes.hidden
        return count * (layer + 3 * sizes.hidden + 2 * sizes.hidden**2 + 2 * table)


class DeepSeekV32(DeepSeekV3):
    """DeepSeek V3.2: a lightning indexer beside each attention, which keeps keys of its own."""

    def attention(self, sizes: Sizes, layer: int) -> LayerParams:
        """Attention of one layer with its indexer."""
        heads = self.config.need("index_n_heads", most=MOST_HEADS)
        width = self.config.need("index_head_dim", most=MOST_HEADS)
        rank = self.config.need("q_lora_rank")
        indexer = LayerParams(
            attention_replicated=rank * heads * width + sizes.hidden * width + sizes.hidden * heads,
            norms=2 * width,
        )
        return blocks.add(super().attention(sizes, layer), indexer)


class MiniCpm3(DeepSeekV2):
    """MiniCPM 3: latent attention with dense feed-forward blocks."""

    tied = True


class Glm4Moe(DeepSeek):
    """GLM-4.5 and 4.6: DeepSeek's experts with plain attention; biases and norms of queries and keys as stated."""

    correction = True

    def attention(self, sizes: Sizes, layer: int) -> LayerParams:
        """Attention of one layer."""
        part = blocks.attention(
            sizes.hidden,
            sizes.heads,
            sizes.kv_heads,
            sizes.head_dim,
            qkv_bias=self.bias("attention_bias", False),
        )
        norms = 2 * sizes.head_dim if self.config.flag("use_qk_norm") else 0
        return blocks.add(part, LayerParams(norms=norms))

    def mtp(self, sizes: Sizes) -> int | None:
        """As DeepSeek V3's."""
        count = self.config.whole("num_nextn_predict_layers", most=64, least=0)
        if not count:
            return None
        layer = self.layer(sizes, sizes.layers).total()
        return count * (layer + 3 * sizes.hidden + 2 * sizes.hidden**2 + 2 * sizes.vocab * sizes.hidden)
