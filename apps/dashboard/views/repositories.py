"""Model repositories that somebody already had: import, findings, the ensemble's picture, adopt."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.core.files.uploadedfile import UploadedFile
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _

from apps.accounts.roles import Action, may, require
from apps.core.exceptions import InflightError
from apps.dashboard import ensemble_graph, lists, pages
from apps.dashboard.access import person
from apps.dashboard.pages import action, page
from apps.dashboard.repository_forms import AdoptForm, ImportForm, LineForm
from apps.registry import services as registry
from apps.serving import reach, selectors, services
from apps.serving.adoption import adoption_plan
from apps.serving.imports import UNPACKED_BYTES, allowed_roots
from apps.serving.models import ModelRepository


@page(Action.VIEW)
def repositories(request: HttpRequest) -> HttpResponse:
    """All imported repositories."""
    rows = lists.search(
        selectors.model_repositories().prefetch_related("deployments"),
        request.GET.get("q", ""),
        ["name", "folder"],
    )
    context = {
        "title": _("Model repositories"),
        "here": "deployments",
        "page": lists.page_of(request, rows),
        "given": request.GET,
        "filtered": bool(request.GET.get("q")),
    }
    return render(request, "pages/repositories.html", context)


@page(Action.CONFIGURE)
def new(request: HttpRequest) -> HttpResponse:
    """Import a repository; what is found is shown on its page."""
    form = ImportForm(request.POST or None, request.FILES or None)
    if request.method == "POST" and form.is_valid():
        try:
            row = services.import_repository(
                person(request), form.cleaned_data["name"], _source(request, form)
            )
        except InflightError as error:
            pages.show_in(form, error, {"source": "path", "source.path": "path", "source.archive": "upload"})
        else:
            to = reverse("repositories:repository", args=[row.name])
            return pages.done(request, _("%(name)s is imported.") % {"name": row.name}, to=to, stay=False)
    context = {
        "title": _("Import a repository"),
        "here": "deployments",
        "form": form,
        "roots": allowed_roots(),
        "upload_bytes": UNPACKED_BYTES,
        "code_author": may(request.user, Action.AUTHOR_CODE),
    }
    return render(request, "pages/repository_new.html", context, status=422 if form.errors else 200)


def _source(request: HttpRequest, form: ImportForm) -> dict[str, str]:
    upload: UploadedFile[Any] | None = form.cleaned_data["upload"]
    if upload is None:
        return {"path": form.cleaned_data["path"]}
    registry.check_name(form.cleaned_data["name"])
    kept = registry.keep_upload(person(request), upload.name or "", upload.chunks(), upload.size)
    return {"archive": str(kept)}


@page(Action.VIEW)
def repository(request: HttpRequest, name: str) -> HttpResponse:
    """One repository: its models, what was found, its picture, and the deployment that could be made of it."""
    row = selectors.model_repository(name)
    models = [model["name"] for model in row.report.get("models", [])]
    form = AdoptForm(request.POST or None, models=models, initial={"name": _free_name(row)})
    if request.method == "POST":
        require(request.user, Action.CONFIGURE)
        if form.is_valid() and (made := _adopted(request, row, form)) is not None:
            return made
    plan, refusal = _plan(request, row)
    context = {
        "title": row.name,
        "here": "deployments",
        "row": row,
        "models": row.report.get("models", []),
        "findings": row.report.get("findings", []),
        "drawings": ensemble_graph.of_report(row.report),
        "size_bytes": sum(one["size_bytes"] for one in row.files),
        "deployments": row.deployments.all(),
        "plan": plan,
        "reach": reach.of_repository(row, plan.entry) if plan else None,
        "refusal": refusal,
        "form": form,
        "confirm": {
            "question": _("Forget repository %(name)s?") % {"name": row.name},
            "text": _("Files that people put there stay; what was unpacked from an archive is removed."),
        },
    }
    return render(request, "pages/repository.html", context, status=422 if form.errors else 200)


def _plan(request: HttpRequest, row: ModelRepository) -> tuple[Any, InflightError | None]:
    try:
        return adoption_plan(row, request.GET.get("model", "")), None
    except InflightError as error:
        return None, error


def _free_name(row: ModelRepository) -> str:
    taken = selectors.deployments().filter(name=row.name).exists()
    return "" if taken else row.name


def _adopted(request: HttpRequest, row: ModelRepository, form: AdoptForm) -> HttpResponse | None:
    checkpoint = form.cleaned_data["checkpoint"]
    data = {"model": form.cleaned_data["model"], "checkpoint": checkpoint.name if checkpoint else ""}
    try:
        made = services.adopt_repository(person(request), row, form.cleaned_data["name"], data)
    except InflightError as error:
        pages.show_in(form, error)
        return None
    to = reverse("serving:configuration", args=[made.name])
    said = _("%(name)s is made; deploy it when its settings are as you want them.") % {"name": made.name}
    return pages.done(request, said, to=to, stay=False)


@action(Action.CONFIGURE)
def check(request: HttpRequest, name: str) -> HttpResponse:
    """Read the files anew."""
    row = services.check_again(person(request), selectors.model_repository(name))
    to = reverse("repositories:repository", args=[row.name])
    return pages.done(request, _("%(name)s was checked again.") % {"name": row.name}, to=to, stay=False)


@action(Action.CONFIGURE)
def delete(request: HttpRequest, name: str) -> HttpResponse:
    """Forget a repository."""
    services.delete_repository(person(request), selectors.model_repository(name))
    to = reverse("repositories:repositories")
    return pages.done(request, _("%(name)s is forgotten.") % {"name": name}, to=to, stay=False)


@page(Action.CONFIGURE)
def line(request: HttpRequest) -> HttpResponse:
    """A batching profile out of a pasted fill_template.py line."""
    form = LineForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        try:
            data = form.cleaned_data
            profile, findings = services.profile_of_line(person(request), data["name"], data["command"])
        except InflightError as error:
            pages.show_in(form, error)
        else:
            for found in findings:
                messages.warning(request, f"{found['message']} {found['remedy']}")
            to = reverse("admin:serving_batchingprofile_change", args=[profile.pk])
            return HttpResponseRedirect(to, status=303)
    context = {"title": _("Profile from a fill_template.py line"), "here": "deployments", "form": form}
    return render(request, "pages/repository_line.html", context, status=422 if form.errors else 200)
