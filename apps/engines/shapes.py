"""What a person gives to configure a build, as API bodies and YAML documents spell it."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from apps.engines.models import BuildProfile, Quantization


class BuildProfileFields(BaseModel):
    """All of a build profile that is configured; `checkpoint` is a name."""

    model_config = ConfigDict(extra="forbid", strict=True)

    builder: BuildProfile.Builder = Field(BuildProfile.Builder.LLAMACPP, strict=False)
    checkpoint: str = Field(min_length=1, max_length=63, description="Name of a checkpoint.")
    quantization: Quantization = Field(Quantization.F16, strict=False)
    options: dict[str, Any] = Field(default_factory=dict)
