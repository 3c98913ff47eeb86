"""What every model family has to say, with the answers of a plain decoder (Llama) as defaults."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from apps.registry.domain.config_view import MOST_HEADS, MOST_LAYERS, MOST_TOKENS, Config, MissingField
from apps.registry.domain.families import blocks
from apps.registry.domain.model_facts import LayerParams, Mla, Moe

Norm = Literal["rms", "layer", "none"]
HIDDEN = ("hidden_size", "n_embd", "d_model", "model_dim")
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads", "attn_config.n_heads")
KV_HEADS = (
    "num_key_value_heads",
    "num_kv_heads",
    "n_head_kv",
    "n_kv_heads",
    "multi_query_group_num",
    "num_query_groups",
    "num_attention_groups",
    "attn_config.kv_n_heads",
)
HEAD_DIM = ("head_dim", "kv_channels", "attention_head_dim", "attn_config.head_dim", "head_size")
INNER = (
    "intermediate_size",
    "ffn_hidden_size",
    "n_inner",
    "ffn_dim",
    "inner_hidden_size",
    "ff_intermediate_size",
    "ffn_config.ffn_hidden_size",
)
VOCAB = ("padded_vocab_size", "vocab_size", "embedding_size")
POSITIONS = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "max_sequence_length",
    "seq_length",
    "model_max_length",
    "n_ctx",
)
EXPERTS = (
    "num_local_experts",
    "num_experts",
    "n_routed_experts",
    "moe_num_experts",
    "ffn_config.moe_num_experts",
)
TOP_K = (
    "num_experts_per_tok",
    "num_experts_per_token",
    "moe_top_k",
    "moe_topk",
    "moe_k",
    "top_k_experts",
    "num_selected_experts",
    "ffn_config.moe_top_k",
)


@dataclass(slots=True)
class Dims:
    """Sizes that a configuration states or implies; None where it does neither.

    `kv_heads` is the largest of the layers, `kv_heads_by_layer` set where they differ.
    """

    layers: int | None = None
    hidden: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    head_dim: int | None = None
    value_dim: int | None = None
    inner: int | None = None
    vocab: int | None = None
    positions: int | None = None
    kv_heads_by_layer: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Sizes:
    """The same, complete: what the arithmetic of weights needs."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    inner: int
    vocab: int
    kv_heads_by_layer: tuple[int, ...] | None = None

    def kv(self, layer: int) -> int:
        """Key-value heads of a layer."""
        return self.kv_heads_by_layer[layer] if self.kv_heads_by_layer else self.kv_heads


@dataclass(frozen=True, slots=True)
class Outside:
    """Weights outside of the layers: token (and position) embeddings, output projection, final norm, others."""

    embedding: int
    lm_head: int
    norms: int
    other: int = 0


@dataclass(slots=True)
class Cached:
    """What one layer keeps of a sequence: values for each token, and of fixed size."""

    per_token: int | None
    state: int = 0


@dataclass(slots=True)
class Family:
    """A plain decoder: RMS norms before attention and MLP, gated MLP, untied embeddings, no bias.

    Subclasses set the class variables and override what differs. `config` is the language model's own part.
    """

    config: Config
    dims: Dims = field(default_factory=Dims)

    required: ClassVar[tuple[str, ...]] = (
        "layers",
        "hidden",
        "heads",
        "kv_heads",
        "head_dim",
        "inner",
        "vocab",
    )
    tied: ClassVar[bool] = False
    qkv_bias: ClassVar[bool] = False
    out_bias: ClassVar[bool] = False
    mlp_bias: ClassVar[bool] = False
    gated: ClassVar[bool] = True
    norm: ClassVar[Norm] = "rms"
    norms_per_layer: ClassVar[int] = 2
    # Norms of queries and keys: over each head, over all heads together, or none.
    qk_norm: ClassVar[Literal["head", "full", "none"]] = "none"
    head_dim_default: ClassVar[int | None] = None
    # Whether sliding windows need use_sliding_window, as the Qwen families have it.
    window_flag: ClassVar[bool] = False
    window_names: ClassVar[tuple[str, ...]] = ("sliding_window",)
    # Of so many layers the last sees everything, the others the window; with 2 the first of each pair has it.
    window_period: ClassVar[int | None] = None
    position: ClassVar[str] = "rope"
    # Whether `layer` and `outside` know all weights of the family.
    counted: ClassVar[bool] = True

    def read(self) -> Dims:
        """Fill `dims` from the configuration."""
        config, dims = self.config, self.dims
        dims.layers = config.whole(*LAYERS, most=MOST_LAYERS)
        dims.hidden = config.whole(*HIDDEN)
        dims.heads = config.whole(*HEADS, most=MOST_HEADS)
        dims.inner = self.read_inner()
        dims.vocab = config.whole(*VOCAB, most=2**28)
        dims.positions = config.whole(*POSITIONS, most=MOST_TOKENS)
        dims.head_dim = self.read_head_dim()
        dims.kv_heads = self.read_kv_heads()
        return dims

    def read_inner(self) -> int | None:
        """Width of the feed-forward block."""
        return self.config.whole(*INNER)

    def read_head_dim(self) -> int | None:
        """The head size stated, else the family's own, else hidden size by heads where that is whole."""
        stated = self.config.whole(*HEAD_DIM, most=MOST_HEADS)
        if stated is not None or self.head_dim_default is not None:
            return stated or self.head_dim_default
        hidden, heads = self.dims.hidden, self.dims.heads
        if not hidden or not heads:
            return None
        if hidden % heads:
            self.config.say(
                "head_dim_unknown",
                "warning",
                f"There is no head_dim, and hidden_size {hidden} is not a multiple of {heads} heads.",
                "head_dim",
                "State head_dim in config.json.",
            )
            return None
        return hidden // heads

    def read_kv_heads(self) -> int | None:
        """Key-value heads in all their spellings; without any there are as many as heads."""
        config = self.config
        if isinstance(config.get("num_key_value_heads_per_layer"), list):
            return self._kv_by_layer("num_key_value_heads_per_layer")
        if isinstance(config.get("num_key_value_heads"), list):
            return self._kv_by_layer("num_key_value_heads")
        found = config.whole(*KV_HEADS, most=MOST_HEADS)
        if found is None and config.flag("multi_query", "multi_query_attention"):
            found = 1
        return self.dims.heads if found is None else found

    def _kv_by_layer(self, name: str) -> int | None:
        found = self.config.wholes(name, MOST_HEADS, least=1)
        if found is None:
            return None
        if len(found) != self.dims.layers:
            self.config.say(
                "config_field_invalid",
                "error",
                f"{name} has {len(found)} entries for {self.dims.layers} layers.",
                name,
                "Give one for each layer.",
            )
            return None
        self.dims.kv_heads_by_layer = found if len(set(found)) > 1 else None
        return max(found)

    def sizes(self) -> Sizes:
        """The sizes complete. Raises MissingField naming the first that is not known."""
        spellings = {
            "layers": LAYERS,
            "hidden": HIDDEN,
            "heads": HEADS,
            "kv_heads": KV_HEADS,
            "head_dim": HEAD_DIM,
            "inner": INNER,
            "vocab": VOCAB,
        }
        found: dict[str, int] = {}
        for name, names in spellings.items():
            value = getattr(self.dims, name)
            if value is None and name in self.required:
                raise MissingField(names)
            found[name] = value or 0
        return Sizes(**found, kv_heads_by_layer=self.dims.kv_heads_by_layer)

    def kinds(self) -> list[str] | None:
        """The kind of each layer, where the number of layers is known."""
        return None if self.dims.layers is None else ["attention"] * self.dims.layers

    def norm_weights(self, width: int) -> int:
        """Weights of one norm over `width` values."""
        return {"rms": width, "layer": 2 * width, "none": 0}[self.norm]

    def bias(self, name: str, default: bool) -> bool:
        """A bias switch of the configuration, else the family's own."""
        found = self.config.flag(name)
        return default if found is None else found

    def attention(self, sizes: Sizes, layer: int) -> LayerParams:
        """Attention of one layer, with its norms of queries and keys."""
        kv = sizes.kv(layer)
        part = blocks.attention(
            sizes.hidden,
            sizes.heads,
            kv,
            sizes.head_dim,
            qkv_bias=self.bias("attention_bias", self.qkv_bias),
            out_bias=self.bias("attention_bias", self.out_bias),
        )
        return blocks.add(part, LayerParams(norms=self.qk_norms(sizes, kv)))

    def qk_norms(self, sizes: Sizes, kv: int) -> int:
        """Weights of the norms of queries and keys."""
        if self.qk_norm == "head":
            return 2 * sizes.head_dim
        return (sizes.heads + kv) * sizes.head_dim if self.qk_norm == "full" else 0

    def feed_forward(self, sizes: Sizes, layer: int) -> LayerParams:
        """The feed-forward part of one layer."""
        return blocks.feed_forward(
            sizes.hidden, sizes.inner, gated=self.gated, bias=self.bias("mlp_bias", self.mlp_bias)
        )

    def layer(self, sizes: Sizes, layer: int) -> LayerParams:
        """All weights of one layer."""
        norms = LayerParams(norms=self.norms_per_layer * self.norm_weights(sizes.hidden))
        return blocks.add(self.attention(sizes, layer), self.feed_forward(sizes, layer), norms)

    def outside(self, sizes: Sizes, tied: bool) -> Outside:
        """Weights outside of the layers."""
        table = sizes.vocab * sizes.hidden
        return Outside(table, 0 if tied else table, self.norm_weights(sizes.hidden))

    def mtp(self, sizes: Sizes) -> int | None:
        """Weights of multi-token-prediction layers that the file holds besides the model's own."""
        return None

    def cached(self, layer: int, kind: str) -> Cached:
        """What a layer keeps of a sequence; None for a size that is not known."""
        if kind in ("mlp", "cross_attention"):
            return Cached(0)
        dims = self.dims
        heads = dims.kv_heads_by_layer[layer] if dims.kv_heads_by_layer else dims.kv_heads
        if kind != "attention" or heads is None or dims.head_dim is None:
            return Cached(None)
        return Cached(heads * (dims.head_dim + (dims.value_dim or dims.head_dim)))

    def moe(self) -> Moe | None:
        """Experts, where the model has them."""
        return None

    def mla(self) -> Mla | None:
        """Latent attention, where the model has it."""
        return None

    def tp_rules(self) -> list[tuple[str, int]]:
        """More numbers that tensor parallelism has to divide: (name, number)."""
        return []
