"""State-space models: Mamba 1 and 2, alone or as blocks of hybrid models."""

from __future__ import annotations

import math

from apps.registry.domain.config_view import MOST_HEADS
from apps.registry.domain.families import blocks
from apps.registry.domain.families.base import Cached, Dims, Family, Sizes
from apps.registry.domain.model_facts import LayerParams


class Mamba(Family):
    """Mamba 1: no attention and no feed-forward block; also in the dialect of state-spaces (ssm_cfg)."""

    required = ("layers", "hidden", "vocab")
    tied = True
    position = "none"

    def read(self) -> Dims:
        """The vocabulary of the first dialect is padded to a multiple."""
        dims = super().read()
        multiple = self.config.whole("pad_vocab_size_multiple", most=65_536)
        if dims.vocab and multiple:
            dims.vocab = -(-dims.vocab // multiple) * multiple
        dims.heads = dims.kv_heads = dims.head_dim = None
        return dims

    def kinds(self) -> list[str] | None:
        """Mamba in every layer."""
        return None if self.dims.layers is None else ["mamba"] * self.dims.layers

    def _inner(self, hidden: int) -> int:
        stated = self.config.whole("intermediate_size", "d_inner")
        return stated or round((self.config.real("expand", "mamba_expand") or 2) * hidden)

    def _shape(self, hidden: int) -> tuple[int, int, int, int]:
        """Inner width, state, kernel, rank of the time step."""
        config = self.config
        rank = config.get("time_step_rank")
        state = config.whole("state_size", "ssm_cfg.d_state") or 16
        kernel = config.whole("conv_kernel", "ssm_cfg.d_conv") or 4
        auto = math.ceil(hidden / 16)
        return (
            self._inner(hidden),
            state,
            kernel,
            auto if rank in (None, "auto") else config.need("time_step_rank"),
        )

    def layer(self, sizes: Sizes, layer: int) -> LayerParams:
        """One block and its norm."""
        inner, state, kernel, rank = self._shape(sizes.hidden)
        block = blocks.mamba1(
            sizes.hidden,
            inner,
            state,
            kernel,
            rank,
            conv_bias=self.bias("use_conv_bias", True),
            bias=self.bias("use_bias", False),
        )
        return blocks.add(block, LayerParams(norms=sizes.hidden))

    def tp_rules(self) -> list[tuple[str, int]]:
        """The inner width is spread over ranks."""
        return [] if self.dims.hidden is None else [("inner width", self._inner(self.dims.hidden))]

    def cached(self, layer: int, kind: str) -> Cached:
        """A convolution's last inputs and the state."""
        if self.dims.hidden is None:
            return Cached(0)
        inner, state, kernel, _rank = self._shape(self.dims.hidden)
        return Cached(0, inner * (kernel + state))


class FalconMamba(Mamba):
    """Falcon Mamba: untied; its norms of B, C and the time step have no weights."""

    tied = False


class Mamba2(Mamba):
    """Mamba 2 (Codestral Mamba): heads and groups."""

    def layer(self, sizes: Sizes, layer: int) -> LayerParams:
        """One block and its norm."""
        return blocks.add(mamba2_block(self, sizes.hidden), LayerParams(norms=sizes.hidden))

    def cached(self, layer: int, kind: str) -> Cached:
        """A convolution's last inputs and the state."""
        return Cached(0, mamba2_state(self))

    def tp_rules(self) -> list[tuple[str, int]]:
        """State-space heads are spread over ranks."""
        return [("state-space heads", mamba2_sizes(self)[0])]


def mamba2_sizes(family: Family) -> tuple[int, int, int, int, int]:
    """Heads, head size, groups, state, kernel of a Mamba-2 block in the names of the families that have one."""
    config, hidden = family.config, family.dims.hidden or 0
    size = config.whole("mamba_head_dim", "mamba_d_head", "mamba_headdim", most=MOST_HEADS)
    if size is None and isinstance(family, Mamba2):
        size = config.whole("head_dim", most=MOST_HEADS)
    inner = config.whole("mamba_d_ssm") or round((config.real("mamba_expand", "expand") or 2) * hidden)
    size = size or 64
    heads = config.whole("mamba_num_heads", "mamba_n_heads", "n_mamba_heads", most=MOST_HEADS)
    if heads is None and isinstance(family, Mamba2):
        heads = config.whole("num_heads", most=MOST_HEADS)
    groups = config.whole("mamba_n_groups", "n_groups", "mamba_ngroups", most=MOST_HEADS) or 1
    state = config.whole("mamba_d_state", "ssm_state_size", "state_size") or 128
    kernel = config.whole("mamba_d_conv", "conv_kernel") or 4
    return heads or inner // size, size, groups, state, kernel


def mamba2_block(family: Family, hidden: int, norm: bool = True) -> LayerParams:
    """Weights of one Mamba-2 block."""
    heads, size, groups, state, kernel = mamba2_sizes(family)
    conv = family.config.flag("mamba_conv_bias", "use_conv_bias")
    bias = family.config.flag("mamba_proj_bias", "use_bias")
    return blocks.mamba2(
        hidden,
        heads * size,
        state,
        kernel,
        heads,
        groups,
        conv_bias=conv is not False,
        bias=bool(bias),
        norm=norm,
    )


def mamba2_state(family: Family) -> int:
    """Values that a sequence keeps in one Mamba-2 block: the convolution's last inputs and the heads' states."""
    heads, size, groups, state, kernel = mamba2_sizes(family)
    return kernel * (heads * size + 2 * groups * state) + heads * size * state
