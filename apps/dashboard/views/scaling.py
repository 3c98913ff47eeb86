"""A deployment's tab Scaling: how many servers it has and why, what it would do now, and every decision."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _l

from apps.accounts.roles import Action
from apps.control import autoscale as scaler
from apps.dashboard import lists, pages
from apps.dashboard.access import person
from apps.dashboard.pages import action, page
from apps.dashboard.views.deployment import tab_context
from apps.serving import autoscale, selectors, services
from apps.serving.autoscale_policy import Scaling, scaling_of
from apps.serving.domain.autoscale import Bounds, Policy, Situation, bounds_at
from apps.serving.domain.autoscale_needs import METRICS, Metric, value_of
from apps.serving.domain.schedule import in_force, last_at
from apps.serving.models import Deployment, ScalingDecision

DECISIONS_ON_PAGE = 20
METRIC_WORDS: dict[str, Promise] = {
    "in_flight": _l("Requests of each server"),
    "waiting": _l("Waiting requests of each server"),
    "ttft_ms": _l("TTFT p90"),
    "kv_use": _l("KV cache in use"),
    "gpu_use": _l("GPU in use"),
}
CAUSE_WORDS: dict[str, Promise] = {
    "load": _l("load"),
    "schedule": _l("schedule"),
    "bounds": _l("bounds"),
    "idle": _l("sleep"),
    "wake": _l("wake"),
    "hold": _l("kept"),
}


@page(Action.VIEW)
def scaling(request: HttpRequest, name: str) -> HttpResponse:
    """How the number of servers follows load and time."""
    row = selectors.deployment(name)
    settings = scaling_of(row)
    entries = lists.page_of(request, autoscale.decisions(row), DECISIONS_ON_PAGE)
    context: dict[str, Any] = {
        **tab_context(row, "scaling"),
        "settings": settings,
        "page": entries,
        "entries": [_entry(each) for each in entries],
    }
    if settings.acts:
        policy, situation, decision = scaler.opinion(row)
        bounds = bounds_at(policy, situation.now)
        context |= {
            "bounds": bounds,
            "decision": decision,
            "schedule": _schedule(policy, situation.now),
            "facts": _facts(settings, bounds),
            "figures": _figures(policy, situation),
            "asked": situation.asked,
        }
    return render(request, "pages/deployment_scaling.html", context)


def _schedule(policy: Policy, now: float) -> list[dict[str, Any]]:
    moment = datetime.fromtimestamp(now, UTC)
    newest = in_force(policy.schedule, moment)
    return [
        {
            "text": entry.text,
            "least": entry.least,
            "most": entry.most,
            "since": last_at(entry.cron, entry.timezone, moment),
            "current": newest is not None and newest[0] is entry,
        }
        for entry in policy.schedule
    ]


def _facts(settings: Scaling, bounds: Bounds) -> list[tuple[str, str]]:
    found = [
        (
            _("Servers at least and at most"),
            _("%(least)d to %(most)d") % {"least": bounds.least, "most": bounds.most},
        )
    ]
    if settings.targets:
        found += [
            (_("More after"), _("%(n)d s") % {"n": settings.up_window_seconds}),
            (_("Fewer after"), _("%(n)d s") % {"n": settings.down_window_seconds}),
            (_("Between two additions"), _("%(n)d s") % {"n": settings.up_cooldown_seconds}),
            (_("From a change to a removal"), _("%(n)d s") % {"n": settings.down_cooldown_seconds}),
        ]
    if settings.idle_seconds is not None:
        found += [
            (_("Sleeps after"), _("%(n)d s without a request") % {"n": settings.idle_seconds}),
            (_("Requests wait for it to wake"), _("at most %(n)d s") % {"n": settings.wake_seconds}),
        ]
    return found


def _figures(policy: Policy, situation: Situation) -> list[dict[str, Any]]:
    newest = situation.points[-1] if situation.points else None
    return [
        {
            "label": METRIC_WORDS[each.metric],
            "is": _shown(each.metric, value_of(newest, each.metric) if newest else None),
            "wanted": _shown(each.metric, each.value),
        }
        for each in policy.targets
    ]


def _shown(metric: Metric | str, value: float | None) -> str:
    """A figure with its unit; what nobody told is a dash."""
    if value is None:
        return "\N{EN DASH}"
    if metric == "ttft_ms":
        return _("%(n).0f ms") % {"n": value}
    return f"{value * 100:.0f} %" if metric in ("kv_use", "gpu_use") else f"{value:.3g}"


def _entry(row: ScalingDecision) -> dict[str, Any]:
    told = row.figures.get("targets")
    figures = [
        (METRIC_WORDS[name], _shown(name, each.get("is")), _shown(name, each.get("wanted")))
        for name, each in (told.items() if isinstance(told, dict) else ())
        if name in METRICS and isinstance(each, dict)
    ]
    tone = "idle" if row.before == row.after or row.after == 0 else "ok" if row.after > row.before else "busy"
    return {"row": row, "figures": figures, "tone": tone, "word": CAUSE_WORDS.get(row.cause, row.cause)}


@action(Action.OPERATE)
def wake(request: HttpRequest, name: str) -> HttpResponse:
    """Start the servers of a deployment that sleeps."""
    row: Deployment = services.wake_deployment(person(request), selectors.deployment(name))
    return pages.done(
        request,
        _("%(name)s is being woken.") % {"name": row.name},
        to=reverse("serving:scaling", args=[name]),
    )
