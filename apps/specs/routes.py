"""REST: configuration as code."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router, Schema
from pydantic import BaseModel, ConfigDict, Field

from apps.accounts.rest import REFUSALS, Problem, actor_of
from apps.specs import services

router = Router(tags=["configuration as code"])
# What errors call the text of a request.
WHERE = "documents"


class Documents(BaseModel):
    """YAML documents, `apiVersion: inflight/v1`, separated by `---`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    documents: str = Field(description="The YAML text.")


class Change(Schema):
    """One field that differs."""

    path: str
    before: Any
    after: Any


class PlannedObject(Schema):
    """What would happen to one object."""

    kind: str
    name: str
    action: str = Field(description="create, update or unchanged")
    changes: list[Change]
    follow_up: str | None = Field(description="deploy, stop, or null")
    notes: list[str] = Field(
        default_factory=list, description="What restarts, and which fields do nothing for the chosen engine."
    )


class Plan(Schema):
    """What applying the documents would change."""

    objects: list[PlannedObject]
    create: int
    update: int
    unchanged: int


class DoneObject(PlannedObject):
    """What was done with one object; `error` where its deployment could not be started."""

    sentence: str
    error: Problem | None


class Applied(Schema):
    """What was done."""

    objects: list[DoneObject]


class KindQuery(BaseModel):
    """Which kinds to export."""

    kind: list[str] = Field(default_factory=list, description="May be given repeatedly; none: every kind.")


@router.post("/specs/plan", response={200: Plan, **REFUSALS}, operation_id="plan_specs")
def plan_specs(request: HttpRequest, body: Documents) -> dict[str, Any]:
    """What applying YAML documents would change; changes nothing."""
    return services.plan(actor_of(request), body.documents, WHERE).as_dict()


@router.post("/specs/apply", response={200: Applied, **REFUSALS}, operation_id="apply_specs")
def apply_specs(request: HttpRequest, body: Documents) -> dict[str, Any]:
    """Make the objects as YAML documents describe them; twice changes nothing."""
    done = services.apply(actor_of(request), body.documents, WHERE)
    return {"objects": [item.as_dict() for item in done]}


@router.get("/specs/export", response={200: str, **REFUSALS}, operation_id="export_specs")
def export_specs(request: HttpRequest, query: Query[KindQuery]) -> HttpResponse:
    """Every object as YAML documents (media type application/yaml)."""
    text = services.export(actor_of(request), query.kind)
    return HttpResponse(text, content_type="application/yaml; charset=utf-8")
