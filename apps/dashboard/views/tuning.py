"""Tunings: form, page, and what is pressed on it."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _

from apps.accounts.roles import Action
from apps.core.exceptions import InflightError
from apps.dashboard import pages
from apps.dashboard.access import person
from apps.dashboard.loads import tuning_plots
from apps.dashboard.loads.tuning_forms import FIELDS, TuningForm
from apps.dashboard.pages import action, page
from apps.loadtests import services, tuning, tuning_steps
from apps.loadtests.domain.tuner_request import TuningFields
from apps.loadtests.tuning_models import Tuning
from apps.loadtests.tuning_serialize import progress_of
from apps.serving.models import Deployment

# What is ticked on a new form: what nearly every engine has.
TICKED = ("strategy", "max_batch_size", "max_queue_delay_microseconds", "max_queue_size")


@page(Action.CONFIGURE)
def new(request: HttpRequest) -> HttpResponse:
    """Begin a tuning."""
    if request.method != "POST":
        initial = {"deployment": request.GET.get("deployment", ""), "parameters": TICKED}
        return _form(request, TuningForm(initial=initial))
    form = TuningForm(request.POST)
    if form.is_valid():
        try:
            allow = form.cleaned_data["allow"]
            row = services.start_tuning(person(request), form.request(), allow_production=allow)
        except InflightError as error:
            prefixes = {error.field: "values"} if error.field.startswith("parameters") else {}
            pages.show_in(form, error, {**FIELDS, **prefixes})
        else:
            text = _("Tuning #%(number)s has begun.") % {"number": row.number}
            return pages.done(request, text, to=reverse("loadtests:tuning", args=[row.number]), stay=False)
    return _form(request, form, 422)


def _form(request: HttpRequest, form: TuningForm, status: int = 200) -> HttpResponse:
    context = {
        "title": _("New tuning"),
        "here": "loads",
        "form": form,
        "any": Deployment.objects.filter(build_profile__isnull=False).exists(),
    }
    return render(request, "pages/tuning_new.html", context, status=status)


@page(Action.VIEW)
def show(request: HttpRequest, number: int) -> HttpResponse:
    """One tuning: its front and its trials while it goes on, who won and why when it is done."""
    row = tuning.tuning(number)
    asked = TuningFields.model_validate(row.request)
    trials = list(row.trials.select_related("run"))
    context: dict[str, Any] = {
        "title": _("Tuning of %(name)s") % {"name": row.target},
        "here": "loads",
        "row": row,
        "asked": asked,
        "bounds": [each.constraint().text for each in asked.constraints],
        "progress": progress_of(row, trials),
        "eta": tuning_steps.eta_seconds(row),
        "active": next((trial for trial in trials if trial.is_active), None),
        "done": sum(trial.is_terminal and trial.state != "infeasible" for trial in trials),
        "refused": sum(trial.state == "infeasible" for trial in trials),
        "command": ["manage.py", "tuning", "show", str(row.number)],
        **tuning_plots.of(row),
    }
    return render(request, "pages/tuning.html", context)


@action(Action.OPERATE)
def cancel(request: HttpRequest, number: int) -> HttpResponse:
    """Cancel a tuning."""
    services.cancel_tuning(person(request), tuning.tuning(number))
    text = _("Tuning #%(number)s is being cancelled.") % {"number": number}
    return pages.done(request, text, to=reverse("loadtests:tuning", args=[number]))


@action(Action.CONFIGURE)
def apply(request: HttpRequest, number: int) -> HttpResponse:
    """Apply a trial by a rolling update."""
    trial = request.POST.get("trial", "")
    chosen = int(trial) if trial.isdecimal() and len(trial) < 7 else None
    row = services.apply_tuning(person(request), tuning.tuning(number), chosen)
    text = _("%(name)s is being rolled out.") % {"name": row.name}
    return pages.done(request, text, to=reverse("loadtests:tuning", args=[number]))


@action(Action.OPERATE)
def delete(request: HttpRequest, number: int) -> HttpResponse:
    """Delete a tuning with its trials and runs."""
    services.delete_tuning(person(request), tuning.tuning(number))
    text = _("Tuning #%(number)s is deleted.") % {"number": number}
    return pages.done(request, text, to=reverse("loadtests:tests"), stay=False)


def newest(count: int) -> list[tuple[Tuning, float]]:
    """The newest tunings with their progress, for the list of load tests."""
    rows = Tuning.objects.select_related("requested_by").prefetch_related("trials__run")[:count]
    return [(row, progress_of(row, list(row.trials.all()))) for row in rows]
