"""Metrics: the whole fleet's figures, each deployment and each node beside the others."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _

from apps.accounts.roles import Action
from apps.dashboard import lists, overview
from apps.dashboard.charts import cards, multiples, panels, ranges, source
from apps.dashboard.charts.multiples import Cell
from apps.dashboard.charts.ranges import TimeRange
from apps.dashboard.pages import page
from apps.fleet import selectors as fleet
from apps.fleet.models import Gpu, Node
from apps.serving import states as serving_states
from apps.serving.models import Deployment
from apps.telemetry.history import Scope

DEPLOYMENTS_SHOWN = 20
NODES_SHOWN = 20


@dataclass(frozen=True, slots=True)
class DeploymentRow:
    """A deployment with its lines."""

    deployment: Deployment
    cells: list[Cell]


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node with its lines and those of its GPUs; CPU slots have none of their own."""

    node: Node
    cells: list[Cell]
    gpus: list[tuple[Gpu, list[Cell]]]


@page(Action.VIEW)
def metrics(request: HttpRequest) -> HttpResponse:
    """Totals of all deployments, then one row for each deployment and each node."""
    now = time.time()
    chosen = ranges.parse(request.GET, now)
    shown = panels.fleet_panels()
    frame = source.frame(source.FLEET, chosen, cards.keys_of(shown))
    compare = source.compared(source.FLEET, chosen, cards.keys_of(shown))
    found = _found(request)
    listed = lists.page_of(request, found, DEPLOYMENTS_SHOWN)
    context = {
        "title": _("Metrics"),
        "here": "metrics",
        "chosen": chosen,
        "ranges": ranges.choices(chosen),
        "compared": ranges.compared_choices(chosen),
        "charts": [cards.line_card([panel], frame) for panel in shown],
        "charts_page": cards.page_spec(
            frame,
            now,
            chosen.seconds,
            "metrics" if chosen.live else "",
            fixed=None if chosen.live else [chosen.since, chosen.until],
            compare=compare.as_json() if compare else None,
            compare_name=chosen.compare,
            data_url=reverse("metrics:data"),
            query=chosen.query,
        ),
        "page": listed,
        "rows": _deployments(list(listed), chosen),
        "columns": multiples.DEPLOYMENT,
        "filters": _filters(request),
        "nodes": _nodes(chosen),
        "node_columns": multiples.NODE,
        "gpu_columns": multiples.GPU,
    }
    return render(request, "pages/metrics.html", context)


@page(Action.VIEW)
def data(request: HttpRequest) -> HttpResponse:
    """The totals as JSON: a zoomed range in finer steps, or the compared period once more."""
    chosen = ranges.parse(request.GET, time.time())
    keys = cards.keys_of(panels.fleet_panels())
    compare = source.compared(source.FLEET, chosen, keys)
    frame = source.frame(source.FLEET, chosen, keys)
    return JsonResponse(
        {"frame": frame.as_json(), "compare": compare.as_json() if compare else None, "cards": {}}
    )


def _found(request: HttpRequest) -> Any:
    rows = lists.search(overview.deployments(), request.GET.get("q", ""), ["name"])
    return lists.in_state(request, rows, serving_states.DEPLOYMENT)


def _filters(request: HttpRequest) -> dict[str, Any]:
    """The filter bar. The time range is no filter: it takes nothing out of the list."""
    made = lists.filters(request, serving_states.DEPLOYMENT)
    return made | {"filtered": any(request.GET.get(name) for name in ("q", "state"))}


def _deployments(rows: list[Deployment], chosen: TimeRange) -> list[DeploymentRow]:
    cells = multiples.rows([Scope("deployment", row.pk) for row in rows], multiples.DEPLOYMENT, chosen)
    return [DeploymentRow(row, mine) for row, mine in zip(rows, cells, strict=True)]


def _nodes(chosen: TimeRange) -> list[NodeRow]:
    nodes = list(fleet.nodes()[:NODES_SHOWN])
    gpus = [gpu for node in nodes for gpu in node.gpus.all() if gpu.device == Gpu.Device.GPU]
    of_nodes = multiples.rows([Scope("node", node.pk) for node in nodes], multiples.NODE, chosen)
    of_gpus = multiples.rows([Scope("gpu", gpu.pk) for gpu in gpus], multiples.GPU, chosen)
    by_gpu = {gpu.pk: (gpu, cells) for gpu, cells in zip(gpus, of_gpus, strict=True)}
    return [
        NodeRow(node, cells, [by_gpu[gpu.pk] for gpu in node.gpus.all() if gpu.pk in by_gpu])
        for node, cells in zip(nodes, of_nodes, strict=True)
    ]
