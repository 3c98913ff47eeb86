"""REST: adaptive admission of a deployment."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.http import HttpRequest
from ninja import Router, Schema
from pydantic import Field

from apps.accounts.rest import REFUSALS, actor_of
from apps.accounts.roles import Action, require
from apps.gateway import adaptive, services
from apps.gateway.adaptive import AdaptiveFields
from apps.serving import selectors as serving
from apps.serving.serialize import iso

router = Router(tags=["gateway"])


class Adaptive(Schema):
    """Settings, where the levers stand, and the newest moves."""

    deployment: str
    enabled: bool
    settings: dict[str, Any]
    admitted: int | None = Field(description="Requests at once that each server gets; null: not bounded.")
    queue: int | None = Field(description="Requests that may wait; null: not bounded.")
    looked_at: datetime | None
    moved_at: datetime | None
    sentence: str
    moves: list[dict[str, Any]]


@router.get("/deployments/{name}/adaptive", response={200: Adaptive, **REFUSALS}, operation_id="get_adaptive")
def get_adaptive(request: HttpRequest, name: str) -> dict[str, Any]:
    """How adaptive admission acts on a deployment; off where nobody switched it on."""
    require(actor_of(request), Action.VIEW)
    return adaptive_dict(name)


@router.put("/deployments/{name}/adaptive", response={200: Adaptive, **REFUSALS}, operation_id="set_adaptive")
def set_adaptive(request: HttpRequest, name: str, body: AdaptiveFields) -> dict[str, Any]:
    """Switch it on or off and set its bounds."""
    data = body.model_dump(mode="json", exclude_unset=True)
    services.save_adaptive(actor_of(request), serving.deployment(name), data)
    return adaptive_dict(name)


def adaptive_dict(name: str) -> dict[str, Any]:
    """A deployment's adaptive admission as plain values. Raises NotFound."""
    deployment = serving.deployment(name)
    row = adaptive.of(deployment)
    return {
        "deployment": name,
        "enabled": row.enabled if row is not None else False,
        "settings": adaptive.fields_of(row).model_dump(mode="json", exclude={"enabled"}),
        "admitted": row.admitted if row is not None else None,
        "queue": row.queue if row is not None else None,
        "looked_at": iso(row.looked_at) if row is not None else None,
        "moved_at": iso(row.moved_at) if row is not None else None,
        "sentence": row.sentence if row is not None else "",
        "moves": adaptive.moves(deployment),
    }
