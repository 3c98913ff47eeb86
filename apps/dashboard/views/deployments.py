"""Deployments: list, form with preview, and what may be done with one."""

from __future__ import annotations

import time
from typing import Any

from django.db.models import Count, Q
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _

from apps.accounts.roles import Action
from apps.core.exceptions import InflightError, NotFound
from apps.dashboard import build_page, lists, overview, pages, samples
from apps.dashboard.access import may, person
from apps.dashboard.forms import DeploymentForm
from apps.dashboard.pages import action, page
from apps.engines import selectors as engines
from apps.engines.models import BuildProfile
from apps.serving import preview as serving_preview
from apps.serving import selectors, services
from apps.serving.models import BatchingProfile, Deployment
from apps.serving.policy_forms import field_names, policy_initial
from apps.serving.states import DEPLOYMENT, SERVING


@page(Action.VIEW)
def deployments(request: HttpRequest) -> HttpResponse:
    """All deployments, filtered by the URL, with the sparklines of those that run."""
    rows = lists.in_state(request, selectors.deployments(), DEPLOYMENT)
    rows = lists.search(
        rows, request.GET.get("q", ""), ["name", "build_profile__name", "build_profile__checkpoint__name"]
    )
    rows = rows.annotate(serving=Count("instances", filter=Q(instances__state=SERVING))).order_by("name")
    shown = lists.page_of(request, rows)
    now = time.time()
    running = [row.pk for row in shown if row.state in overview.RUNNING]
    lines = overview.lines(list(shown), samples.recent(running), now)
    context = {
        "title": _("Deployments"),
        "here": "deployments",
        "page": shown,
        "lines": lines,
        "filters": lists.filters(request, DEPLOYMENT),
        "sparks": overview.sparks([line for line in lines if line.deployment.pk in running], now),
    }
    return render(request, "pages/deployments.html", context)


@page(Action.CONFIGURE)
def new(request: HttpRequest) -> HttpResponse:
    """Make a deployment and, where asked, deploy it at once."""
    if request.method != "POST":
        return _form(request, DeploymentForm(initial=_initial(request)))
    form = DeploymentForm(request.POST)
    if form.is_valid():
        try:
            row = services.save_deployment(person(request), form.values())
        except InflightError as error:
            pages.show_in(form, error, field_names(error))
        else:
            return _deploy_if_asked(request, row, form)
    return _form(request, form, status=422)


def _initial(request: HttpRequest) -> dict[str, Any]:
    profile = request.GET.get("profile", "")
    batching = BatchingProfile.objects.order_by("strategy", "name").first()
    return {
        "name": profile if profile and not Deployment.objects.filter(name=profile).exists() else "",
        "build_profile": profile,
        "batching": batching.name if batching else "",
    }


def _deploy_if_asked(request: HttpRequest, row: Deployment, form: DeploymentForm) -> HttpResponse:
    to = reverse("serving:deployment", args=[row.name])
    if form.cleaned_data["deploy"] and may(request, Action.OPERATE):
        try:
            services.deploy(person(request), row)
        except InflightError as error:
            # The configuration is kept; only starting it was refused.
            pages.warn(request, _("%(name)s is saved, but not deployed.") % {"name": row.name}, error)
            return HttpResponseRedirect(to, status=303)
    return pages.done(request, _("Deployment %(name)s is saved.") % {"name": row.name}, to=to, stay=False)


@page(Action.CONFIGURE)
def edit(request: HttpRequest, name: str) -> HttpResponse:
    """Change the configuration; what runs changes when it is deployed."""
    row = selectors.deployment(name)
    if request.method != "POST":
        initial = {
            "name": row.name,
            "build_profile": row.build_profile.name if row.build_profile else "",
            "batching": row.batching.name,
            "replicas": row.replicas,
            "device": row.placement.get("device", "any"),
            "deploy": row.desired == Deployment.Desired.RUNNING,
            **policy_initial(row),
        }
        return _form(request, _for(row, DeploymentForm(initial=initial)), row=row)
    form = _for(row, DeploymentForm(_with_name(request.POST, row.name)))
    if form.is_valid():
        values = form.values()
        # A share that was set elsewhere stays as it is.
        values["placement"] = {**row.placement, **values["placement"]}
        try:
            services.save_deployment(person(request), values, instance=row)
        except InflightError as error:
            pages.show_in(form, error, field_names(error))
        else:
            return _deploy_if_asked(request, selectors.deployment(name), form)
    return _form(request, form, status=422, row=row)


def _for(row: Deployment, form: DeploymentForm) -> DeploymentForm:
    """A deployment of a repository has no build profile to choose."""
    form.fields["build_profile"].required = row.repository is None
    return form


def _with_name(data: QueryDict, name: str) -> QueryDict:
    given = data.copy()
    given["name"] = name
    return given


def _form(
    request: HttpRequest, form: DeploymentForm, status: int = 200, row: Deployment | None = None
) -> HttpResponse:
    value = form.data.get if form.is_bound else form.initial.get
    context = {
        "title": _("Change %(name)s") % {"name": row.name} if row else _("New deployment"),
        "here": "deployments",
        "form": form,
        "row": row,
        "any_profile": BuildProfile.objects.exists(),
        "any_batching": BatchingProfile.objects.exists(),
        **_preview(value),
    }
    return render(request, "pages/deployment_form.html", context, status=status)


@page(Action.CONFIGURE)
def preview(request: HttpRequest) -> HttpResponse:
    """What the typed configuration becomes: a fragment for the form. Changes nothing."""
    return render(request, "pages/deployment_preview.html", _preview(request.GET.get))


def _preview(value: Any) -> dict[str, Any]:
    profile = engines.build_profiles().filter(name=value("build_profile") or "").first()
    batching = BatchingProfile.objects.filter(name=value("batching") or "").first()
    checkpoint = profile.checkpoint if profile else None
    engine = engines.newest_engine(profile) if profile else None
    return {
        "profile": profile,
        "batching": batching,
        "engine": engine,
        "unfit": build_page.unfit(engine) if engine else [],
        "engine_build": build_page.newest_build(engine) if engine else None,
        "findings": serving_preview.batching_findings(batching, checkpoint) if batching else [],
        "kv_bytes": serving_preview.kv_cache_bytes(batching, checkpoint) if batching and checkpoint else None,
        "files": serving_preview.rendered_files(batching) if batching else {},
    }


def _page_of(name: str) -> str:
    return reverse("serving:deployment", args=[name])


@action(Action.OPERATE)
def deploy(request: HttpRequest, name: str) -> HttpResponse:
    """Make the deployment run as it is configured now."""
    row = services.deploy(person(request), selectors.deployment(name))
    text = (
        _("%(name)s is being deployed.")
        if row.waiting_build_id is None
        else _("%(name)s waits for its engine.")
    )
    return pages.done(request, text % {"name": name}, to=_page_of(name))


@action(Action.OPERATE)
def stop(request: HttpRequest, name: str) -> HttpResponse:
    """Stop the deployment."""
    services.stop(person(request), selectors.deployment(name))
    return pages.done(request, _("%(name)s is being stopped.") % {"name": name}, to=_page_of(name))


@action(Action.CONFIGURE)
def delete(request: HttpRequest, name: str) -> HttpResponse:
    """Delete a stopped deployment."""
    services.delete_deployment(person(request), selectors.deployment(name))
    text = _("Deployment %(name)s is deleted.") % {"name": name}
    return pages.done(request, text, to=reverse("serving:deployments"), stay=False)


@action(Action.OPERATE)
def roll_back(request: HttpRequest, name: str, number: int) -> HttpResponse:
    """Run an earlier revision again."""
    row = selectors.deployment(name)
    revision = row.revisions.filter(number=number).first()
    if revision is None:
        raise NotFound(
            "revision_unknown",
            _("%(name)s has no revision %(number)s.") % {"name": name, "number": number},
            remedy=_("Its tab Configuration lists those that exist."),
        )
    services.roll_back(person(request), row, revision)
    text = _("%(name)s goes back to revision %(number)s.") % {"name": name, "number": number}
    return pages.done(request, text, to=reverse("serving:configuration", args=[name]))


@action(Action.OPERATE)
def pause_rollout(request: HttpRequest, name: str) -> HttpResponse:
    """Hold the roll-out where it is."""
    services.pause_rollout(person(request), selectors.deployment(name))
    return pages.done(request, _("The roll-out is paused."), to=reverse("serving:rollout", args=[name]))


@action(Action.OPERATE)
def resume_rollout(request: HttpRequest, name: str) -> HttpResponse:
    """Go on with a paused roll-out."""
    services.resume_rollout(person(request), selectors.deployment(name))
    return pages.done(request, _("The roll-out goes on."), to=reverse("serving:rollout", args=[name]))


@action(Action.OPERATE)
def promote_rollout(request: HttpRequest, name: str) -> HttpResponse:
    """Leave out the rest of the canary's steps."""
    services.promote_rollout(person(request), selectors.deployment(name))
    return pages.done(
        request,
        _("The new revision takes all requests as its servers serve."),
        to=reverse("serving:rollout", args=[name]),
    )


@action(Action.OPERATE)
def restart(request: HttpRequest, name: str, uid: str) -> HttpResponse:
    """Restart one server."""
    row = selectors.deployment(name)
    instance = row.instances.filter(uid=uid).first()
    if instance is None:
        raise NotFound(
            "instance_unknown",
            _("%(name)s has no server %(uid)s.") % {"name": name, "uid": uid},
            remedy=_("It may be gone; reload the page."),
        )
    services.restart_instance(person(request), instance)
    return pages.done(
        request, _("The server is being restarted."), to=reverse("serving:instances", args=[name])
    )
