"""REST: live figures of the last hour."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Query, Router, Schema
from pydantic import Field

from apps.accounts.rest import REFUSALS, actor_of
from apps.accounts.roles import Action, require
from apps.serving import selectors as serving
from apps.telemetry import selectors
from apps.telemetry.alerts.api import router as alerts_router
from apps.telemetry.history_api import router as history_router

router = Router(tags=["metrics"])
router.add_router("", alerts_router)
router.add_router("/telemetry", history_router)


class Metrics(Schema):
    """Samples, oldest first, one a second or thinned; a value that the engine does not tell is null.

    `alive` says whether telemetry is at work; null where Redis does not answer.
    """

    alive: bool | None
    samples: list[dict[str, float | None]]


class HistoryQuery(Schema):
    """How much of the last hour, and how finely."""

    seconds: float = Field(300, ge=1, le=selectors.HOUR)
    points: int = Field(600, ge=10, le=3600, description="About so many samples at most.")


def _metrics(samples: list[dict[str, float | None]]) -> dict[str, Any]:
    return {"alive": selectors.is_alive(), "samples": samples}


@router.get("/metrics", response={200: Metrics, **REFUSALS}, operation_id="get_metrics")
def get_metrics(request: HttpRequest, query: Query[HistoryQuery]) -> dict[str, Any]:
    """All deployments together."""
    require(actor_of(request), Action.VIEW)
    return _metrics(selectors.fleet_history(query.seconds, query.points))


@router.get(
    "/deployments/{name}/metrics",
    response={200: Metrics, **REFUSALS},
    operation_id="get_deployment_metrics",
)
def get_deployment_metrics(request: HttpRequest, name: str, query: Query[HistoryQuery]) -> dict[str, Any]:
    """One deployment."""
    require(actor_of(request), Action.VIEW)
    return _metrics(selectors.history(serving.deployment(name), query.seconds, query.points))


@router.get(
    "/instances/{uid}/metrics", response={200: Metrics, **REFUSALS}, operation_id="get_instance_metrics"
)
def get_instance_metrics(request: HttpRequest, uid: str, query: Query[HistoryQuery]) -> dict[str, Any]:
    """One server."""
    require(actor_of(request), Action.VIEW)
    return _metrics(selectors.instance_history(serving.instance(uid).pk, query.seconds, query.points))
