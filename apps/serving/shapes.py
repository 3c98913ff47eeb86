"""What a person gives to configure batching and deployments, as API bodies and YAML documents spell it."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

from apps.core.bounds import number_field
from apps.serving.models import BatchingProfile, Deployment


class BatchingProfileFields(BaseModel):
    """All of a batching profile; defaults and bounds are those of the columns."""

    model_config = ConfigDict(extra="forbid", strict=True)

    strategy: BatchingProfile.Strategy = Field(BatchingProfile.Strategy.INFLIGHT, strict=False)
    max_batch_size: int = Field(**number_field(BatchingProfile, "max_batch_size"))
    max_queue_delay_microseconds: int = Field(**number_field(BatchingProfile, "max_queue_delay_microseconds"))
    max_seq_len: int = Field(**number_field(BatchingProfile, "max_seq_len"))
    max_queue_size: int = Field(**number_field(BatchingProfile, "max_queue_size"))
    threads: int = Field(**number_field(BatchingProfile, "threads"))
    preferred_batch_sizes: list[int] = Field(
        default_factory=list, max_length=16, description="Sizes that Triton sends at once, strategy dynamic."
    )
    queue_timeout_microseconds: int = Field(**number_field(BatchingProfile, "queue_timeout_microseconds"))


class Placement(BaseModel):
    """On what kind of device the instances run, and how much of a slot each takes."""

    model_config = ConfigDict(extra="forbid", strict=True)

    device: Literal["any", "cpu", "gpu"] = "any"
    share: int | None = Field(None, ge=1, le=100, description="Hundredths of a slot; null: the default.")

    @model_serializer(mode="wrap")
    def _without_absent(self, handler: SerializerFunctionWrapHandler) -> dict[str, object]:
        return {key: value for key, value in handler(self).items() if value is not None}


class DeploymentFields(BaseModel):
    """All of a deployment but what is desired of it; `build` and `batching` are names of profiles."""

    model_config = ConfigDict(extra="forbid", strict=True)

    build: str = Field(min_length=1, max_length=63, description="Name of a build profile.")
    batching: str = Field(min_length=1, max_length=63, description="Name of a batching profile.")
    replicas: int = Field(**number_field(Deployment, "replicas"))
    placement: Placement = Field(default_factory=Placement)
