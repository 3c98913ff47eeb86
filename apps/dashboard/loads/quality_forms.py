"""Forms of quality runs and gates."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _

from apps.engines import selectors as engines
from apps.engines.models import BuildProfile
from apps.engines.states import READY
from apps.loadtests.models import QualityRun
from apps.loadtests.policy import (
    MOST_QUALITY_ANSWER_TOKENS,
    MOST_QUALITY_WINDOWS,
    QUALITY_ANSWER_TOKENS,
    QUALITY_WINDOWS,
)
from apps.loadtests.quality import WITH_LOGITS
from apps.serving.models import Deployment

_PLAIN = {"autocomplete": "off", "spellcheck": "false"}


class QualityForm(forms.Form):
    """What to compare with what."""

    method = forms.ChoiceField(
        label=_("Compare"), choices=QualityRun.Method.choices, initial="logits", widget=forms.RadioSelect
    )
    engine = forms.ChoiceField(label=_("Build"), required=False)
    baseline_engine = forms.ChoiceField(
        label=_("Source"), required=False, help_text=_("The checkpoint itself, or another engine made of it.")
    )
    deployment = forms.ChoiceField(label=_("Deployment of the build"), required=False)
    baseline = forms.ChoiceField(label=_("Deployment of the source"), required=False)
    windows = forms.IntegerField(
        label=_("Windows of the text"),
        initial=QUALITY_WINDOWS,
        min_value=1,
        max_value=MOST_QUALITY_WINDOWS,
        widget=forms.NumberInput(attrs=_PLAIN),
        help_text=_("Of 128 tokens; fewer are quicker and less sure."),
    )
    answer_tokens = forms.IntegerField(
        label=_("Tokens of an answer"),
        initial=QUALITY_ANSWER_TOKENS,
        min_value=1,
        max_value=MOST_QUALITY_ANSWER_TOKENS,
        widget=forms.NumberInput(attrs=_PLAIN),
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        rows = engines.engines().filter(state=READY, builder__in=WITH_LOGITS)
        found = [(row.fingerprint, str(row)) for row in rows]
        names = [(name, name) for name in Deployment.objects.order_by("name").values_list("name", flat=True)]
        self.fields["engine"].choices = found  # type: ignore[attr-defined]
        self.fields["baseline_engine"].choices = [("", _("its checkpoint")), *found]  # type: ignore[attr-defined]
        self.fields["deployment"].choices = names  # type: ignore[attr-defined]
        self.fields["baseline"].choices = names  # type: ignore[attr-defined]

    @property
    def engines_exist(self) -> bool:
        """Whether there is an engine to choose."""
        return bool(self.fields["engine"].choices)  # type: ignore[attr-defined]


def _bound(label: Any, help_text: Any, step: str) -> forms.Field:
    return forms.FloatField(
        label=label,
        required=False,
        help_text=help_text,
        widget=forms.NumberInput(attrs={**_PLAIN, "step": step}),
    )


class GateForm(forms.Form):
    """What engines of a build profile must keep."""

    name = forms.CharField(
        label=_("Name"), max_length=63, widget=forms.TextInput(attrs={**_PLAIN, "class": "input mono"})
    )
    build_profile = forms.ChoiceField(label=_("Build profile"))
    max_perplexity_ratio = _bound(_("Perplexity ratio at most"), _("1.05: five per cent more."), "any")
    max_divergence = _bound(_("KL divergence at most"), _("Nats a token."), "any")
    min_top1 = _bound(_("Top-1 agreement at least"), _("0.95: of 95% of the tokens."), "any")
    min_agreement = _bound(
        _("Greedy agreement at least"), _("Share of golden prompts answered the same."), "any"
    )
    blocking = forms.BooleanField(label=_("An engine that does not keep it is not deployed"), required=False)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        names = BuildProfile.objects.order_by("name").values_list("name", flat=True)
        self.fields["build_profile"].choices = [(name, name) for name in names]  # type: ignore[attr-defined]
