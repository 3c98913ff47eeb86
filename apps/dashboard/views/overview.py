"""Overview, and the list of running work that the frame refreshes."""

from __future__ import annotations

import time

from django.db.models import Count, Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _

from apps.accounts.roles import Action
from apps.dashboard import overview as rows
from apps.dashboard import samples, work
from apps.dashboard.pages import page
from apps.serving.models import Deployment


@page(Action.VIEW)
def overview(request: HttpRequest) -> HttpResponse:
    """Totals, what needs attention, deployments, recent changes."""
    now = time.time()
    shown = list(rows.deployments()[: rows.DEPLOYMENTS_SHOWN])
    counts = Deployment.objects.aggregate(
        ready=Count("pk", filter=Q(state="ready")),
        wanted=Count("pk", filter=Q(desired=Deployment.Desired.RUNNING)),
        all=Count("pk"),
    )
    running = [row.pk for row in shown if row.state in rows.RUNNING]
    lines = rows.lines(shown, samples.recent(running), now)
    tiles = rows.tiles(samples.fleet(), counts["ready"], counts["wanted"], now)
    needs = rows.attention()
    context = {
        "title": _("Overview"),
        "here": "overview",
        "tiles": tiles,
        "attention": needs[: rows.ATTENTION_SHOWN],
        "attention_more": max(0, len(needs) - rows.ATTENTION_SHOWN),
        "lines": lines,
        "deployments_all": counts["all"],
        "changes": rows.changes(),
        "sparks": rows.sparks([line for line in lines if line.deployment.pk in running], now, tiles),
    }
    return render(request, "pages/overview.html", context)


@page(Action.VIEW)
def running_work(request: HttpRequest) -> HttpResponse:
    """The running work of the frame, for its live regions."""
    return render(request, "pages/work_part.html", {"running_work": work.running()})
