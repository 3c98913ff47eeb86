"""A deployment's tab Advice: what the advisor would change, why, and the button for it."""

from __future__ import annotations

import json
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from apps.accounts.roles import Action
from apps.control import selectors as advisor
from apps.control import services
from apps.control.domain.advice.outcome import Advice, Evidence
from apps.core.exceptions import InvalidInput, NotFound
from apps.dashboard import pages
from apps.dashboard.access import person
from apps.dashboard.pages import action, page
from apps.dashboard.views.deployment import tab_context
from apps.serving import selectors
from apps.serving.models import BatchingProfile, Deployment
from apps.telemetry.alerts import wording

RANGES: dict[str, float] = {"15m": 900.0, "60m": 3600.0}
# Where a metric's charts are, on the tab Live.
_CHARTS = "?range={name}"


@page(Action.VIEW)
def advice(request: HttpRequest, name: str) -> HttpResponse:
    """What to change, with the evidence."""
    row = selectors.deployment(name)
    range_name = request.GET.get("range", "15m")
    seconds = RANGES.get(range_name, advisor.WINDOW)
    context: dict[str, Any] = {
        **tab_context(row, "advice"),
        "ranges": [{"name": key, "current": RANGES[key] == seconds} for key in RANGES],
        "seconds": seconds,
    }
    try:
        report = advisor.report(row, seconds)
    except NotFound as error:
        context["nothing"] = error
        return render(request, "pages/deployment_advice.html", context)
    live = reverse("serving:deployment", args=[row.name]) + _CHARTS.format(name=range_name)
    context |= {
        "report": report,
        "items": [_item(each, row, live) for each in report.opinion.advice],
        "length": wording.duration(round(report.opinion.until - report.opinion.since)),
    }
    return render(request, "pages/deployment_advice.html", context)


def _item(each: Advice, row: Deployment, live: str) -> dict[str, Any]:
    change = each.change
    return {
        "advice": each,
        "tone": "warn" if each.weight == "warning" else "idle",
        "evidence": [_evidence(one) for one in each.evidence],
        "live": live,
        "field": _title(change.field) if change else "",
        "before": _plain(change.before) if change else "",
        "after": _plain(change.after) if change else "",
        "value": json.dumps(change.after) if change else "",
        "confirm": _confirm(row) if change else "",
    }


def _title(field: str) -> str:
    return str(getattr(BatchingProfile._meta.get_field(field), "verbose_name", field))


def _plain(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or _("none")
    return str(value)


def _evidence(one: Evidence) -> dict[str, str]:
    title = wording.title_of(one.key) if one.key else ""
    return {"label": one.label, "value": wording.figure(one.value, one.unit or "1"), "title": title}


def _confirm(row: Deployment) -> str:
    """What will happen, named."""
    count = selectors.live_instances(row).count()
    servers = ngettext("One server is", "%(count)d servers are", count) % {"count": count}
    text = _(
        "A new revision is made and deployed. %(servers)s replaced; requests in flight finish, and where memory does "
        "not hold both, the old one stops first."
    ) % {"servers": servers}
    others = row.batching.deployments.exclude(pk=row.pk).count()
    if others:
        text += " " + _(
            "Other deployments use the batching profile %(name)s too: it is copied, theirs stays."
        ) % {"name": row.batching.name}
    return text


@action(Action.OPERATE)
def apply(request: HttpRequest, name: str, advice_id: str) -> HttpResponse:
    """Make the change and deploy it."""
    row = selectors.deployment(name)
    try:
        after = json.loads(request.POST.get("after", "null"))
    except ValueError as error:
        raise InvalidInput(
            "after", _("The advised value cannot be read."), field="after", remedy=_("Reload the page.")
        ) from error
    seconds = RANGES.get(request.POST.get("range", ""), advisor.WINDOW)
    services.apply_advice(person(request), row, advice_id, after, seconds)
    text = _("%(name)s is deployed with the change.") % {"name": name}
    return pages.done(request, text, to=reverse("serving:deployment", args=[name]), stay=False)
