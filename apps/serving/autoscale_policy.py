"""A deployment's `scaling` as people give it and as the code reads it; docs/scaling.md says what it does."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from apps.core.exceptions import InvalidInput
from apps.serving import policies, schedules, states
from apps.serving.domain import autoscale
from apps.serving.domain.autoscale_needs import Metric, Target
from apps.serving.domain.schedule import Entry
from apps.serving.models import Deployment

_SHAPE = ConfigDict(extra="forbid", strict=True)
MOST_SERVERS = 64
MOST_ENTRIES = 20


class ScalingTarget(BaseModel):
    """What one figure should be."""

    model_config = _SHAPE

    metric: Metric = Field(
        description="in_flight (running and waiting requests of each server), waiting (waiting requests of each "
        "server, the gateway's queue counted), ttft_ms (90th percentile), kv_use or gpu_use (0 to 1)."
    )
    value: float = Field(gt=0, le=3_600_000, description="The target.")

    @model_validator(mode="after")
    def _share(self) -> ScalingTarget:
        if self.metric in ("kv_use", "gpu_use") and self.value > 1:
            raise ValueError(f"the target of {self.metric} is a share: from above 0 to 1")
        return self


class ScheduleEntry(BaseModel):
    """Bounds that hold from each of its moments until another entry's."""

    model_config = _SHAPE

    at: str = Field(
        max_length=100, description="A cron line: minute hour day month weekday, as 0 8 * * mon-fri."
    )
    timezone: str = Field("UTC", max_length=64, description="IANA name, as Europe/Berlin.")
    min_replicas: int | None = Field(
        None, ge=0, le=MOST_SERVERS, description="Fewest servers; null: as otherwise."
    )
    max_replicas: int | None = Field(
        None, ge=1, le=MOST_SERVERS, description="Most servers; null: as otherwise."
    )

    @field_validator("at")
    @classmethod
    def _cron(cls, value: str) -> str:
        try:
            schedules.parse(value)
        except InvalidInput as error:
            raise ValueError(error.sentence) from error
        return " ".join(value.lower().split())

    @field_validator("timezone")
    @classmethod
    def _zone(cls, value: str) -> str:
        try:
            return schedules.check_timezone(value)
        except InvalidInput as error:
            raise ValueError(error.sentence) from error

    @model_validator(mode="after")
    def _says_something(self) -> ScheduleEntry:
        if self.min_replicas is None and self.max_replicas is None:
            raise ValueError("an entry of the schedule sets min_replicas, max_replicas or both")
        if None not in (self.min_replicas, self.max_replicas) and (self.min_replicas or 0) > (
            self.max_replicas or 0
        ):
            raise ValueError("min_replicas of an entry is above its max_replicas")
        return self


class Scaling(BaseModel):
    """How the number of servers follows load and time. Without targets, schedule and sleep it stays `replicas`."""

    model_config = _SHAPE

    min_replicas: int = Field(
        1, ge=0, le=MOST_SERVERS, description="Fewest servers; 0 only with idle_seconds."
    )
    max_replicas: int | None = Field(
        None,
        ge=1,
        le=MOST_SERVERS,
        description="Most servers; null: as many as `replicas` or the schedule says.",
    )
    targets: list[ScalingTarget] = Field(
        default_factory=list,
        max_length=5,
        description="The one that asks for most servers decides; empty: no load.",
    )
    schedule: list[ScheduleEntry] = Field(default_factory=list, max_length=MOST_ENTRIES)
    up_window_seconds: int = Field(15, ge=5, le=3600, description="More must be asked for during all of it.")
    down_window_seconds: int = Field(
        300, ge=5, le=3600, description="Fewer must be asked for during all of it."
    )
    up_cooldown_seconds: int = Field(15, ge=0, le=86_400, description="Between two additions at least.")
    down_cooldown_seconds: int = Field(
        60, ge=0, le=86_400, description="From any change to a removal at least."
    )
    idle_seconds: int | None = Field(
        None,
        ge=10,
        le=86_400,
        description="So long without a request it sleeps, with no server; null: never.",
    )
    wake_seconds: int = Field(300, ge=5, le=3600, description="How long a request may wait for it to wake.")

    @model_validator(mode="after")
    def _possible(self) -> Scaling:
        if self.min_replicas == 0 and self.idle_seconds is None:
            raise ValueError("min_replicas 0 needs idle_seconds: after how long without a request it sleeps")
        if self.idle_seconds is not None and self.min_replicas > 0:
            raise ValueError("idle_seconds needs min_replicas 0: it sleeps with no server")
        if self.max_replicas is not None and self.min_replicas > self.max_replicas:
            raise ValueError("min_replicas is above max_replicas")
        if self.targets and self.max_replicas is None:
            raise ValueError("targets need max_replicas: how many servers the load may ask for")
        names = [target.metric for target in self.targets]
        if len(set(names)) < len(names):
            raise ValueError("each metric has one target")
        return self

    @property
    def acts(self) -> bool:
        """Whether anything but a person changes the number of servers."""
        bounded = self.max_replicas is not None or self.min_replicas > 1
        return bool(self.targets or self.schedule or self.idle_seconds is not None or bounded)

    def start(self, replicas: int) -> int:
        """With how many servers a deployment begins that is deployed or woken by hand."""
        least, most = max(1, self.min_replicas), self.max_replicas or MOST_SERVERS
        return min(max(replicas, least), most)


def check_scaling(value: Any) -> dict[str, Any]:
    """The settings as the column keeps them. Raises InvalidInput naming the field."""
    return policies.checked(Scaling, value, "scaling")


def scaling_of(deployment: Deployment) -> Scaling:
    """How a deployment's number of servers changes by itself."""
    return Scaling.model_validate(deployment.scaling)


def policy_of(settings: Scaling) -> autoscale.Policy:
    """The settings that `autoscale.decide` takes."""
    return autoscale.Policy(
        least=settings.min_replicas,
        most=settings.max_replicas or MOST_SERVERS,
        targets=tuple(Target(each.metric, each.value) for each in settings.targets),
        schedule=tuple(
            Entry(
                schedules.parse(each.at),
                each.timezone,
                each.min_replicas,
                each.max_replicas,
                f"{each.at} {each.timezone}",
            )
            for each in settings.schedule
        ),
        up_window=float(settings.up_window_seconds),
        down_window=float(settings.down_window_seconds),
        up_cooldown=float(settings.up_cooldown_seconds),
        down_cooldown=float(settings.down_cooldown_seconds),
        idle=None if settings.idle_seconds is None else float(settings.idle_seconds),
    )


def wait_for_waking(deployment: Deployment) -> float | None:
    """How long (seconds) a request may wait for a deployment that sleeps or was just woken; null: it does not."""
    if deployment.desired != Deployment.Desired.RUNNING or deployment.state in (
        states.FAILED,
        states.WAITING,
    ):
        return None
    settings = scaling_of(deployment) if deployment.scaling else None
    if settings is None or settings.idle_seconds is None:
        return None
    return float(settings.wake_seconds)
