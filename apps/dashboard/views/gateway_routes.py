"""Gateway: public names, what stands behind them, and external deployments."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _

from apps.accounts.roles import Action
from apps.core.exceptions import InflightError
from apps.dashboard import gateway_calls, lists, pages
from apps.dashboard.access import person
from apps.dashboard.gateway_forms import ExternalForm, RouteForm
from apps.dashboard.pages import action, page
from apps.dashboard.views.gateway_keys import tabs
from apps.gateway import selectors, services
from apps.gateway.models import ExternalDeployment, GatewayRoute
from apps.serving import selectors as serving

MOST_NAMES = 200


@page(Action.VIEW)
def routes(request: HttpRequest) -> HttpResponse:
    """Every public name: with settings or without; external deployments below."""
    given = {row.name: row for row in selectors.routes()}
    states = {row.name: row for row in serving.deployments()}
    words = request.GET.get("q", "").split()
    names = [name for name in selectors.public_names() if all(word in name for word in words)]
    context = {
        "title": _("Routes"),
        "here": "gateway",
        "tabs": tabs("routes"),
        "lines": [
            {
                "name": name,
                "row": given.get(name),
                "deployment": states.get(name),
                "targets": _targets(given.get(name), name),
            }
            for name in names[:MOST_NAMES]
        ],
        "more": max(0, len(names) - MOST_NAMES),
        "given": request.GET,
        "externals": lists.page_of(request, selectors.externals()),
        "allowed": settings.INFLIGHT_UPSTREAM_ALLOW,
        "calls": gateway_calls.calls(names[0] if names else "MODEL"),
        "base_url": gateway_calls.base_url(),
    }
    return render(request, "pages/gateway_routes.html", context)


def _targets(row: GatewayRoute | None, name: str) -> list[dict[str, Any]]:
    found = row.targets if row and row.targets else []
    total = sum(float(item.get("weight", 1.0)) for item in found) or 1.0
    return [
        {
            "name": item.get("deployment") or item.get("external"),
            "external": bool(item.get("external")),
            "share": float(item.get("weight", 1.0)) / total,
            "longest": item.get("max_prompt_tokens"),
        }
        for item in found
    ] or [{"name": name, "external": False, "share": 1.0, "longest": None}]


@page(Action.CONFIGURE)
def new(request: HttpRequest) -> HttpResponse:
    """Make a route, or give a deployment's own name settings."""
    if request.method != "POST":
        name = request.GET.get("name", "")
        return _form(request, RouteForm(initial={"name": name}, own_name=name))
    form = RouteForm(request.POST, filled=_filled(request))
    return _save(request, form, None)


@page(Action.CONFIGURE)
def edit(request: HttpRequest, name: str) -> HttpResponse:
    """Change a route."""
    row = selectors.route(name)
    if request.method != "POST":
        form = RouteForm(initial=RouteForm.initial_of(row), own_name=name, filled=len(row.targets))
        return _form(request, form, row=row)
    data = request.POST.copy()
    data["name"] = row.name
    return _save(request, RouteForm(data, own_name=name, filled=_filled(request)), row)


def _filled(request: HttpRequest) -> int:
    return sum(1 for key, value in request.POST.items() if key.startswith("target_") and value)


def _save(request: HttpRequest, form: RouteForm, row: GatewayRoute | None) -> HttpResponse:
    if form.is_valid():
        try:
            saved = services.save_route(person(request), form.values(), row)
        except InflightError as error:
            pages.show_in(form, error, _target_fields(form))
        else:
            text = _("%(name)s is saved; gateways know within 2 s.") % {"name": saved.name}
            return pages.done(request, text, to=reverse("gateway:routes"), stay=False)
    return _form(request, form, status=422, row=row)


def _target_fields(form: RouteForm) -> dict[str, str]:
    """The field of the form for each target that the service may blame."""
    places = [number for number in form.numbers if form.cleaned_data.get(f"target_{number}")]
    found = {"targets": "target_0"}
    for index, number in enumerate(places):
        for part in ("", ".deployment", ".external"):
            found[f"targets.{index}{part}"] = f"target_{number}"
        found[f"targets.{index}.weight"] = f"weight_{number}"
        found[f"targets.{index}.max_prompt_tokens"] = f"longest_{number}"
    return found


def _form(
    request: HttpRequest, form: RouteForm, status: int = 200, row: GatewayRoute | None = None
) -> HttpResponse:
    context = {
        "title": _("Change %(name)s") % {"name": row.name} if row else _("New route"),
        "here": "gateway",
        "row": row,
        "form": form,
        "confirm": {
            "question": _("Delete the settings of %(name)s?") % {"name": row.name},
            "text": _("A deployment of that name is called as without settings; else the name is gone."),
        }
        if row
        else None,
    }
    return render(request, "pages/gateway_route_form.html", context, status=status)


@action(Action.CONFIGURE)
def delete(request: HttpRequest, name: str) -> HttpResponse:
    """Forget a route's settings."""
    services.delete_route(person(request), selectors.route(name))
    text = _("The settings of %(name)s are deleted.") % {"name": name}
    return pages.done(request, text, to=reverse("gateway:routes"), stay=False)


@page(Action.CONFIGURE)
def new_external(request: HttpRequest) -> HttpResponse:
    """Make an external deployment."""
    if request.method != "POST":
        return _external_form(request, ExternalForm())
    return _save_external(request, ExternalForm(request.POST), None)


@page(Action.CONFIGURE)
def edit_external(request: HttpRequest, name: str) -> HttpResponse:
    """Change an external deployment; an empty secret keeps the one that there is."""
    row = selectors.external(name)
    if request.method != "POST":
        columns = ("name", "base_url", "model", "slots", "max_sequence_tokens")
        initial = {column: getattr(row, column) for column in columns}
        return _external_form(request, ExternalForm(initial=initial), row=row)
    data = request.POST.copy()
    data["name"] = row.name
    return _save_external(request, ExternalForm(data), row)


def _save_external(request: HttpRequest, form: ExternalForm, row: ExternalDeployment | None) -> HttpResponse:
    if form.is_valid():
        actor, secret = person(request), form.cleaned_data["secret"]
        try:
            saved = services.save_external(actor, form.values(), row)
            row = saved
            if secret or form.cleaned_data["forget"]:
                services.set_external_secret(actor, saved, secret)
        except InflightError as error:
            pages.show_in(form, error)
        else:
            text = _("%(name)s is saved; gateways know within 2 s.") % {"name": saved.name}
            return pages.done(request, text, to=reverse("gateway:routes"), stay=False)
    return _external_form(request, form, status=422, row=row)


def _external_form(
    request: HttpRequest, form: ExternalForm, status: int = 200, row: ExternalDeployment | None = None
) -> HttpResponse:
    context = {
        "title": _("Change %(name)s") % {"name": row.name} if row else _("New external deployment"),
        "here": "gateway",
        "row": row,
        "form": form,
        "allowed": settings.INFLIGHT_UPSTREAM_ALLOW,
        "confirm": {
            "question": _("Delete %(name)s?") % {"name": row.name},
            "text": _("Its address and its secret are forgotten. Clients that call the name are refused."),
        }
        if row
        else None,
    }
    return render(request, "pages/gateway_external_form.html", context, status=status)


@action(Action.CONFIGURE)
def delete_external(request: HttpRequest, name: str) -> HttpResponse:
    """Delete an external deployment that no route names."""
    services.delete_external(person(request), selectors.external(name))
    text = _("External deployment %(name)s is deleted.") % {"name": name}
    return pages.done(request, text, to=reverse("gateway:routes"), stay=False)
