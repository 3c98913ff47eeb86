"""REST: the advisor."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.http import HttpRequest
from ninja import Query, Router, Schema
from pydantic import BaseModel, ConfigDict, Field

from apps.accounts.rest import REFUSALS, actor_of
from apps.accounts.roles import Action, require
from apps.control import selectors, services
from apps.control.serialize import report_dict
from apps.serving import selectors as serving
from apps.serving.schemas import Deployment
from apps.serving.serialize import deployment_dict

router = Router(tags=["advice"])


class AdviceQuery(Schema):
    """How far to look back."""

    seconds: float = Field(selectors.WINDOW, ge=60, le=selectors.LONGEST_WINDOW)


class AdviceReport(Schema):
    """What the advisor says of a deployment, and what it cannot say."""

    deployment: str
    revision: int
    since: datetime
    until: datetime
    coverage: float = Field(description="Share of the range that samples cover.")
    blocked: str | None = Field(description="Why no advice can be applied now; null: it can.")
    advice: list[dict[str, Any]] = Field(
        description="With evidence and, where a button can do it, the change."
    )
    fine: list[dict[str, Any]]
    cannot_say: list[dict[str, Any]]
    not_here: list[dict[str, Any]]


class ApplyAdvice(BaseModel):
    """The value that was advised when the person looked; another one now is refused."""

    model_config = ConfigDict(extra="forbid", strict=True)

    after: Any = Field(None, description="Null: whatever is advised now.")
    seconds: float = Field(selectors.WINDOW, ge=60, le=selectors.LONGEST_WINDOW)


@router.get("/deployments/{name}/advice", response={200: AdviceReport, **REFUSALS}, operation_id="get_advice")
def get_advice(request: HttpRequest, name: str, query: Query[AdviceQuery]) -> dict[str, Any]:
    """What to change, with the evidence."""
    require(actor_of(request), Action.VIEW)
    return report_dict(selectors.report(serving.deployment(name), query.seconds))


@router.post(
    "/deployments/{name}/advice/{advice}/apply",
    response={200: Deployment, **REFUSALS},
    operation_id="apply_advice",
)
def apply_advice(request: HttpRequest, name: str, advice: str, body: ApplyAdvice) -> dict[str, Any]:
    """Make the change and deploy it; servers are replaced by a rolling change."""
    require(actor_of(request), Action.OPERATE)
    row = services.apply_advice(actor_of(request), serving.deployment(name), advice, body.after, body.seconds)
    return deployment_dict(serving.deployment(row.name))
