"""Builds: list, one with stages and log, a form with a preview, cancel, try again."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _

from apps.accounts.roles import Action
from apps.core.exceptions import InflightError, InvalidInput, NotFound, NotPossibleNow
from apps.dashboard import (
    build_page,
    build_resources,
    build_rows,
    facts,
    lists,
    logs,
    pages,
    previews,
    stages,
)
from apps.dashboard.access import person
from apps.dashboard.forms import BuildForm
from apps.dashboard.pages import action, page
from apps.engines import remedies, selectors, services
from apps.engines.models import Build, BuildProfile, Quantization
from apps.engines.states import SUCCEEDED
from apps.loadtests import quality_gate
from apps.registry import selectors as registry
from apps.registry.models import Checkpoint
from apps.serving.models import Deployment


@page(Action.VIEW)
def builds(request: HttpRequest) -> HttpResponse:
    """All builds, newest first, filtered by the URL."""
    wanted = build_rows.filter_of(request)
    context = {
        "title": _("Builds"),
        "here": "builds",
        "page": lists.page_of(request, build_rows.rows_of(wanted)),
        "filters": build_rows.filters(request, wanted),
    }
    return render(request, "pages/builds.html", context)


@page(Action.VIEW)
def build(request: HttpRequest, number: int) -> HttpResponse:
    """One build."""
    row = selectors.build(number)
    tail = logs.tail(selectors.log_address(row))
    context = {
        "title": f"#{row.number}",
        "here": "builds",
        "row": row,
        "spec": row.spec,
        "stages": stages.of(row.stages),
        "facts": facts.build(row),
        "engine": row.engine,
        "engine_facts": facts.engine(row.engine) if row.engine else [],
        "manifest": facts.manifest(row.engine.manifest) if row.engine else [],
        "diagnosis": build_page.diagnosis_of(row),
        "remedies": remedies.remedies_of(row),
        "commands": build_page.commands(row),
        "resources": build_resources.resources(row),
        "history": build_page.history(row) if row.profile_id else [],
        "fits": build_page.fits(row.engine) if row.engine else [],
        "deployments": _deployments(row),
        "log": tail,
        "topic": f"log:build:{row.number}",
        "log_url": reverse("engines:log", args=[row.number]),
        "confirm_cancel": _confirm_cancel(row),
        "quality": quality_gate.verdict_of(row.engine, row.profile) if row.engine else None,
        "estimate": selectors.estimated_bytes(row.checkpoint, str(row.spec.get("quantization", ""))),
    }
    return render(request, "pages/build.html", context)


def _deployments(row: Build) -> list[Deployment]:
    return list(Deployment.objects.filter(build_profile=row.profile)[:10]) if row.profile else []


def _confirm_cancel(row: Build) -> dict[str, str]:
    return {
        "question": _("Cancel build #%(number)s?") % {"number": row.number},
        "text": _("Its processes are ended within 5 seconds and what it has written so far is removed."),
    }


@page(Action.VIEW)
def log(request: HttpRequest, number: int) -> HttpResponseBase:
    """The log of a build's last attempt."""
    row = selectors.build(number)
    return logs.response(request, selectors.log_address(row), f"build-{row.number}.log")


@page(Action.OPERATE)
def new(request: HttpRequest) -> HttpResponse:
    """Start a build, from a profile that exists or from a new one."""
    if request.method != "POST":
        return _form(request, BuildForm(initial=_initial(request)))
    form = BuildForm(request.POST)
    if form.is_valid():
        try:
            row = services.start_build(person(request), _profile(request, form.cleaned_data))
        except InflightError as error:
            pages.show_in(form, error)
        else:
            return HttpResponseRedirect(reverse("engines:build", args=[row.number]), status=303)
    return _form(request, form, status=422)


def _initial(request: HttpRequest) -> dict[str, Any]:
    profile = request.GET.get("profile", "")
    return {
        "mode": "profile" if profile else "new",
        "profile": profile,
        "checkpoint": request.GET.get("checkpoint", ""),
        "quantization": request.GET.get("type", Quantization.F16),
    }


def _profile(request: HttpRequest, data: dict[str, Any]) -> BuildProfile:
    if data["mode"] == "profile":
        if data["profile"] is None:
            raise InvalidInput(
                "required", _("No build profile is chosen."), field="profile", remedy=_("Choose one.")
            )
        return data["profile"]  # type: ignore[no-any-return]
    checkpoint: Checkpoint | None = data["checkpoint"]
    if checkpoint is None:
        raise InvalidInput(
            "required", _("No checkpoint is chosen."), field="checkpoint", remedy=_("Choose one.")
        )
    seen = previews.build(checkpoint, data["quantization"])
    if seen.refused:
        first = next(item for item in seen.findings if item.severity == "error")
        raise NotPossibleNow(first.id, first.message, field=first.where, remedy=first.remedy)
    name = data["name"] or previews.profile_name(checkpoint.name, data["quantization"])
    same = BuildProfile.objects.filter(
        name=name, checkpoint=checkpoint, quantization=data["quantization"], options={}
    ).first()
    values = {"name": name, "checkpoint": checkpoint.name, "quantization": data["quantization"]}
    return same or services.save_build_profile(person(request), values)


def _form(request: HttpRequest, form: BuildForm, status: int = 200) -> HttpResponse:
    value = form.data.get if form.is_bound else form.initial.get
    context = {
        "title": _("New build"),
        "here": "builds",
        "form": form,
        "preview": _preview(value),
        "any_checkpoint": registry.checkpoints().exists(),
    }
    return render(request, "pages/build_new.html", context, status=status)


def _preview(value: Any) -> previews.BuildPreview:
    """Preview of what the form says; `value` reads one of its fields."""
    if value("mode") == "profile":
        profile = selectors.build_profiles().filter(name=value("profile") or "").first()
        if profile is None:
            return previews.BuildPreview()
        return previews.of_profile(profile)
    checkpoint = registry.checkpoints().filter(name=value("checkpoint") or "").first()
    seen = previews.build(checkpoint, value("quantization") or str(Quantization.F16))
    seen.profile_name = value("name") or seen.profile_name
    return seen


@page(Action.OPERATE)
def preview(request: HttpRequest) -> HttpResponse:
    """The preview as a fragment for the form. Changes nothing."""
    return render(request, "pages/build_preview.html", {"preview": _preview(request.GET.get)})


@action(Action.OPERATE)
def cancel(request: HttpRequest, number: int) -> HttpResponse:
    """Cancel a build."""
    row = services.cancel_build(person(request), selectors.build(number))
    text = (
        _("Build #%(number)s is cancelled.")
        if row.state == "cancelled"
        else _("Build #%(number)s is being cancelled.")
    )
    return pages.done(request, text % {"number": number}, to=reverse("engines:build", args=[number]))


@action(Action.OPERATE)
def retry(request: HttpRequest, number: int) -> HttpResponse:
    """Build the same again."""
    row = services.retry_build(person(request), selectors.build(number))
    text = (
        _("Build #%(number)s is done: the engine existed.")
        if row.state == SUCCEEDED
        else _("Build #%(number)s is queued.")
    )
    return pages.done(
        request, text % {"number": row.number}, to=reverse("engines:build", args=[row.number]), stay=False
    )


@action(Action.OPERATE)
def delete_engine(request: HttpRequest, number: int) -> HttpResponse:
    """Delete the engine that a build made."""
    row = selectors.build(number)
    if row.engine is None:
        raise NotFound(
            "engine_unknown",
            _("Build #%(number)s has no engine.") % {"number": number},
            remedy=_("There is nothing to delete."),
        )
    services.delete_engine(person(request), row.engine)
    return pages.done(
        request, _("The engine is deleted."), to=reverse("engines:build", args=[number]), stay=False
    )
