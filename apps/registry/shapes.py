"""What a person gives to register a checkpoint, as API bodies and YAML documents spell it."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from apps.registry.domain.sources import Source


class CheckpointFields(BaseModel):
    """All of a checkpoint that is configured."""

    model_config = ConfigDict(extra="forbid", strict=True)

    source: Source
