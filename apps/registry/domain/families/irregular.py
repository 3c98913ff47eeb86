"""Families whose layers differ in shape, and those that nobody knows."""

from __future__ import annotations

from apps.registry.domain.families import blocks
from apps.registry.domain.families.base import Cached, Dims, Family, Sizes
from apps.registry.domain.model_facts import LayerParams


class NemotronNas(Family):
    """Llama-Nemotron from architecture search: block_configs say for each layer which parts it has and how wide."""

    def _block(self, layer: int, part: str) -> dict[str, object]:
        listed = self.config.get("block_configs")
        entry = listed[layer] if isinstance(listed, list) and layer < len(listed) else None
        found = entry.get(part) if isinstance(entry, dict) else None
        return found if isinstance(found, dict) else {}

    def _heads(self, layer: int) -> int | None:
        """Key-value heads of a layer; None where it has no attention."""
        block = self._block(layer, "attention")
        group = block.get("n_heads_in_group")
        if not isinstance(group, int) or group <= 0 or not self.dims.heads:
            return None
        return max(1, self.dims.heads // group)

    def read(self) -> Dims:
        """Key-value heads come from the layers' groups."""
        dims = super().read()
        heads = [self._heads(layer) for layer in range(dims.layers or 0)]
        found = [count for count in heads if count]
        dims.kv_heads = max(found) if found else dims.kv_heads
        dims.kv_heads_by_layer = tuple(count or 1 for count in heads) if found else None
        dims.inner = max((self._inner(layer) for layer in range(dims.layers or 0)), default=0) or dims.inner
        return dims

    def kinds(self) -> list[str] | None:
        """Layers without attention keep nothing of a sequence."""
        layers = self.dims.layers
        return (
            None
            if layers is None
            else ["attention" if self._heads(layer) else "mlp" for layer in range(layers)]
        )

    def _inner(self, layer: int) -> int:
        block = self._block(layer, "ffn")
        if block.get("no_op") or block.get("replace_with_linear"):
            return 0
        factor, hidden = block.get("ffn_mult"), self.dims.hidden or 0
        if isinstance(factor, bool) or not isinstance(factor, int | float) or not 0 < factor < 1000:
            return 0
        return -(-int(2 * factor * hidden / 3) // 256) * 256

    def layer(self, sizes: Sizes, layer: int) -> LayerParams:
        """Parts that are there; one that is replaced is a single square projection."""
        hidden, parts = sizes.hidden, [LayerParams()]
        for part, there in (("attention", bool(self._heads(layer))), ("ffn", bool(self._inner(layer)))):
            if self._block(layer, part).get("replace_with_linear"):
                parts.append(LayerParams(mlp=hidden * hidden, norms=hidden))
            elif there:
                parts.append(LayerParams(norms=hidden))
        if self._heads(layer):
            parts.append(self.attention(sizes, layer))
        if inner := self._inner(layer):
            parts.append(blocks.feed_forward(hidden, inner))
        return blocks.add(*parts)


# Names by which configurations say that some layers keep no keys and values.
HYBRID = (
    "attn_type_list",
    "layers_block_type",
    "block_types",
    "ssm_cfg",
    "ssm_state_size",
    "mamba_d_state",
    "state_size",
    "attn_layer_period",
    "full_attention_interval",
    "hybrid_override_pattern",
    "linear_num_key_heads",
    "linear_attn_config",
)
ATTENDING = frozenset({"full_attention", "sliding_attention", "chunked_attention", "attention"})


class Unknown(Family):
    """A family that is not known: its sizes under the usual names, never its number of weights."""

    counted = False

    def cached(self, layer: int, kind: str) -> Cached:
        """Keys and values of plain attention, unless a name tells that not all layers have it."""
        words = self.config.get("layer_types")
        listed = isinstance(words, list) and any(str(word) not in ATTENDING for word in words)
        return Cached(None) if listed or self.config.has(*HYBRID) else super().cached(layer, kind)
