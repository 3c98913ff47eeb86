"""Models that mix attention with state-space blocks, linear attention or convolutions."""

from __future__ import annotations

import math

from apps.registry.domain.config_view import MOST_HEADS, MOST_LAYERS
from apps.registry.domain.families import blocks
from apps.registry.domain.families.base import Cached, Sizes
from apps.registry.domain.families.experts import Sparse
from apps.registry.domain.families.state_space import mamba2_block, mamba2_sizes, mamba2_state
from apps.registry.domain.model_facts import LayerParams


class Hybrid(Sparse):
    """Attention in some layers, a Mamba-2 block in the others."""

    def attending(self, layer: int) -> bool:
        """Whether a layer has attention: by layer_types or layers_block_type."""
        words = self.config.words("layer_types") or self.config.words("layers_block_type") or ()
        return layer < len(words) and words[layer] in ("attention", "full_attention")

    def kinds(self) -> list[str] | None:
        """attention or mamba."""
        layers = self.dims.layers
        if layers is None:
            return None
        return ["attention" if self.attending(layer) else "mamba" for layer in range(layers)]

    def mixer(self, sizes: Sizes, layer: int) -> LayerParams:
        """What stands in attention's place."""
        return mamba2_block(self, sizes.hidden)

    def layer(self, sizes: Sizes, layer: int) -> LayerParams:
        """Attention or the mixer, a feed-forward part, two norms."""
        part = self.attention(sizes, layer) if self.attending(layer) else self.mixer(sizes, layer)
        norms = LayerParams(norms=2 * self.norm_weights(sizes.hidden))
        return blocks.add(part, self.feed_forward(sizes, layer), norms)

    def state(self) -> int:
        """Values that a sequence keeps in one layer without attention."""
        return mamba2_state(self)

    def cached(self, layer: int, kind: str) -> Cached:
        """Keys and values, or a state of fixed size."""
        return super().cached(layer, kind) if kind == "attention" else Cached(0, self.state())

    def dense_layers(self) -> tuple[int, ...]:
        """All layers where there are no routed experts."""
        return tuple(range(self.dims.layers or 0)) if self.count() is None else super().dense_layers()


class Jamba(Hybrid):
    """Jamba: attention and experts each at a period and an offset; Mamba 1 with norms of its parts."""

    position = "none"

    def _every(self, name: str, layer: int, period: int, offset: int) -> bool:
        every = self.config.whole(f"{name}_layer_period", most=MOST_LAYERS) or period
        start = self.config.whole(f"{name}_layer_offset", most=MOST_LAYERS, least=0)
        return layer % every == (offset if start is None else start)

    def attending(self, layer: int) -> bool:
        """By period and offset."""
        return self._every("attn", layer, 8, 4)

    def dense_layers(self) -> tuple[int, ...]:
        """Layers outside of the experts' period; one expert is none."""
        alone = (self.count() or 1) == 1
        layers = range(self.dims.layers or 0)
        return tuple(layer for layer in layers if alone or not self._every("expert", layer, 2, 1))

    def _shape(self, hidden: int) -> tuple[int, int, int, int]:
        config = self.config
        rank = config.get("mamba_dt_rank")
        return (
            round((config.real("mamba_expand") or 2) * hidden),
            config.whole("mamba_d_state") or 16,
            config.whole("mamba_d_conv") or 4,
            math.ceil(hidden / 16) if rank in (None, "auto") else config.need("mamba_dt_rank"),
        )

    def attention(self, sizes: Sizes, layer: int) -> LayerParams:
        """Attention without biases."""
        return blocks.attention(sizes.hidden, sizes.heads, sizes.kv_heads, sizes.head_dim)

    def mixer(self, sizes: Sizes, layer: int) -> LayerParams:
        """A Mamba block with norms of B, C and the time step."""
        inner, state, kernel, rank = self._shape(sizes.hidden)
        block = blocks.mamba1(
            sizes.hidden,
            inner,
            state,
            kernel,
            rank,
            conv_bias=self.bias("mamba_conv_bias", True),
            bias=self.bias("mamba_proj_bias", False),
        )
        return blocks.add(block, LayerParams(norms=rank + 2 * state))

    def state(self) -> int:
        """Values that a sequence keeps in one Mamba layer."""
        inner, state, kernel, _rank = self._shape(self.dims.hidden or 0)
        return inner * (kernel + state)


class Bamba(Hybrid):
    """Bamba: attention at the indices listed."""

    def attending(self, layer: int) -> bool:
        """By attn_layer_indices."""
        return layer in (self.config.wholes("attn_layer_indices", MOST_LAYERS) or ())


class GraniteHybrid(Hybrid):
    """Granite 4: Mamba-2 and attention by layer_types; a shared MLP in every layer, experts in the larger ones."""

    tied = True

    def count(self) -> int | None:
        """Routed experts; 0 means none."""
        return self.config.whole("num_local_experts", most=MOST_HEADS, least=0) or None

    def feed_forward(self, sizes: Sizes, layer: int) -> LayerParams:
        """The shared MLP, with experts where there are."""
        shared = self.config.need("shared_intermediate_size")
        if self.count() is None:
            return blocks.feed_forward(sizes.hidden, shared)
        return self.sparse(sizes)


class FalconH1(Hybrid):
    """Falcon H1: attention and a Mamba-2 block side by side in every layer."""

    def attending(self, layer: int) -> bool:
        """Always."""
        return True

    def layer(self, sizes: Sizes, layer: int) -> LayerParams:
        """Both mixers; the Mamba block's norm is a switch."""
        block = mamba2_block(self, sizes.hidden, norm=bool(self.config.flag("mamba_rms_norm")))
        return blocks.add(super().layer(sizes, layer), block)

    def cached(self, layer: int, kind: str) -> Cached:
        """Keys and values, and a state."""
        return Cached(super().cached(layer, kind).per_token, self.state())


class NemotronH(Sparse):
    """Nemotron-H and Nemotron 3: one block in each layer.

    hybrid_override_pattern has a letter for each: M Mamba, * attention, - MLP, E experts.
    """

    gated = False
    position = "none"
    KINDS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "mlp"}

    def read_inner(self) -> int | None:
        """Width of the dense blocks."""
        return self.config.whole("intermediate_size")

    def _pattern(self) -> str:
        return self.config.text("hybrid_override_pattern") or ""

    def kinds(self) -> list[str] | None:
        """By the pattern, where it has a letter for each layer."""
        pattern, layers = self._pattern(), self.dims.layers
        if layers is None or len(pattern) != layers or not set(pattern) <= set(self.KINDS):
            self.config.say(
                "layer_pattern_invalid",
                "warning",
                f"hybrid_override_pattern does not say the kind of each of {layers} layers.",
                "hybrid_override_pattern",
                "Fetch config.json again.",
            )
            return None
        return [self.KINDS[letter] for letter in pattern]

    def dense_layers(self) -> tuple[int, ...]:
        """All layers but those with experts."""
        return tuple(layer for layer, letter in enumerate(self._pattern()) if letter != "E")

    def shared_width(self) -> int | None:
        """Width of all shared experts together."""
        width = self.config.whole("moe_shared_expert_intermediate_size")
        count = self.config.whole("n_shared_experts", most=MOST_HEADS, least=0)
        return count * width if count and width else None

    def layer(self, sizes: Sizes, layer: int) -> LayerParams:
        """One block and its norm."""
        letter = self._pattern()[layer]
        norm = LayerParams(norms=sizes.hidden)
        if letter == "M":
            return blocks.add(mamba2_block(self, sizes.hidden), norm)
        if letter == "*":
            return blocks.add(self.attention(sizes, layer), norm)
        if letter == "E":
            experts = self.config.need("n_routed_experts", most=MOST_HEADS)
            return blocks.add(self.sparse(sizes), LayerParams(router=experts), norm)
        return blocks.add(blocks.feed_forward(sizes.hidden, sizes.inner, gated=False), norm)

    def cached(self, layer: int, kind: str) -> Cached:
        """Keys and values, a state, or nothing."""
        return Cached(0, mamba2_state(self)) if kind == "mamba" else super().cached(layer, kind)

    def tp_rules(self) -> list[tuple[str, int]]:
        """State-space heads are spread over ranks."""
        return [("state-space heads", mamba2_sizes(self)[0])]


class Qwen3Next(Hybrid):
    """Qwen3-Next: three gated delta nets, then gated attention; experts with a gated shared one."""

    qk_norm = "head"
    shared_gate = True
    head_dim_default = 256

    def attending(self, layer: int) -> bool:
        """By layer_types, else every full_attention_interval-th."""
        words = self.config.words("layer_types")
        if words is not None:
            return layer < len(words) and words[layer] == "full_attention"
        every = self.config.whole("full_attention_interval", most=MOST_LAYERS) or 4
        return (layer + 1) % every == 0

    def kinds(self) -> list[str] | None:
        """attention or linear."""
        kinds = super().kinds()
        return kinds and ["linear" if kind == "mamba" else kind for kind in kinds]

    def attention(self, sizes: Sizes, layer: int) -> LayerParams:
        """Attention whose output has a gate."""
        bias = self.bias("attention_bias", False)
        part = blocks.attention(
            sizes.hidden,
            sizes.heads,
            sizes.kv_heads,
            sizes.head_dim,
            qkv_bias=bias,
            out_bias=bias,
            gated=True,
        )
        return blocks.add(part, LayerParams(norms=2 * sizes.head_dim))

    def _linear(self) -> tuple[int, int, int, int, int]:
        config = self.config
        return (
            config.need("linear_num_key_heads", most=MOST_HEADS),
            config.need("linear_num_value_heads", most=MOST_HEADS),
            config.need("linear_key_head_dim", most=MOST_HEADS),
            config.need("linear_value_head_dim", most=MOST_HEADS),
            config.need("linear_conv_kernel_dim", most=MOST_HEADS),
        )

    def mixer(self, sizes: Sizes, layer: int) -> LayerParams:
        """A gated delta net."""
        return blocks.delta_net(sizes.hidden, *self._linear())

    def state(self) -> int:
        """Values that a sequence keeps in one delta net."""
        keys, values, key_dim, value_dim, kernel = self._linear()
        return kernel * (2 * keys * key_dim + values * value_dim) + values * key_dim * value_dim

    def tp_rules(self) -> list[tuple[str, int]]:
        """Heads of the delta nets are spread over ranks."""
        keys, values, *_ = self._linear()
        return [("linear_num_key_heads", keys), ("linear_num_value_heads", values)]


class Lfm2(Hybrid):
    """LFM2: short convolutions, attention in between, tied embeddings."""

    tied = True
    qk_norm = "head"

    def attending(self, layer: int) -> bool:
        """By layer_types or full_attn_idxs."""
        listed = self.config.wholes("full_attn_idxs", MOST_LAYERS)
        return layer in listed if listed is not None else super().attending(layer)

    def read_inner(self) -> int | None:
        """The width stated is brought down to two thirds and up to a multiple, unless switched off."""
        stated = self.config.whole("block_ff_dim", "intermediate_size")
        if stated is None or self.config.flag("block_auto_adjust_ff_dim") is False:
            return stated
        width = int(2 * stated / 3 * (self.config.real("block_ffn_dim_multiplier") or 1))
        multiple = self.config.whole("block_multiple_of") or 256
        return -(-width // multiple) * multiple

    def mixer(self, sizes: Sizes, layer: int) -> LayerParams:
        """A gated short convolution."""
        kernel = self.config.whole("conv_L_cache", most=65_536) or 3
        return LayerParams(mixer=4 * sizes.hidden**2, other=sizes.hidden * kernel)

    def state(self) -> int:
        """The convolution's last inputs."""
        return (self.dims.hidden or 0) * (self.config.whole("conv_L_cache", most=65_536) or 3)


class Zamba2(Hybrid):
    """Zamba 2: Mamba-2 layers, and attention blocks shared among layers with adapters of their own."""

    counted = False

    def attending(self, layer: int) -> bool:
        """Where layers_block_type says hybrid."""
        words = self.config.words("layers_block_type") or ()
        return layer < len(words) and words[layer] == "hybrid"

    def read_head_dim(self) -> int | None:
        """The shared attention runs over twice the hidden size."""
        stated = self.config.whole("attention_head_dim", most=MOST_HEADS)
        if stated or not self.dims.hidden or not self.dims.heads:
            return stated
        return 2 * self.dims.hidden // self.dims.heads


class RecurrentGemma(Hybrid):
    """RecurrentGemma: two recurrent blocks, then attention with a window."""

    counted = False
    tied = True
    window_names = ("attention_window_size",)

    def attending(self, layer: int) -> bool:
        """By block_types, repeated."""
        words = self.config.words("block_types") or self.config.words("_block_types")
        words = words or ("recurrent", "recurrent", "attention")
        return words[layer % len(words)] == "attention"

    def state(self) -> int:
        """The recurrent state and the convolution's last inputs."""
        width = self.config.whole("lru_width") or self.dims.hidden or 0
        return width * (1 + (self.config.whole("conv1d_width", most=65_536) or 4))
