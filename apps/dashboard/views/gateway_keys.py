"""Gateway: keys, created here and shown once; what each can do, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache

from apps.accounts.roles import Action
from apps.core import clock
from apps.core.exceptions import InflightError
from apps.dashboard import gateway_calls, lists, pages
from apps.dashboard.access import may, person
from apps.dashboard.gateway_forms import KeyForm, LoadForm
from apps.dashboard.pages import action, page
from apps.gateway import selectors, services, words
from apps.gateway.domain.facts import Limits
from apps.gateway.models import GatewayKey, PriorityClass
from apps.gateway.serialize import key_state
from apps.gateway.usage import query

TONES = {"active": "ok", "expired": "warn", "revoked": "idle", "switched_off": "warn"}
_NO_MODEL = "MODEL"


def tabs(current: str) -> list[dict[str, Any]]:
    """The parts of the place Gateway."""
    known = (
        ("keys", _("Keys"), "gateway:keys"),
        ("usage", _("Usage"), "gateway:usage"),
        ("requests", _("Requests"), "gateway:requests"),
        ("routes", _("Routes"), "gateway:routes"),
    )
    return [{"label": label, "url": reverse(view), "current": name == current} for name, label, view in known]


def in_state(rows: QuerySet[GatewayKey], wanted: str) -> QuerySet[GatewayKey]:
    """Keys in a state; all for an unknown one."""
    now = clock.now()
    over = Q(expires_at__lte=now)
    states = {
        "active": ~over & Q(revoked_at__isnull=True, owner__is_active=True),
        "expired": over & Q(revoked_at__isnull=True),
        "revoked": Q(revoked_at__isnull=False),
        "switched_off": Q(owner__is_active=False, revoked_at__isnull=True),
    }
    return rows.filter(states[wanted]) if wanted in states else rows


@page(Action.VIEW)
def keys(request: HttpRequest) -> HttpResponse:
    """All keys, filtered by the URL, with what they used today."""
    rows = in_state(selectors.keys(), request.GET.get("state", ""))
    rows = lists.search(rows, request.GET.get("q", ""), ["name", "prefix", "owner__username"])
    shown = lists.page_of(request, rows)
    given = {key: value for key, value in request.GET.items() if value and key != "page"}
    context = {
        "title": _("Gateway"),
        "here": "gateway",
        "tabs": tabs("keys"),
        "page": shown,
        "lines": [{"row": row, "state": key_state(row), "tone": TONES[key_state(row)]} for row in shown],
        "filters": {"given": given, "states": tuple(TONES), "filtered": bool(given)},
        "base_url": gateway_calls.base_url(),
    }
    return render(request, "pages/gateway_keys.html", context)


@page(Action.VIEW)
def key(request: HttpRequest, pk: int) -> HttpResponse:
    """One key: what it can do, what it used, how it is called."""
    row = selectors.key(pk)
    since = query.since_of("24h")
    state = key_state(row)
    context = {
        **_one(row),
        "state": state,
        "tone": TONES[state],
        "usage": query.total(query.rows(since, key_id=row.pk)),
        "load": LoadForm(),
        **_words(row.limits, row.priority, row.routes, {}),
        "calls": gateway_calls.calls(_model_of(row.routes)),
        "may_revoke": row.revoked_at is None
        and (may(request, Action.OPERATE) or row.owner_id == person(request).pk),
        "confirm": {
            "question": _("Revoke %(name)s?") % {"name": row.name},
            "text": _("Applications that use it are refused from now on. It cannot be brought back."),
        },
    }
    return render(request, "pages/gateway_key.html", context)


def _one(row: GatewayKey) -> dict[str, Any]:
    return {"title": row.name, "here": "gateway", "row": row}


def _model_of(routes: list[str] | None) -> str:
    names = routes if routes is not None else selectors.public_names()
    return names[0] if names else _NO_MODEL


@never_cache
@page(Action.CONFIGURE)
def new(request: HttpRequest) -> HttpResponse:
    """Make a key and show it, this once."""
    if request.method != "POST":
        return _form(request, KeyForm(initial={"owner": person(request).get_username()}))
    form = KeyForm(request.POST)
    if form.is_valid():
        owner = form.cleaned_data["owner"] if may(request, Action.ADMINISTER) else None
        try:
            row, text = services.create_key(person(request), form.values(), owner)
        except InflightError as error:
            pages.show_in(form, error)
        else:
            context = {
                "title": row.name,
                "here": "gateway",
                "row": row,
                "text": text,
                "calls": gateway_calls.calls(_model_of(row.routes), text),
            }
            return render(request, "pages/gateway_key_made.html", context)
    return _form(request, form, status=422)


@page(Action.CONFIGURE)
def edit(request: HttpRequest, pk: int) -> HttpResponse:
    """Change what a key may do; its text stays."""
    row = selectors.key(pk)
    if request.method != "POST":
        return _form(request, KeyForm(initial=KeyForm.initial_of(row), row=row), row=row)
    form = KeyForm(request.POST, row=row)
    if form.is_valid():
        try:
            services.change_key(person(request), row, form.values())
        except InflightError as error:
            pages.show_in(form, error)
        else:
            text = _("%(name)s is changed; gateways know within 2 s.") % {"name": row.name}
            return pages.done(request, text, to=reverse("gateway:key", args=[row.pk]), stay=False)
    return _form(request, form, status=422, row=row)


def _form(
    request: HttpRequest, form: KeyForm, status: int = 200, row: GatewayKey | None = None
) -> HttpResponse:
    given = form.data if form.is_bound else {}
    limits, priority, routes = _asked(form.data) if form.is_bound else _of_initial(form.initial)
    context = {
        "title": _("Change %(name)s") % {"name": row.name} if row else _("New key"),
        "here": "gateway",
        "row": row,
        "form": form,
        "load": LoadForm(),
        "for_others": row is None and may(request, Action.ADMINISTER),
        **_words(limits, priority, routes, given),
    }
    return render(request, "pages/gateway_key_form.html", context, status=status)


@page(Action.VIEW)
def preview(request: HttpRequest) -> HttpResponse:
    """What a key with the typed limits can do, and what comes of the typed load: a fragment. Changes nothing."""
    number = request.GET.get("key", "")
    if number.isdigit():
        row = selectors.key(int(number))
        limits, priority, routes = row.limits, row.priority, row.routes
    else:
        limits, priority, routes = _asked(request.GET)
    return render(request, "pages/gateway_key_words.html", _words(limits, priority, routes, request.GET))


def _of_initial(initial: Mapping[str, Any]) -> tuple[Limits, str, list[str] | None]:
    limits = Limits(**{name: initial.get(name) for name in Limits.__dataclass_fields__})
    routes = initial.get("routes") if initial.get("scope") == "some" else None
    return limits, initial.get("priority", PriorityClass.NORMAL), routes


def _asked(data: Any) -> tuple[Limits, str, list[str] | None]:
    """Limits as they are typed; what is not a good number yet is no limit yet."""
    limits = Limits(**{name: _number(data.get(name)) for name in Limits.__dataclass_fields__})
    priority = data.get("priority") if data.get("priority") in PriorityClass.values else PriorityClass.NORMAL
    routes = data.getlist("routes") if data.get("scope") == "some" else None
    return limits, priority, routes


def _number(text: str | None) -> int | None:
    if not text or not text.isascii() or not text.isdigit() or len(text) > 9:
        return None
    return int(text) or None


def _words(limits: Limits, priority: str, routes: list[str] | None, load: Any) -> dict[str, Any]:
    form = LoadForm({**{name: item.initial for name, item in LoadForm.base_fields.items()}, **_flat(load)})
    lines = words.sentences(limits, PriorityClass(priority).fact, routes)
    tried = words.outcome(limits, words.Load(**form.cleaned_data)) if form.is_valid() else []
    return {"sentences": lines, "tried": tried, "load_errors": form.errors}


def _flat(data: Any) -> dict[str, str]:
    return {name: data[name] for name in LoadForm.base_fields if data.get(name)}


@action(Action.VIEW)
def revoke(request: HttpRequest, pk: int) -> HttpResponse:
    """End a key; the service says who may."""
    row = services.revoke_key(person(request), selectors.key(pk))
    text = _("%(name)s is revoked; gateways refuse it within 2 s.") % {"name": row.name}
    return pages.done(request, text, to=reverse("gateway:key", args=[row.pk]))
