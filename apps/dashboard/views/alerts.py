"""Alerts: what fires, what fired, one alert, acknowledgement, silences, and the bell of the frame."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _

from apps.accounts.roles import Action, require
from apps.core import clock
from apps.core.exceptions import InflightError
from apps.core.models import AuditEntry
from apps.dashboard import lists, overview, pages
from apps.dashboard.access import may, person
from apps.dashboard.alert_forms import SilenceForm
from apps.dashboard.pages import action, page
from apps.telemetry.alerts import selectors, services, silences, wording
from apps.telemetry.alerts.models import Alert, AlertRule, Silence
from apps.telemetry.alerts.states import ALERT, RAISED

TRAIL_SHOWN = 50
TONES = {"critical": "bad", "warning": "warn", "info": "idle"}


def tabs(current: str) -> list[dict[str, Any]]:
    """The tabs of the alert pages."""
    names = {
        "alerts": _("Open"),
        "history": _("History"),
        "rules": _("Rules"),
        "silences": _("Silences"),
        "channels": _("Channels"),
        "notifications": _("Notifications"),
    }
    return [
        {"label": label, "url": reverse(f"alerts:{view}"), "current": view == current}
        for view, label in names.items()
    ]


def frame(tab: str, title: str) -> dict[str, Any]:
    """Context of every alert page."""
    return {"title": title, "here": "metrics", "tabs": tabs(tab)}


def _shown(row: Alert, quiet: list[Silence]) -> dict[str, Any]:
    unit = wording.unit_of(row.rule.condition) if row.rule else None
    return {
        "row": row,
        "tone": TONES.get(row.severity, "idle"),
        "silence": silences.matching(quiet, row) if row.state in RAISED else None,
        "value": wording.figure(row.value, unit or "1"),
        "limit": wording.figure(row.threshold, unit or "1"),
        "url": _page_of(row),
    }


def _page_of(row: Alert) -> str:
    """Page of what the alert is about."""
    if row.deployment:
        tab = "instances" if row.target == "instance" else "deployment"
        return reverse(f"serving:{tab}", args=[row.deployment])
    return reverse("fleet:fleet") if row.target in {"node", "gpu"} else reverse("metrics:metrics")


@page(Action.VIEW)
def alerts(request: HttpRequest) -> HttpResponse:
    """What is pending, fires or is acknowledged, worst first."""
    shown = lists.page_of(request, selectors.open_alerts())
    quiet = silences.active(clock.now())
    context = {
        **frame("alerts", _("Alerts")),
        "page": shown,
        "items": [_shown(row, quiet) for row in shown],
        "rules": AlertRule.objects.filter(enabled=True).count(),
        "quiet": len(quiet),
    }
    return render(request, "pages/alerts.html", context)


@page(Action.VIEW)
def history(request: HttpRequest) -> HttpResponse:
    """Every alert that was raised, newest first."""
    rows = lists.in_state(request, selectors.alerts(), ALERT)
    rows = lists.search(rows, request.GET.get("q", ""), ["rule_name", "summary", "target_name", "sentence"])
    shown = lists.page_of(request, rows)
    context = {
        **frame("history", _("Alerts")),
        "page": shown,
        "items": [_shown(row, []) for row in shown],
        "filters": lists.filters(request, ALERT),
    }
    return render(request, "pages/alert_history.html", context)


@page(Action.VIEW)
def alert(request: HttpRequest, pk: int) -> HttpResponse:
    """One alert: what was seen, what to do, who did what, who was told."""
    row = selectors.alert(pk)
    trail = AuditEntry.objects.select_related("actor").filter(object_type="alert", object_id=str(pk))
    context = {
        **frame("alerts", row.summary),
        "item": _shown(row, silences.active(clock.now())),
        "row": row,
        "trail": [overview.recent(entry) for entry in trail[:TRAIL_SHOWN]],
        "notifications": row.notifications.select_related("channel")[:TRAIL_SHOWN],
        "form": SilenceForm(initial={"rule": row.rule_name, "object_name": row.target_name}),
        "raised": row.state in RAISED,
    }
    return render(request, "pages/alert.html", context)


@page(Action.VIEW)
def bell(request: HttpRequest) -> HttpResponse:
    """The bell of the frame, for its live region."""
    return render(request, "pages/bell.html", {"bell": selectors.raised()})


@action(Action.OPERATE)
def acknowledge(request: HttpRequest, pk: int) -> HttpResponse:
    """Say that somebody is on it."""
    row = services.acknowledge(person(request), selectors.alert(pk), request.POST.get("note", ""))
    return pages.done(
        request, _("%(alert)s is acknowledged: it is not told again.") % {"alert": row}, to=_back(pk)
    )


@action(Action.OPERATE)
def unacknowledge(request: HttpRequest, pk: int) -> HttpResponse:
    """Take it back."""
    row = services.unacknowledge(person(request), selectors.alert(pk))
    return pages.done(request, _("Nobody is on %(alert)s any more.") % {"alert": row}, to=_back(pk))


def _back(pk: int) -> str:
    return reverse("alerts:alert", args=[pk])


@page(Action.VIEW)
def silence_list(request: HttpRequest) -> HttpResponse:
    """Silences that hold, and a form for another one."""
    form = SilenceForm()
    if request.method == "POST":
        require(person(request), Action.OPERATE)
        form = SilenceForm(request.POST)
        if form.is_valid():
            try:
                row = services.create_silence(person(request), form.values())
            except InflightError as error:
                pages.show_in(form, error, {"ends_at": "hours"})
            else:
                text = _("Nobody is told of %(what)s until it is over.") % {"what": row}
                return pages.done(request, text, to=reverse("alerts:silences"), stay=False)
    over = request.GET.get("over") == "1"
    shown = lists.page_of(request, selectors.silences(over))
    now = clock.now()
    context = {
        **frame("silences", _("Alerts")),
        "page": shown,
        "items": [{"row": row, "active": row.starts_at <= now < row.ends_at} for row in shown],
        "form": form if may(request, Action.OPERATE) else None,
        "over": over,
    }
    return render(request, "pages/alert_silences.html", context, status=422 if form.errors else 200)


@action(Action.OPERATE)
def end_silence(request: HttpRequest, pk: int) -> HttpResponse:
    """End a silence now."""
    row = services.end_silence(person(request), selectors.silence(pk))
    return pages.done(
        request, _("The silence of %(what)s is over.") % {"what": row}, to=reverse("alerts:silences")
    )
