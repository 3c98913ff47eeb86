"""Adaptive batching of a deployment: its switch, its bounds, what it sees and every move."""

from __future__ import annotations

from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _t
from django.utils.translation import gettext_lazy as _

from apps.accounts.roles import Action, require
from apps.core.exceptions import InflightError
from apps.dashboard import pages
from apps.dashboard.access import person
from apps.dashboard.pages import page
from apps.dashboard.views.deployment import tab_context
from apps.gateway import adaptive as admission
from apps.gateway import services
from apps.gateway.adaptive import AdaptiveFields
from apps.serving import policies, selectors

_PLAIN = {"autocomplete": "off", "spellcheck": "false"}


def _number(
    label: Any, whole: bool = True, required: bool = True, help_text: Any = "", least: int = 0
) -> forms.Field:
    kind = forms.IntegerField if whole else forms.FloatField
    attributes = _PLAIN if whole else {**_PLAIN, "step": "any"}
    return kind(
        label=label,
        required=required,
        min_value=least,
        help_text=help_text,
        widget=forms.NumberInput(attrs=attributes),
    )


class AdaptiveForm(forms.Form):
    """The fields of AdaptiveFields."""

    enabled = forms.BooleanField(label=_("Let the controller move them"), required=False)
    ttft_ms = _number(
        _("TTFT p90 (ms)"), whole=False, required=False, help_text=_("Empty: the deployment's.")
    )
    itl_ms = _number(_("ITL p90 (ms)"), whole=False, required=False, help_text=_("Empty: the deployment's."))
    least_admitted = _number(_("Requests at once: least"), least=1)
    most_admitted = _number(
        _("most"), required=False, help_text=_("Empty: the slots of the engine."), least=1
    )
    least_queue = _number(_("Waiting requests: least"))
    most_queue = _number(_("most"))
    window_seconds = _number(_("Looks back (s)"), least=5)
    hold = _number(_("Looks that must agree"), help_text=_("It looks every 5 s."), least=1)
    settle_seconds = _number(_("Rest after a move (s)"), help_text=_("Twice as long before it turns back."))


@page(Action.VIEW)
def adaptive(request: HttpRequest, name: str) -> HttpResponse:
    """Settings, levers and moves; a POST changes the settings."""
    row = selectors.deployment(name)
    if request.method != "POST":
        form = AdaptiveForm(initial=admission.fields_of(admission.of(row)).model_dump(mode="json"))
        return _show(request, name, form)
    require(request.user, Action.CONFIGURE)
    form = AdaptiveForm(request.POST)
    if form.is_valid():
        data = {key: form.cleaned_data[key] for key in AdaptiveFields.model_fields}
        try:
            services.save_adaptive(person(request), row, data)
        except InflightError as error:
            pages.show_in(form, error)
        else:
            text = (
                _t("Adaptive batching of %(name)s is on.")
                if data["enabled"]
                else _t("Adaptive batching of %(name)s is off.")
            )
            to = reverse("serving:adaptive", args=[name])
            return pages.done(request, text % {"name": name}, to=to, stay=False)
    return _show(request, name, form, 422)


def _show(request: HttpRequest, name: str, form: AdaptiveForm, status: int = 200) -> HttpResponse:
    row = selectors.deployment(name)
    context: dict[str, Any] = {
        **tab_context(row, "advice"),
        "form": form,
        "adaptive": admission.of(row),
        "moves": admission.moves(row),
        "slo": policies.slo_of(row),
        "command": ["manage.py", "adaptive", "show", name],
    }
    return render(request, "pages/deployment_adaptive.html", context, status=status)
