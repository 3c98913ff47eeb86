"""What a person gives to configure batching and deployments, as API bodies and YAML documents spell it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeVar, cast

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)
from pydantic_core import PydanticCustomError

from apps.core.bounds import number_field
from apps.core.exceptions import InvalidInput
from apps.serving.autoscale_policy import Scaling
from apps.serving.domain import priority_classes
from apps.serving.domain.trtllm import settings as settings_of_trtllm
from apps.serving.models import BatchingProfile, Deployment
from apps.serving.place_shapes import PlaceFields
from apps.serving.policies import Rollout, Slo

T = TypeVar("T")


def _checked(check: Callable[[], T]) -> T:
    """What the domain makes of a value; its refusal as pydantic's validators tell one."""
    try:
        return check()
    except InvalidInput as error:
        raise ValueError(f"{error.sentence} {error.remedy}".strip()) from error


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
    engine: BatchingProfile.EngineKind = Field(
        BatchingProfile.EngineKind.LLAMACPP, strict=False, description="What serves with it."
    )
    preserve_ordering: bool = Field(False, description="Answers leave in the order of the requests.")
    timeout_action: BatchingProfile.TimeoutAction = Field(BatchingProfile.TimeoutAction.REJECT, strict=False)
    allow_timeout_override: bool = Field(True, description="A request may name a shorter queue timeout.")
    priority_classes: list[dict[str, Any]] = Field(
        default_factory=list,
        description="What differs for high, normal or low: {name, max_queue_size, queue_timeout_microseconds}.",
    )
    default_priority_class: str = Field(
        "", max_length=31, description="Class of requests that name none; empty: normal."
    )
    trtllm: dict[str, Any] = Field(
        default_factory=dict,
        description="Settings of TensorRT-LLM by its own names; docs/batching.md has them all.",
        json_schema_extra=cast(dict[str, Any], {"properties": settings_of_trtllm.json_schema()}),
    )

    @field_validator("priority_classes", mode="before")
    @classmethod
    def _classes(cls, value: Any) -> Any:
        return [item.as_dict() for item in _checked(lambda: priority_classes.classes(value))]

    @field_validator("trtllm", mode="before")
    @classmethod
    def _settings(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        known = settings_of_trtllm.PROFILE
        return _checked(lambda: settings_of_trtllm.check(value, known, "trtllm"))


class Placement(PlaceFields):
    """On what kind of device the instances run, how much of a slot each takes, and where it may be."""

    device: Literal["any", "cpu", "gpu"] = "any"
    share: int | None = Field(None, ge=1, le=100, description="Hundredths of a slot; null: the default.")
    trtllm: dict[str, Any] | None = Field(
        None,
        description="Paths, GPUs and ranks of a TensorRT-LLM deployment, by its own names; see docs/batching.md.",
    )

    @field_validator("trtllm", mode="before")
    @classmethod
    def _settings(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        known = settings_of_trtllm.PLACED
        return _checked(lambda: settings_of_trtllm.check(value, known, "placement.trtllm")) or None

    @model_serializer(mode="wrap")
    def _without_absent(self, handler: SerializerFunctionWrapHandler) -> dict[str, object]:
        return {key: value for key, value in handler(self).items() if value is not None}


class DeploymentFields(BaseModel):
    """All of a deployment but what is desired of it; `build` and `batching` are names of profiles.

    A deployment serves either `build` or `model` of the imported model repository `repository`.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    build: str | None = Field(None, min_length=1, max_length=63, description="Name of a build profile.")
    repository: str | None = Field(
        None, min_length=1, max_length=63, description="Name of an imported model repository."
    )
    model: str | None = Field(
        None, min_length=1, max_length=255, description="Which of the repository's models answers."
    )
    batching: str = Field(min_length=1, max_length=63, description="Name of a batching profile.")
    replicas: int = Field(**number_field(Deployment, "replicas"))
    placement: Placement = Field(default_factory=Placement)
    slo: Slo = Field(default_factory=Slo)
    rollout: Rollout = Field(default_factory=Rollout)
    scaling: Scaling = Field(default_factory=Scaling)

    @model_validator(mode="after")
    def _one_of_two(self) -> DeploymentFields:
        if (self.build is None) == (self.repository is None):
            raise PydanticCustomError("one_of_two", "name either a build or a repository")
        return self

    @model_serializer(mode="wrap")
    def _without_null(self, handler: SerializerFunctionWrapHandler) -> dict[str, object]:
        absent = {name for name in ("build", "repository", "model") if getattr(self, name) is None}
        return {key: value for key, value in handler(self).items() if key not in absent}
