"""Forms about what is kept and what is taken in."""

from __future__ import annotations

from typing import Any

from django import forms
from django.db.models import QuerySet
from django.utils.translation import gettext_lazy as _

from apps.engines.models import BuildProfile
from apps.registry.models import Checkpoint


def _days(label: Any, text: Any) -> forms.IntegerField:
    return forms.IntegerField(label=label, help_text=text, min_value=1, max_value=3650, required=False)


class PolicyForm(forms.Form):
    """How long things are kept; empty days: for ever."""

    enabled = forms.BooleanField(label=_("Clean up once a day"), required=False)
    engines_days = _days(_("Engines (days)"), _("Since a server last loaded it. Empty: for ever."))
    stages_days = _days(_("Kept stages (days)"), _("Since a build last used it. Empty: for ever."))
    logs_days = _days(_("Logs (days)"), _("Since the build ended. Empty: for ever."))
    keep_newest = forms.IntegerField(
        label=_("Newest engines"),
        help_text=_("So many of each build profile stay, however old."),
        min_value=0,
        max_value=100,
    )


class ImportForm(forms.Form):
    """Which folder, and what it was built from."""

    path = forms.CharField(
        label=_("Folder"),
        max_length=1000,
        help_text=_("On the node: it holds config.json and the rank files that trtllm-build wrote."),
    )
    checkpoint = forms.ModelChoiceField(
        label=_("Checkpoint"),
        queryset=Checkpoint.objects.none(),
        to_field_name="name",
        help_text=_("That it was built from: its tokenizer and chat template are used."),
    )
    profile = forms.ModelChoiceField(
        label=_("Build profile"),
        queryset=BuildProfile.objects.none(),
        to_field_name="name",
        required=False,
        help_text=_("Deployments of this profile will use the engine. May be left out."),
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        profiles = BuildProfile.objects.filter(builder=BuildProfile.Builder.TRTLLM)
        self._choose("checkpoint", Checkpoint.objects.order_by("name"))
        self._choose("profile", profiles.order_by("name"))

    def _choose(self, name: str, rows: QuerySet[Any]) -> None:
        field = self.fields[name]
        if isinstance(field, forms.ModelChoiceField):
            field.queryset = rows
