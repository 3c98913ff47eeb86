"""REST: tunings."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.http import HttpRequest
from ninja import Query, Router, Status
from pydantic import BaseModel, ConfigDict, Field

from apps.accounts.rest import REFUSALS, Number, Page, PageQuery, StatusFields, actor_of, page_of
from apps.accounts.roles import Action, require
from apps.loadtests import services, tuning
from apps.loadtests.domain.tuner_request import TuningFields
from apps.loadtests.tuning_models import Tuning as TuningRow
from apps.loadtests.tuning_serialize import tuning_dict
from apps.serving.schemas import Deployment
from apps.serving.serialize import deployment_dict

router = Router(tags=["load tests"])


class Trial(StatusFields):
    """One configuration that was tried, or that the memory plan refused."""

    number: int
    configuration: dict[str, Any]
    source: str = Field(description="Who proposed it: present, prior, model, sampler, random or repeat.")
    figures: dict[str, float | None] | None
    run: int | None
    on_front: bool = Field(description="Whether no other configuration beats it in every objective.")
    finished_at: datetime | None


class ShortTuning(StatusFields):
    """A search for a better configuration."""

    number: int
    deployment: str
    objectives: list[str]
    constraints: list[dict[str, Any]]
    trials_most: int
    trials_run: int
    trials_refused: int
    progress: float
    eta_seconds: float | None
    winner: int | None
    report: list[str]
    applied_trial: int | None
    applied_at: datetime | None
    applied_before: int | None = Field(description="Revision that ran before, to roll back to.")
    requested_by: str | None
    cancel_requested: bool
    finished_at: datetime | None
    actions: list[str]


class Tuning(ShortTuning):
    """A tuning with its space, its load and every trial."""

    space: list[dict[str, Any]]
    scenario: dict[str, Any]
    base: dict[str, Any]
    seed: int
    front: list[int]
    trials: list[Trial]


class ApplyTuning(BaseModel):
    """Which trial to apply."""

    model_config = ConfigDict(extra="forbid", strict=True)

    trial: int | None = Field(None, description="Null: the winner.")


@router.get("/tunings", response={200: Page[ShortTuning], **REFUSALS}, operation_id="list_tunings")
def list_tunings(request: HttpRequest, page: Query[PageQuery]) -> dict[str, Any]:
    """All tunings, newest first."""
    require(actor_of(request), Action.VIEW)
    rows = TuningRow.objects.select_related("requested_by")
    return page_of(rows, page, lambda row: tuning_dict(row, short=True))


@router.post("/tunings", response={201: Tuning, **REFUSALS}, operation_id="start_tuning")
def start_tuning(
    request: HttpRequest, body: TuningFields, allow_production: bool = False
) -> Status[dict[str, Any]]:
    """Search for a better configuration of a deployment; its own servers are not touched."""
    row = services.start_tuning(actor_of(request), body, allow_production=allow_production)
    return Status(201, tuning_dict(row))


@router.get("/tunings/{number}", response={200: Tuning, **REFUSALS}, operation_id="get_tuning")
def get_tuning(request: HttpRequest, number: Number) -> dict[str, Any]:
    """One tuning with its trials and its report."""
    require(actor_of(request), Action.VIEW)
    return tuning_dict(tuning.tuning(number))


@router.post("/tunings/{number}/cancel", response={200: Tuning, **REFUSALS}, operation_id="cancel_tuning")
def cancel_tuning(request: HttpRequest, number: Number) -> dict[str, Any]:
    """Cancel a tuning; what was measured is kept."""
    return tuning_dict(services.cancel_tuning(actor_of(request), tuning.tuning(number)))


@router.post("/tunings/{number}/apply", response={200: Deployment, **REFUSALS}, operation_id="apply_tuning")
def apply_tuning(request: HttpRequest, number: Number, body: ApplyTuning) -> dict[str, Any]:
    """Make a trial's configuration the deployment's, by a rolling update."""
    return deployment_dict(services.apply_tuning(actor_of(request), tuning.tuning(number), body.trial))


@router.delete("/tunings/{number}", response={204: None, **REFUSALS}, operation_id="delete_tuning")
def delete_tuning(request: HttpRequest, number: Number) -> Status[None]:
    """Delete a tuning that has ended, with its trials and runs."""
    services.delete_tuning(actor_of(request), tuning.tuning(number))
    return Status(204, None)
