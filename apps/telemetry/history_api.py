"""REST: figures over any range, their distributions and totals, as JSON or CSV; and targets for a Prometheus."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _
from ninja import Query, Router, Schema
from pydantic import Field

from apps.accounts.rest import REFUSALS, actor_of
from apps.accounts.roles import Action, require
from apps.core.exceptions import InvalidInput, NotFound
from apps.fleet.models import Gpu
from apps.fleet.selectors import node
from apps.serving import selectors as serving
from apps.telemetry import history, targets
from apps.telemetry.domain.vocabulary import KEYS
from apps.telemetry.history import Distribution, Scope, ScopeKind

router = Router(tags=["metrics"])

Format = Literal["json", "csv"]


class ScopeQuery(Schema):
    """Which object, and which range. Times are epoch seconds; `until` left out is now."""

    scope: ScopeKind = Field("fleet", description="fleet, deployment, instance, gpu or node")
    name: str = Field("", description="Public name, instance id, GPU UUID or node id; empty for the fleet.")
    since: float | None = Field(None, ge=0, description="Default: an hour before `until`.")
    until: float | None = Field(None, ge=0)


class SeriesQuery(ScopeQuery):
    """And how finely."""

    points: int = Field(300, ge=1, le=2000)
    keys: str = Field("", description="Names of the vocabulary, comma-separated; empty: all.")
    format: Format = "json"


class DistributionQuery(ScopeQuery):
    """And of what."""

    histogram: Distribution = "ttft"
    columns: int = Field(120, ge=1, le=600)
    format: Format = "json"


class SeriesOut(Schema):
    """Curves; a step that nobody told is missing, and each gap begins with a point of nulls."""

    step_seconds: float
    source: str
    points: list[dict[str, float | None]]


class HeatOut(Schema):
    """A distribution over time; the last bound is infinite (null)."""

    step_seconds: float
    source: str
    histogram: str
    unit: str
    times: list[float]
    bounds: list[float | None]
    counts: list[list[float]]


class KeyOut(Schema):
    """One name of the vocabulary."""

    name: str
    unit: str
    kind: str
    area: str
    title: str
    source: str
    limits: str


@router.get("/vocabulary", response={200: list[KeyOut], **REFUSALS}, operation_id="get_vocabulary")
def get_vocabulary(request: HttpRequest) -> list[dict[str, str]]:
    """Every name with unit, kind, source and what it cannot say."""
    require(actor_of(request), Action.VIEW)
    names = ("name", "unit", "kind", "area", "title", "source", "limits")
    return [{name: getattr(key, name) for name in names} for key in KEYS]


@router.get("/series", response={200: SeriesOut, **REFUSALS}, operation_id="get_series")
def get_series(request: HttpRequest, query: Query[SeriesQuery]) -> Any:
    """Curves of one object, as JSON or CSV."""
    require(actor_of(request), Action.VIEW)
    since, until = _range(query)
    keys = [key.strip() for key in query.keys.split(",") if key.strip()] or None
    try:
        found = history.series(_scope(query), since, until, query.points, keys)
    except ValueError as error:
        raise InvalidInput(
            "key_unknown",
            str(error),
            field="keys",
            remedy=_("GET /api/v1/telemetry/vocabulary lists the names."),
        ) from error
    if query.format == "csv":
        names = ["at", *(keys or [key.name for key in KEYS])]
        return _csv("series", names, ([point.get(name) for name in names] for point in found.points))
    return {"step_seconds": found.step_seconds, "source": found.source, "points": found.points}


@router.get("/distribution", response={200: HeatOut, **REFUSALS}, operation_id="get_distribution")
def get_distribution(request: HttpRequest, query: Query[DistributionQuery]) -> Any:
    """How one kind of value was distributed over time, as JSON or CSV."""
    require(actor_of(request), Action.VIEW)
    since, until = _range(query)
    found = history.distribution(_scope(query), query.histogram, since, until, query.columns)
    if query.format == "csv":
        names = ["at", *("+Inf" if bound is None else f"{bound:g}" for bound in found.bounds)]
        rows = ([at, *counts] for at, counts in zip(found.times, found.counts, strict=True))
        return _csv(f"{found.histogram}-{found.unit}", names, rows)
    return {name: getattr(found, name) for name in HeatOut.model_fields}


@router.get("/window", response={200: dict[str, Any], **REFUSALS}, operation_id="get_window")
def get_window(request: HttpRequest, query: Query[ScopeQuery]) -> dict[str, Any]:
    """Totals, ends by reason, percentiles and means of one object over a range."""
    require(actor_of(request), Action.VIEW)
    since, until = _range(query)
    return history.window(_scope(query), since, until)


@router.get("/http_sd", response={200: list[dict[str, Any]], **REFUSALS}, operation_id="get_http_sd")
def get_http_sd(request: HttpRequest) -> list[dict[str, Any]]:
    """Servers for Prometheus' http_sd_configs: one group each, with our names as labels."""
    require(actor_of(request), Action.VIEW)
    return [
        {
            "targets": [row.address],
            "labels": {
                "__metrics_path__": "/metrics",
                "deployment": row.deployment,
                "instance_uid": row.uid,
                "revision": str(row.revision),
                "node": row.node,
            },
        }
        for row in targets.addresses()
    ]


def _range(query: ScopeQuery) -> tuple[float, float]:
    until = query.until if query.until is not None else time.time()
    since = query.since if query.since is not None else until - 3600
    if since >= until:
        raise InvalidInput(
            "range_empty",
            _("The range ends before it begins."),
            field="since",
            remedy=_("Give since and until in epoch seconds, since first."),
        )
    return since, until


def _scope(query: ScopeQuery) -> Scope:
    if query.scope == "fleet":
        return Scope("fleet", 0)
    if not query.name:
        raise InvalidInput(
            "name_missing",
            _("Which %(kind)s?") % {"kind": query.scope},
            field="name",
            remedy=_("Name it with name=..."),
        )
    if query.scope == "deployment":
        return Scope("deployment", serving.deployment(query.name).pk)
    if query.scope == "instance":
        return Scope("instance", serving.instance(query.name).pk)
    if query.scope == "node":
        return Scope("node", node(query.name).pk)
    gpu = Gpu.objects.filter(uuid=query.name).first()
    if gpu is None:
        raise NotFound(
            "gpu_unknown",
            _("There is no GPU %(name)s.") % {"name": query.name},
            remedy=_("GET /api/v1/nodes lists the GPUs with their UUIDs."),
        )
    return Scope("gpu", gpu.pk)


def _csv(name: str, head: Sequence[str], rows: Iterable[Sequence[float | None]]) -> HttpResponse:
    """A CSV file; what is not known is empty, never 0."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(head)
    writer.writerows(["" if value is None else value for value in row] for row in rows)
    response = HttpResponse(text.getvalue(), content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{name}.csv"'
    return response
