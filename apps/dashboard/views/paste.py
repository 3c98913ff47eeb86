"""Pasted TensorRT-LLM commands become profiles: read, shown with what changed, opened in the form or saved."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django import forms
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _l

from apps.accounts.roles import Action
from apps.core.exceptions import InflightError
from apps.dashboard import pages
from apps.dashboard.access import person
from apps.dashboard.pages import page
from apps.engines import pasting, services
from apps.engines.models import BuildProfile
from apps.registry.models import Checkpoint

_MONO = {"autocomplete": "off", "spellcheck": "false", "class": "input mono"}


class PasteForm(forms.Form):
    """The text, and what it leaves open."""

    command = forms.CharField(
        label=_l("Command"),
        max_length=65536,
        widget=forms.Textarea(attrs={**_MONO, "class": "textarea mono", "rows": 8}),
        help_text=_l(
            "trtllm-build, convert_checkpoint.py or quantize.py as a tutorial has it; several together are one "
            "profile. Nothing is run."
        ),
    )
    release = forms.CharField(
        label=_l("TensorRT-LLM release"),
        required=False,
        max_length=30,
        widget=forms.TextInput(attrs=_MONO),
        help_text=_l("Whose flags count, as 1.2.1. Empty: the newest that builds engines."),
    )
    checkpoint = forms.ModelChoiceField(
        queryset=Checkpoint.objects.order_by("name"),
        to_field_name="name",
        label=_l("Checkpoint"),
        required=False,
        empty_label=_l("the one that the command names"),
        widget=forms.Select(attrs={"class": "input"}),
    )
    name = forms.CharField(
        label=_l("Name of the profile"),
        required=False,
        max_length=63,
        initial=pasting.NAME,
        widget=forms.TextInput(attrs=_MONO),
    )


@page(Action.CONFIGURE)
def paste(request: HttpRequest) -> HttpResponse:
    """The form; with a POST what the text means, and with `save` the profiles themselves."""
    if request.method != "POST":
        return _shown(request, PasteForm(), None)
    form = PasteForm(request.POST)
    if not form.is_valid():
        return _shown(request, form, None, status=422)
    data = form.cleaned_data
    try:
        pasted = pasting.read(data["command"], data["release"].strip())
    except InflightError as error:
        pages.show_in(form, error)
        return _shown(request, form, None, status=422)
    if data["checkpoint"] is not None:
        pasted = pasting.with_checkpoint(pasted, data["checkpoint"])
    if "save" in request.POST:
        try:
            profile = _save(request, pasted, data["name"])
        except InflightError as error:
            pages.show_in(form, error)
            return _shown(request, form, pasted, status=422)
        change = reverse("admin:engines_buildprofile_change", args=[profile.pk])
        return HttpResponseRedirect(change, status=303)
    return _shown(request, form, pasted)


def _save(request: HttpRequest, pasted: pasting.Pasted, name: str) -> BuildProfile:
    documents = pasting.inputs(pasted, name or pasting.NAME)
    with transaction.atomic():
        if documents.quantization is not None:
            services.save_quantization_profile(person(request), documents.quantization)
        return services.save_build_profile(person(request), documents.profile)


def _shown(
    request: HttpRequest, form: PasteForm, pasted: pasting.Pasted | None, status: int = 200
) -> HttpResponse:
    context: dict[str, Any] = {
        "title": _("Paste a command"),
        "here": "builds",
        "form": form,
        "pasted": pasted,
        "documents": pasting.documents(pasted) if pasted else "",
        "open_url": "",
    }
    if pasted is not None:
        add = reverse("admin:engines_buildprofile_add")
        context["open_url"] = f"{add}?{urlencode(pasting.initial(pasted, form.data.get('name', '')))}"
        if pasted.quantization is not None:
            add = reverse("admin:engines_quantizationprofile_add")
            values = pasting.quantization_initial(pasted, form.data.get("name", ""))
            context["quantization_url"] = f"{add}?{urlencode(values)}"
    return render(request, "pages/build_paste.html", context, status=status)
