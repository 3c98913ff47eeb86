"""Checkpoints: list, one, register with live validation, fetch, inspect again, delete."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.files.uploadedfile import UploadedFile
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from apps.accounts.roles import Action
from apps.core.exceptions import InflightError
from apps.dashboard import checkpoint_facts, lists, logs, pages, previews
from apps.dashboard.access import person
from apps.dashboard.forms import DEMO, CheckpointForm, HubAccessForm
from apps.dashboard.pages import action, page
from apps.engines.models import Build, BuildProfile, Engine
from apps.engines.states import DELETED
from apps.registry import selectors, services
from apps.registry.models import Checkpoint
from apps.registry.states import CANCELLED, CHECKPOINT, FAILED, MISSING, REFUSED, REGISTERED

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
        "groups": checkpoint_facts.groups(row),
        "splits": checkpoint_facts.splits(row),
        "findings": row.facts.get("findings", []),
        "profiles": BuildProfile.objects.filter(checkpoint=row)[:LINKED],
        "builds": Build.objects.filter(checkpoint=row).select_related("checkpoint")[:LINKED],
        "engines": Engine.objects.filter(checkpoint=row).exclude(state=DELETED)[:LINKED],
        "confirm": _confirm(row),
        "waits": row.state == REGISTERED and not row.path,
        "again": row.is_fetched and row.state in (FAILED, CANCELLED, REFUSED, MISSING),
        "log": logs.tail(row.log_path) if row.state in (FAILED, REFUSED) and row.log_path else None,
    }
    return render(request, "pages/checkpoint.html", context)


def _confirm(row: Checkpoint) -> dict[str, str]:
    said = _("Its row and its finished builds are forgotten.")
    stays = _("The files stay where they are: %(path)s.") % {"path": row.path}
    goes = _("The files that were fetched for it are removed from the disk: %(path)s.") % {"path": row.folder}
    return {
        "question": _("Delete checkpoint %(name)s?") % {"name": row.name},
        "text": f"{said} {goes if row.folder else stays if row.path else ''}".strip(),
    }


@page(Action.VIEW)
def log(request: HttpRequest, name: str) -> HttpResponseBase:
    """The log of the last attempt to fetch it."""
    return logs.response(request, selectors.checkpoint(name).log_path, f"checkpoint-{name}.log")


@page(Action.CONFIGURE)
def new(request: HttpRequest) -> HttpResponse:
    """Register a checkpoint."""
    if request.method != "POST":
        demo = "demo" in request.GET
        form = CheckpointForm(initial={"kind": "demo", "name": DEMO} if demo else None)
        return _form(request, form)
    form = CheckpointForm(request.POST, request.FILES)
    if form.is_valid():
        try:
            source = _uploaded(request, form)
            row = services.register_checkpoint(person(request), form.cleaned_data["name"], source)
        except InflightError as error:
            pages.show_in(form, error, _fields(form))
        else:
            return HttpResponseRedirect(reverse("registry:checkpoint", args=[row.name]), status=303)
    return _form(request, form, status=422)


def _uploaded(request: HttpRequest, form: CheckpointForm) -> dict[str, Any]:
    """The source; an archive that came with the form is kept first, once the name is known to be good."""
    source = form.source()
    upload: UploadedFile[Any] | None = form.cleaned_data["upload"]
    if "archive" in source and upload is not None:
        services.check_name(form.cleaned_data["name"])
        kept = services.keep_upload(person(request), upload.name or "", upload.chunks(), upload.size)
        source["archive"] = str(kept)
    return source


def _form(request: HttpRequest, form: CheckpointForm, status: int = 200) -> HttpResponse:
    context = {
        "title": _("Register a checkpoint"),
        "here": "checkpoints",
        "form": form,
        "roots": selectors.allowed_roots(),
        "access": selectors.hub_access(),
        "upload_bytes": settings.INFLIGHT_UPLOAD_BYTES,
    }
    return render(request, "pages/checkpoint_new.html", context, status=status)


def _fields(form: CheckpointForm) -> dict[str, str]:
    """The field of the form for each field that the service may blame."""
    kind = str(form.data.get("kind", "path"))
    first = {"huggingface": "repo", "demo": "demo", "archive": "archive"}.get(kind, "path")
    return {
        "source": first,
        "source.path": "path",
        "source.demo": "demo",
        "source.huggingface": "repo",
        "source.huggingface.repo": "repo",
        "source.huggingface.revision": "revision",
        "source.huggingface.files": "wanted",
        "source.archive": "archive",
        "source.pickle": "pickle",
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
    row = selectors.checkpoint(name)
    services.delete_checkpoint(person(request), row, files=bool(row.folder))
    text = _("Checkpoint %(name)s is deleted.") % {"name": name}
    return pages.done(request, text, to=reverse("registry:checkpoints"), stay=False)


@action(Action.CONFIGURE)
def cancel(request: HttpRequest, name: str) -> HttpResponse:
    """Stop fetching."""
    row = services.cancel_fetch(person(request), selectors.checkpoint(name))
    text = _("%(name)s is cancelled.") if row.state == CANCELLED else _("%(name)s is being cancelled.")
    return pages.done(request, text % {"name": name}, to=reverse("registry:checkpoint", args=[name]))


@action(Action.CONFIGURE)
def retry(request: HttpRequest, name: str) -> HttpResponse:
    """Fetch again, perhaps another file."""
    row = services.retry_fetch(person(request), selectors.checkpoint(name), request.POST.getlist("file"))
    text = _("%(name)s is fetched again.") % {"name": row.name}
    return pages.done(request, text, to=reverse("registry:checkpoint", args=[row.name]))


@page(Action.ADMINISTER)
def access(request: HttpRequest) -> HttpResponse:
    """Mirror and token of the hub."""
    row = selectors.hub_access()
    form = (
        HubAccessForm(request.POST)
        if request.method == "POST"
        else HubAccessForm(initial={"endpoint": row.endpoint})
    )
    if request.method == "POST" and form.is_valid():
        try:
            services.save_hub_access(person(request), form.values())
        except InflightError as error:
            pages.show_in(form, error)
        else:
            return pages.done(request, _("Hub access is saved."), to=reverse("registry:access"), stay=False)
    context = {"title": _("Hub access"), "here": "checkpoints", "form": form, "row": row}
    status = 422 if form.errors else 200
    return render(request, "pages/hub_access.html", context, status=status)
