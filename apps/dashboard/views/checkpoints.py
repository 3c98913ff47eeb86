"""Checkpoints: list, one, register with live validation, inspect again, delete."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from apps.accounts.roles import Action
from apps.core.exceptions import InflightError
from apps.dashboard import facts, lists, pages, previews
from apps.dashboard.access import person
from apps.dashboard.forms import DEMO, CheckpointForm
from apps.dashboard.pages import action, page
from apps.engines.models import Build, BuildProfile, Engine
from apps.engines.states import DELETED
from apps.registry import selectors, services
from apps.registry.models import Checkpoint
from apps.registry.states import CHECKPOINT

LINKED = 10


@page(Action.VIEW)
def checkpoints(request: HttpRequest) -> HttpResponse:
    """All checkpoints, filtered by the URL."""
    rows = lists.in_state(request, selectors.checkpoints(), CHECKPOINT)
    rows = lists.search(rows, request.GET.get("q", ""), ["name", "path"])
    context = {
        "title": _("Checkpoints"),
        "here": "checkpoints",
        "page": lists.page_of(request, rows.defer("chat_template")),
        "filters": lists.filters(request, CHECKPOINT),
    }
    return render(request, "pages/checkpoints.html", context)


@page(Action.VIEW)
def checkpoint(request: HttpRequest, name: str) -> HttpResponse:
    """One checkpoint: facts, findings, what was made from it."""
    row = selectors.checkpoint(name)
    context = {
        "title": row.name,
        "here": "checkpoints",
        "row": row,
        "facts": facts.checkpoint(row),
        "findings": row.facts.get("findings", []),
        "profiles": BuildProfile.objects.filter(checkpoint=row)[:LINKED],
        "builds": Build.objects.filter(checkpoint=row).select_related("checkpoint")[:LINKED],
        "engines": Engine.objects.filter(checkpoint=row).exclude(state=DELETED)[:LINKED],
        "confirm": _confirm(row),
    }
    return render(request, "pages/checkpoint.html", context)


def _confirm(row: Checkpoint) -> dict[str, str]:
    return {
        "question": _("Delete checkpoint %(name)s?") % {"name": row.name},
        "text": _("Its row and its finished builds are forgotten. The files stay where they are: %(path)s.")
        % {"path": row.path},
    }


@page(Action.CONFIGURE)
def new(request: HttpRequest) -> HttpResponse:
    """Register a checkpoint."""
    if request.method != "POST":
        demo = "demo" in request.GET
        form = CheckpointForm(initial={"kind": "demo", "name": DEMO} if demo else None)
        return _form(request, form)
    form = CheckpointForm(request.POST)
    if form.is_valid():
        try:
            row = services.register_checkpoint(person(request), form.cleaned_data["name"], form.source())
        except InflightError as error:
            pages.show_in(form, error, _fields(form))
        else:
            return HttpResponseRedirect(reverse("registry:checkpoint", args=[row.name]), status=303)
    return _form(request, form, status=422)


def _form(request: HttpRequest, form: CheckpointForm, status: int = 200) -> HttpResponse:
    context = {
        "title": _("Register a checkpoint"),
        "here": "checkpoints",
        "form": form,
        "roots": selectors.allowed_roots(),
    }
    return render(request, "pages/checkpoint_new.html", context, status=status)


def _fields(form: CheckpointForm) -> dict[str, str]:
    """The field of the form for each field that the service may blame."""
    kind = str(form.data.get("kind", "path"))
    first = {"huggingface": "repo", "demo": "demo"}.get(kind, "path")
    return {
        "source": first,
        "source.path": "path",
        "source.demo": "demo",
        "source.huggingface": "repo",
        "source.huggingface.repo": "repo",
        "source.huggingface.revision": "revision",
    }


@require_POST
@page(Action.CONFIGURE)
def check(request: HttpRequest) -> HttpResponse:
    """What the typed name and source would give: a fragment for the form. Changes nothing."""
    form = CheckpointForm(request.POST)
    context: dict[str, Any] = {"check": previews.checkpoint(str(request.POST.get("name", "")), form.source())}
    return render(request, "pages/checkpoint_check.html", context)


@action(Action.CONFIGURE)
def inspect(request: HttpRequest, name: str) -> HttpResponse:
    """Read the headers again."""
    row = services.inspect_again(person(request), selectors.checkpoint(name))
    text = _("%(name)s was inspected again.") % {"name": row.name}
    return pages.done(request, text, to=reverse("registry:checkpoint", args=[row.name]))


@action(Action.CONFIGURE)
def delete(request: HttpRequest, name: str) -> HttpResponse:
    """Forget a checkpoint."""
    services.delete_checkpoint(person(request), selectors.checkpoint(name))
    text = _("Checkpoint %(name)s is deleted.") % {"name": name}
    return pages.done(request, text, to=reverse("registry:checkpoints"), stay=False)
