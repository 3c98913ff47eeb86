"""Gateway: usage of a range by key and model, with charts and export."""

from __future__ import annotations

import json
from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from apps.accounts.roles import Action
from apps.core import clock
from apps.dashboard.charts import cards, frames
from apps.dashboard.charts.panels import Line, Panel
from apps.dashboard.pages import page
from apps.dashboard.views.gateway_keys import tabs
from apps.gateway import selectors
from apps.gateway.models import UsageHour
from apps.gateway.usage import query
from apps.gateway.usage.query import Usage

RANGE_WORDS = {
    "24h": gettext_lazy("24 hours"),
    "7d": gettext_lazy("7 days"),
    "30d": gettext_lazy("30 days"),
    "90d": gettext_lazy("90 days"),
}
# Rows of the table; the export has all of them.
MOST_ROWS = 200
_STEPS = {3600: gettext_lazy("an hour"), 21600: gettext_lazy("6 hours"), 86400: gettext_lazy("a day")}


def _panels(step: float) -> tuple[Panel, ...]:
    unit = _("in %(step)s") % {"step": _STEPS[int(step)]}
    return (
        Panel(
            "usage-requests",
            _("Requests"),
            unit,
            (
                Line("requests", _("all")),
                Line("refused", _("refused"), "--chart-2"),
                Line("errors", _("failed"), "--chart-4"),
                Line("cancelled", _("cancelled"), "--chart-8"),
            ),
        ),
        Panel(
            "usage-tokens",
            _("Tokens"),
            unit,
            (Line("completion_tokens", _("generated")), Line("prompt_tokens", _("prompt"), "--chart-8")),
        ),
        Panel(
            "usage-ttft", "TTFT", "ms", (Line("ttft_p50_ms", "p50"), Line("ttft_p99_ms", "p99", "--chart-4"))
        ),
    )


@page(Action.VIEW)
def usage(request: HttpRequest) -> HttpResponse:
    """Totals, charts, and a table by key and model."""
    chosen = request.GET.get("range", "") or query.DEFAULT_RANGE
    since = query.since_of(chosen)
    found = _rows(request, chosen)
    until = clock.now()
    step = query.RANGES[chosen][1]
    steps = query.steps(found, since, step, until)
    # The step that goes on is shown whole.
    end = since + len(steps) * step
    frame = _frame(steps, step.total_seconds(), end.timestamp())
    groups = sorted(query.by(found, "key_id", "route"), key=lambda item: (-item.tokens, -item.requests))
    span = (since.timestamp(), end.timestamp())
    context = {
        "title": _("Usage"),
        "here": "gateway",
        "tabs": tabs("usage"),
        "ranges": [
            {"name": name, "label": RANGE_WORDS[name], "current": name == chosen} for name in query.RANGES
        ],
        "given": request.GET,
        "total": query.total(found),
        "charts": [_card(panel, frame) for panel in _panels(frame.step)],
        "charts_page": cards.page_spec(frame, span[1], span[1] - span[0], "", fixed=list(span)),
        "groups": groups[:MOST_ROWS],
        "more": max(0, len(groups) - MOST_ROWS),
        "keys": selectors.keys().order_by("name"),
        "models": selectors.public_names(),
        "chosen": chosen,
        "filtered": bool(request.GET.get("key") or request.GET.get("model")),
    }
    return render(request, "pages/gateway_usage.html", context)


def _card(panel: Panel, frame: frames.Frame) -> dict[str, Any]:
    """A chart of sums: level over each step, with a mark, so that a lone step is seen too."""
    card = cards.line_card([panel], frame)
    for trace in card["figure"]["figure"]["data"]:
        trace["marker"] = {"size": 5}
        trace["line"] = {**trace["line"], "shape": "hvh"}
    for line in card["figure"]["lines"]:
        line["marked"] = True
    return card


def _rows(request: HttpRequest, chosen: str) -> QuerySet[UsageHour]:
    text = request.GET.get("key", "")
    key = int(text) if text.isascii() and text.isdigit() and len(text) < 18 else None
    return query.rows(query.since_of(chosen), key_id=key, route=request.GET.get("model", ""))


def _frame(steps: list[Usage], step: float, until: float) -> frames.Frame:
    """One point for each step, at its middle; a step without requests is zero, and its TTFT is absent."""
    keys = ("requests", "refused", "errors", "cancelled", "completion_tokens", "prompt_tokens")
    points = [
        {
            "at": item.at.timestamp() + step / 2 if item.at else 0.0,
            **{key: getattr(item, key) for key in keys},
            "ttft_p50_ms": item.ttft_p50_ms,
            "ttft_p99_ms": item.ttft_p99_ms,
        }
        for item in steps
    ]
    return frames.of_points(points, [*keys, "ttft_p50_ms", "ttft_p99_ms"], step, until)


@page(Action.VIEW)
def export(request: HttpRequest) -> HttpResponse:
    """The hours of the range by key and model, as CSV or JSON."""
    chosen = request.GET.get("range", "") or query.DEFAULT_RANGE
    found = query.by(_rows(request, chosen), "hour", "key_id", "route")
    if request.GET.get("format") == "json":
        text, kind, ending = (
            json.dumps([query.as_dict(item) for item in found], indent=1),
            "application/json",
            "json",
        )
    else:
        text, kind, ending = query.as_csv(found), "text/csv; charset=utf-8", "csv"
    answer = HttpResponse(text, content_type=kind)
    answer["Content-Disposition"] = f'attachment; filename="inflight-usage-{chosen}.{ending}"'
    return answer
