"""How a deployment changes and what it promises, as people give it and as the code reads it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext as _
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from apps.core.exceptions import InvalidInput
from apps.serving.domain import rollout
from apps.serving.domain.canary import Step
from apps.serving.models import Deployment

_SHAPE = ConfigDict(extra="forbid", strict=True)
# Weights are in hundredths; a step of 100 would be no trial any more.
MOST_STEPS = 10


class Slo(BaseModel):
    """What a deployment promises. Null: nothing is promised of it, and nothing is judged by it."""

    model_config = _SHAPE

    ttft_ms: float | None = Field(
        None, gt=0, le=3_600_000, description="90th percentile of the time to the first token, milliseconds."
    )
    itl_ms: float | None = Field(
        None, gt=0, le=3_600_000, description="90th percentile of the time between tokens, milliseconds."
    )
    error_rate: float | None = Field(
        None, ge=0, le=1, description="Failed and rejected requests among all, 0 to 1."
    )
    window_seconds: int = Field(300, ge=10, le=86_400, description="Over what time it is judged.")

    @property
    def promises(self) -> bool:
        """Whether anything is promised."""
        return (self.ttft_ms, self.itl_ms, self.error_rate) != (None, None, None)


class CanaryStep(BaseModel):
    """A share of the requests for a time."""

    model_config = _SHAPE

    weight: int = Field(ge=1, le=99, description="Hundredths of new requests that the new revision gets.")
    seconds: int = Field(ge=1, le=604_800, description="For how long at least.")


class Rollout(BaseModel):
    """How a change reaches the servers."""

    model_config = _SHAPE

    max_surge: int = Field(1, ge=0, le=64, description="Servers that may run beyond the wanted number.")
    max_unavailable: int = Field(0, ge=0, le=64, description="Servers that may be missing meanwhile.")
    progress_seconds: int = Field(
        600, ge=10, le=86_400, description="Without progress for so long the old revision goes on instead."
    )
    drain_seconds: int = Field(
        120, ge=0, le=86_400, description="How long a server that is replaced may finish its streams."
    )
    canary: list[CanaryStep] = Field(
        default_factory=list, max_length=MOST_STEPS, description="Steps before the whole; empty: none."
    )

    @model_validator(mode="after")
    def _possible(self) -> Rollout:
        if not self.max_surge and not self.max_unavailable:
            raise ValueError(
                "max_surge and max_unavailable cannot both be 0: no server could ever be exchanged"
            )
        weights = [step.weight for step in self.canary]
        if weights != sorted(weights) or len(set(weights)) != len(weights):
            raise ValueError("the weights of canary must grow from step to step")
        if weights and not self.max_surge:
            raise ValueError("canary needs max_surge of at least 1: it serves beside the old revision")
        return self


def check_slo(value: Any) -> dict[str, Any]:
    """The service level as the column keeps it. Raises InvalidInput naming the field."""
    return checked(Slo, value, "slo")


def check_rollout(value: Any) -> dict[str, Any]:
    """The roll-out's settings as the column keeps them. Raises InvalidInput naming the field."""
    return checked(Rollout, value, "rollout")


def checked(shape: type[BaseModel], value: Any, field: str) -> dict[str, Any]:
    """What differs from the shape's defaults. Raises InvalidInput naming the part of `field`."""
    if value is None or value == "":
        value = {}
    if isinstance(value, BaseModel):
        value = value.model_dump(mode="json")
    if not isinstance(value, Mapping):
        raise InvalidInput(
            f"{field}_form",
            _("%(field)s is not a mapping.") % {"field": field},
            field=field,
            remedy=_("Its keys are: %(keys)s.") % {"keys": ", ".join(shape.model_fields)},
        )
    try:
        found = shape.model_validate(dict(value))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join([field, *(str(part) for part in first["loc"])])
        raise InvalidInput(
            "invalid_value",
            _("%(where)s: %(detail)s.")
            % {"where": where, "detail": first["msg"].removeprefix("Value error, ")},
            field=where,
            remedy=_("Its keys are: %(keys)s.") % {"keys": ", ".join(shape.model_fields)},
        ) from error
    return found.model_dump(mode="json", exclude_none=True, exclude_defaults=True)


def slo_of(deployment: Deployment) -> Slo:
    """What a deployment promises."""
    return Slo.model_validate(deployment.slo)


def rollout_of(deployment: Deployment) -> Rollout:
    """How a deployment changes."""
    return Rollout.model_validate(deployment.rollout)


def steps_of(settings: Rollout) -> tuple[Step, ...]:
    """The canary's steps as the domain takes them."""
    return tuple(Step(step.weight, float(step.seconds)) for step in settings.canary)


def policy_of(deployment: Deployment) -> rollout.Policy:
    """The settings that `rollout.decide` takes."""
    found = rollout_of(deployment)
    return rollout.Policy(
        max_surge=found.max_surge,
        max_unavailable=found.max_unavailable,
        progress_seconds=float(found.progress_seconds),
        canary=steps_of(found),
    )
