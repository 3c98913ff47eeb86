"""Gateway: requests that run, with cancel, and those that ended."""

from __future__ import annotations

import time
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _

from apps.accounts.roles import Action
from apps.dashboard import formats, lists, pages
from apps.dashboard.access import may, person
from apps.dashboard.facts import KeyValue
from apps.dashboard.pages import action, page
from apps.dashboard.views.gateway_keys import tabs
from apps.gateway import running, selectors, services
from apps.gateway.domain.facts import Priority
from apps.gateway.models import RequestLog

OUTCOME_TONES = {"ok": "ok", "cancelled": "idle", "error": "bad", "refused": "warn", "interrupted": "bad"}
PHASE_TONES = {"waiting": "warn", "started": "busy", "generating": "busy"}
SHOWN_RUNNING = 100


@page(Action.VIEW)
def requests(request: HttpRequest) -> HttpResponse:
    """What runs now, then what ended, filtered by the URL."""
    rows = selectors.requests()
    outcome = request.GET.get("outcome", "")
    if outcome in OUTCOME_TONES:
        rows = rows.filter(outcome=outcome)
    if request.GET.get("model"):
        rows = rows.filter(route=request.GET["model"])
    rows = lists.search(rows, request.GET.get("q", ""), ["request_id", "key_name", "route", "reason"])
    shown = lists.page_of(request, rows)
    now, found = time.time(), running.snapshot()
    given = {key: value for key, value in request.GET.items() if value and key != "page"}
    context = {
        "title": _("Requests"),
        "here": "gateway",
        "tabs": tabs("requests"),
        "running": [_running(item, now) for item in found[:SHOWN_RUNNING]],
        "running_more": max(0, len(found) - SHOWN_RUNNING),
        "page": shown,
        "lines": [{"row": row, "tone": OUTCOME_TONES.get(row.outcome, "idle")} for row in shown],
        "filters": {"given": given, "outcomes": tuple(OUTCOME_TONES), "filtered": bool(given)},
        "models": selectors.public_names(),
    }
    return render(request, "pages/gateway_requests.html", context)


def _running(item: running.RunningRequest, now: float) -> dict[str, Any]:
    return {
        "item": item,
        "seconds": max(0.0, now - item.began),
        "tone": PHASE_TONES.get(item.phase, "busy"),
        "priority": Priority(item.priority).name.lower(),
    }


@page(Action.VIEW)
def request_page(request: HttpRequest, pk: int) -> HttpResponse:
    """One ended request; its texts, where they were kept, for operators."""
    row = selectors.request(pk)
    context = {
        "title": _("Request"),
        "here": "gateway",
        "row": row,
        "tone": OUTCOME_TONES.get(row.outcome, "idle"),
        "facts": _facts(row),
        "times": _times(row),
        "texts": row.bodies_until is not None and may(request, Action.OPERATE),
        "has_texts": row.bodies_until is not None,
    }
    return render(request, "pages/gateway_request.html", context)


def _facts(row: RequestLog) -> list[KeyValue]:
    return [
        (_("Request"), row.request_id, row.request_id),
        (_("Key"), row.key_name or formats.ABSENT),
        (_("Model"), row.route or formats.ABSENT),
        (_("Answered by"), row.upstream or formats.ABSENT),
        (_("Revision"), row.revision or formats.ABSENT),
        (_("Endpoint"), f"{row.endpoint}{', ' + _('streamed') if row.streamed else ''}"),
        (_("Priority"), row.priority),
        (_("HTTP status"), row.status),
        (_("Reason"), row.reason or formats.ABSENT),
    ]


def _times(row: RequestLog) -> list[KeyValue]:
    def ms(value: float | None) -> str:
        return formats.ABSENT if value is None else f"{formats.significant(value)}{formats.THIN}ms"

    return [
        (_("Prompt tokens"), formats.grouped(row.prompt_tokens)),
        (_("of them from the cache"), formats.grouped(row.cached_tokens)),
        (_("Generated tokens"), formats.grouped(row.completion_tokens)),
        (_("Waited for a slot"), ms(row.queue_ms)),
        ("TTFT", ms(row.ttft_ms)),
        (_("Took in all"), ms(row.total_ms)),
        (_("Added by the gateway"), ms(row.overhead_ms)),
    ]


@action(Action.OPERATE)
def cancel(request: HttpRequest, request_id: str) -> HttpResponse:
    """End a request that runs or waits."""
    services.cancel_request(person(request), request_id)
    return pages.done(request, _("The request is being ended."), to=reverse("gateway:requests"))
