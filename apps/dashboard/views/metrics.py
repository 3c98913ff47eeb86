"""Metrics: the whole fleet's figures, each deployment and each node beside the others."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _

from apps.accounts.roles import Action
from apps.dashboard import charts, samples
from apps.dashboard.pages import page


@page(Action.VIEW)
def metrics(request: HttpRequest) -> HttpResponse:
    """Totals of all deployments over the last minutes."""
    found = samples.fleet()
    panels = (charts.REQUESTS, charts.TOKENS, charts.TTFT, charts.QUEUE)
    context = {
        "title": _("Metrics"),
        "here": "metrics",
        "charts": [charts.card([panel], found, topic="metrics") for panel in panels],
    }
    return render(request, "pages/metrics.html", context)
