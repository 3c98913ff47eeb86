"""The tab Roll-out of a deployment: both revisions side by side, what was decided and why, and every crash."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _

from apps.accounts.roles import Action
from apps.control import canary
from apps.control.domain.canary import Figures
from apps.core.models import AuditEntry
from apps.dashboard import lists
from apps.dashboard.pages import page
from apps.dashboard.views.deployment import tab_context
from apps.serving import crashes, policies, revisions, rollouts, selectors, timeline
from apps.serving.models import Deployment, Instance, Revision

CRASHES_SHOWN = 10
ENTRIES_ON_PAGE = 30


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two revisions: its servers, its share of new requests, and what they did lately."""

    title: str
    revision: Revision
    serving: int
    weight: float
    figures: Figures

    @property
    def errors(self) -> float | None:
        """Failed requests in hundredths, null where nobody told."""
        rate = self.figures.error_rate
        return None if rate is None else rate * 100


@page(Action.VIEW)
def rollout(request: HttpRequest, name: str) -> HttpResponse:
    """How far a change is, what it does beside what ran before, and everything that happened so far."""
    row = selectors.deployment(name)
    pending = selectors.pending_revision(row)
    settings, slo = policies.rollout_of(row), policies.slo_of(row)
    entries = lists.page_of(request, timeline.entries(row), ENTRIES_ON_PAGE)
    context = {
        **tab_context(row, "rollout"),
        "pending": pending,
        "sides": _sides(row, pending, slo.window_seconds),
        "steps": _steps(settings, pending),
        "on_trial": pending is not None and rollouts.is_on_trial(row, pending),
        "difference": _difference(row, pending),
        "settings": settings,
        "slo": slo,
        "slo_errors": None if slo.error_rate is None else slo.error_rate * 100,
        "page": entries,
        "entries": [_entry(each) for each in entries],
        "crashes": list(crashes.reports().filter(deployment_name=row.name)[:CRASHES_SHOWN]),
    }
    return render(request, "pages/deployment_rollout.html", context)


def _sides(row: Deployment, pending: Revision | None, seconds: float) -> list[Side]:
    shares: dict[int, tuple[float, list[Instance]]] = {
        revision: (weight, rows) for revision, weight, rows in selectors.traffic(row)
    }
    old, new = canary.compare(row, seconds)
    found = []
    for title, revision, figures in (
        (_("Serves now"), row.active_revision, old),
        (_("Is being rolled out"), pending, new),
    ):
        if revision is not None:
            weight, rows = shares.get(revision.pk, (0.0, []))
            serving = len(rows) or sum(
                1
                for each in selectors.routable_instances().filter(deployment=row)
                if each.revision_id == revision.pk
            )
            found.append(Side(title, revision, serving, weight if rows else 0.0, figures))
    return found


def _steps(settings: policies.Rollout, pending: Revision | None) -> list[dict[str, Any]]:
    """The canary's steps with what each is: done, now or ahead."""
    at = pending.canary_step if pending is not None else None
    promoted = pending is not None and pending.promoted_at is not None
    found = []
    for number, step in enumerate(settings.canary):
        if promoted or (at is not None and number < at):
            state, tone = _("done"), "ok"
        elif at == number:
            state, tone = _("now"), "busy"
        else:
            state, tone = _("ahead"), "idle"
        found.append({"weight": step.weight, "seconds": step.seconds, "state": state, "tone": tone})
    return found


def _difference(row: Deployment, pending: Revision | None) -> list[tuple[str, Any, Any]]:
    if pending is None:
        return []
    found = revisions.changes(row.active_revision, pending)
    return [(key, *values) for key, values in found.items()]


def _entry(entry: AuditEntry) -> dict[str, Any]:
    figures = [
        (side, {key: value for key, value in values.items() if value is not None})
        for side in ("new", "old")
        if isinstance(values := entry.detail.get(side), dict)
    ]
    changes = entry.detail.get("changes")
    return {
        "row": entry,
        "figures": figures,
        "changes": changes.items() if isinstance(changes, dict) else (),
    }
