"""Every fact of a checkpoint from its configuration and headers, without reading weights."""

from __future__ import annotations

from apps.registry.domain.model_facts import (
    LayerParams,
    LayerSpec,
    MixedWindow,
    Mla,
    ModelFacts,
    Moe,
    ParamGroups,
    Quantization,
    Rope,
)

__all__ = [
    "LayerParams",
    "LayerSpec",
    "MixedWindow",
    "Mla",
    "ModelFacts",
    "Moe",
    "ParamGroups",
    "Quantization",
    "Rope",
]
