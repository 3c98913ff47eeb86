"""Alerts: rules with their form, channels with theirs, and what was sent."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _

from apps.accounts.roles import Action, require
from apps.core.exceptions import InflightError
from apps.dashboard import lists, pages
from apps.dashboard.access import may, person
from apps.dashboard.alert_forms import ChannelForm, RuleForm, form_names, initial_of
from apps.dashboard.pages import action, page
from apps.dashboard.views.alerts import TONES, frame
from apps.telemetry.alerts import inputs, selectors, serialize, services, trial, wording
from apps.telemetry.alerts.models import AlertRule, NotificationChannel
from apps.telemetry.alerts.states import DELIVERED, NOTIFICATION
from apps.telemetry.domain.alerting import conditions


@page(Action.VIEW)
def rules(request: HttpRequest) -> HttpResponse:
    """Every rule: when it fires, about what, and its switch."""
    rows = lists.search(selectors.rules(), request.GET.get("q", ""), ["name", "summary"])
    shown = lists.page_of(request, rows)
    items = [
        {
            "row": row,
            "when": serialize.described(row),
            "tone": TONES.get(row.severity, "idle"),
            "for": wording.duration(row.for_seconds),
            "channels": [channel.name for channel in row.channels.all()],
        }
        for row in shown
    ]
    context = {
        **frame("rules", _("Alerts")),
        "page": shown,
        "items": items,
        "q": request.GET.get("q", ""),
    }
    return render(request, "pages/alert_rules.html", context)


@page(Action.CONFIGURE)
def new_rule(request: HttpRequest) -> HttpResponse:
    """A rule of one's own."""
    if request.method != "POST":
        return _rule_form(request, RuleForm())
    return _save_rule(request, RuleForm(request.POST), None)


@page(Action.CONFIGURE)
def rule(request: HttpRequest, name: str) -> HttpResponse:
    """Change a rule."""
    row = selectors.rule(name)
    if request.method != "POST":
        return _rule_form(request, RuleForm(initial=initial_of(row)), row)
    data = request.POST.copy()
    data["name"] = row.name
    return _save_rule(request, RuleForm(data), row)


def _save_rule(request: HttpRequest, form: RuleForm, row: AlertRule | None) -> HttpResponse:
    if form.is_valid():
        try:
            saved = services.save_alert_rule(
                person(request), form.values(row.condition if row else None), row
            )
        except InflightError as error:
            pages.show_in(form, error, form_names(str(form.cleaned_data.get("kind"))))
        else:
            text = _("Alert rule %(name)s is saved.") % {"name": saved.name}
            return pages.done(request, text, to=reverse("alerts:rules"), stay=False)
    return _rule_form(request, form, row, status=422)


def _rule_form(
    request: HttpRequest, form: RuleForm, row: AlertRule | None = None, status: int = 200
) -> HttpResponse:
    context = {
        **frame("rules", _("Change %(name)s") % {"name": row.name} if row else _("New alert rule")),
        "form": form,
        "row": row,
        **(_trial(row.condition, row.target, row.selector) if row and not form.is_bound else {}),
    }
    return render(request, "pages/alert_rule.html", context, status=status)


@page(Action.CONFIGURE)
def preview(request: HttpRequest) -> HttpResponse:
    """What the rule would say now, while it is typed."""
    form = RuleForm(request.POST or None)
    context: dict[str, Any] = {}
    if form.is_bound:
        form.is_valid()
        context = _trial(
            form.condition(), str(form.data.get("target", "")), str(form.data.get("selector") or "*")
        )
    return render(request, "pages/alert_rule_preview.html", context)


def _trial(condition: dict[str, Any], target: str, selector: str) -> dict[str, Any]:
    try:
        parsed = conditions.parse(condition, target, inputs.STATES)
    except InflightError as error:
        return {"problem": error}
    found, count = trial.trial(parsed, target, selector)
    unit = wording.unit_of(condition) or "1"
    items = [
        {
            "name": each.watched.name or _("everything together"),
            "verdict": each.verdict,
            "value": wording.figure(each.verdict.value, unit) if each.verdict else None,
        }
        for each in found
    ]
    return {"when": wording.describe(parsed), "trial": items, "trial_count": count}


@action(Action.CONFIGURE)
def switch_rule(request: HttpRequest, name: str) -> HttpResponse:
    """Switch a rule on or off."""
    row = selectors.rule(name)
    saved = services.save_alert_rule(person(request), {"enabled": not row.enabled}, row)
    text = _("%(name)s is on.") if saved.enabled else _("%(name)s is off; its alerts end.")
    return pages.done(request, text % {"name": saved.name}, to=reverse("alerts:rules"))


@action(Action.CONFIGURE)
def delete_rule(request: HttpRequest, name: str) -> HttpResponse:
    """Delete a rule of one's own."""
    services.delete_alert_rule(person(request), selectors.rule(name))
    return pages.done(
        request, _("%(name)s is deleted.") % {"name": name}, to=reverse("alerts:rules"), stay=False
    )


@page(Action.VIEW)
def channels(request: HttpRequest) -> HttpResponse:
    """Every channel, and a form for another one."""
    form = ChannelForm()
    if request.method == "POST":
        require(person(request), Action.CONFIGURE)
        form = ChannelForm(request.POST)
        answer = _save_channel(request, form, None)
        if answer is not None:
            return answer
    context = {
        **frame("channels", _("Alerts")),
        "items": list(selectors.channels()),
        "form": form if may(request, Action.CONFIGURE) else None,
    }
    return render(request, "pages/alert_channels.html", context, status=422 if form.errors else 200)


@page(Action.CONFIGURE)
def channel(request: HttpRequest, name: str) -> HttpResponse:
    """Change a channel."""
    row = selectors.channel(name)
    initial = {
        "name": row.name,
        "type": row.type,
        "url": row.url,
        "recipients": "\n".join(row.recipients),
        "least_severity": row.least_severity,
        "send_resolved": row.send_resolved,
        "enabled": row.enabled,
    }
    form = ChannelForm(request.POST) if request.method == "POST" else ChannelForm(initial=initial)
    if request.method == "POST":
        answer = _save_channel(request, form, row)
        if answer is not None:
            return answer
    context = {
        **frame("channels", _("Change %(name)s") % {"name": row.name}),
        "form": form,
        "row": row,
    }
    return render(request, "pages/alert_channel.html", context, status=422 if form.errors else 200)


def _save_channel(
    request: HttpRequest, form: ChannelForm, row: NotificationChannel | None
) -> HttpResponse | None:
    if not form.is_valid():
        return None
    try:
        saved = services.save_channel(person(request), form.values(), row)
    except InflightError as error:
        pages.show_in(form, error)
        return None
    text = _("Channel %(name)s is saved. Press Test to see that it works.") % {"name": saved.name}
    return pages.done(request, text, to=reverse("alerts:channels"), stay=False)


@action(Action.OPERATE)
def test_channel(request: HttpRequest, name: str) -> HttpResponse:
    """Really send a test message."""
    found = services.test_channel(person(request), selectors.channel(name))
    if found.state != DELIVERED:
        raise InflightError("not_delivered", found.sentence, remedy=found.remedy)
    text = _("%(name)s was told: %(answer)s") % {"name": name, "answer": found.answer}
    return pages.done(request, text, to=reverse("alerts:channels"))


@action(Action.CONFIGURE)
def delete_channel(request: HttpRequest, name: str) -> HttpResponse:
    """Delete a channel."""
    services.delete_channel(person(request), selectors.channel(name))
    return pages.done(
        request, _("%(name)s is deleted.") % {"name": name}, to=reverse("alerts:channels"), stay=False
    )


@page(Action.VIEW)
def notifications(request: HttpRequest) -> HttpResponse:
    """What was sent to whom, newest first."""
    rows = lists.in_state(request, selectors.notifications(), NOTIFICATION)
    rows = lists.search(rows, request.GET.get("q", ""), ["rule_name", "channel__name", "answer"])
    shown = lists.page_of(request, rows)
    context = {
        **frame("notifications", _("Alerts")),
        "page": shown,
        "filters": lists.filters(request, NOTIFICATION),
    }
    return render(request, "pages/alert_notifications.html", context)
