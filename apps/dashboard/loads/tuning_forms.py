"""The form of a tuning. It shapes what a person types; services decide whether it is good."""

from __future__ import annotations

from typing import Any

import yaml
from django import forms
from django.utils.translation import gettext as _t
from django.utils.translation import gettext_lazy as _

from apps.loadtests.domain.tuner_goals import FIGURES
from apps.loadtests.domain.tuner_parameters import USUAL
from apps.serving.models import Deployment

_PLAIN = {"autocomplete": "off", "spellcheck": "false"}
_FIGURES = [(name, f"{figure.title} ({figure.unit})") for name, figure in FIGURES.items()]
# Beside which field of the form a refusal of the service stands.
FIELDS = {
    "deployment": "deployment",
    "target": "deployment",
    "objectives": "objective",
    "constraints": "bound_one",
    "parameters": "values",
    "scenario.slo": "ttft",
    "scenario.load": "clients",
    "load.concurrency": "clients",
    "load.rate": "rate",
    "timing": "seconds",
    "timing.seconds": "seconds",
    "trials": "trials",
    "minutes": "minutes",
}


def _number(label: Any, initial: float | None, help_text: Any = "", least: float = 0.001) -> forms.FloatField:
    return forms.FloatField(
        label=label,
        initial=initial,
        required=initial is not None,
        min_value=least,
        help_text=help_text,
        widget=forms.NumberInput(attrs={**_PLAIN, "step": "any"}),
    )


class TuningForm(forms.Form):
    """What to look for, what to choose from, under which load, how long."""

    deployment = forms.ChoiceField(
        label=_("Deployment"),
        help_text=_("What it serves is not touched: every trial has servers of its own."),
    )
    objective = forms.ChoiceField(label=_("Look for"), choices=_FIGURES, help_text=_("It decides who wins."))
    second = forms.ChoiceField(
        label=_("And for"),
        choices=[("", _("nothing else")), *_FIGURES],
        required=False,
        help_text=_("With a second one the front shows what one costs of the other."),
    )
    bound_one = forms.ChoiceField(
        label=_("Only where"), choices=[("", _("no bound")), *_FIGURES], required=False
    )
    value_one = _number(_("is at most (or at least)"), None)
    bound_two = forms.ChoiceField(
        label=_("and where"), choices=[("", _("no bound")), *_FIGURES], required=False
    )
    value_two = _number(_("is at most (or at least)"), None)
    parameters = forms.MultipleChoiceField(
        label=_("Choose"),
        choices=[(name, name) for name in USUAL if name != "threads"],
        required=False,
        widget=forms.CheckboxSelectMultiple,
    )
    values = forms.CharField(
        label=_("Values of your own"),
        required=False,
        widget=forms.Textarea(attrs={**_PLAIN, "rows": 4, "class": "input mono"}),
        help_text=_(
            "YAML, for what the usual values do not fit: max_batch_size: [4, 8, 16] or build: [f16, q8]. A range as "
            "{least: 1, most: 32} goes up by doubling."
        ),
    )
    mode = forms.ChoiceField(
        label=_("Load"),
        choices=[("closed", _("Clients")), ("open", _("Arrivals"))],
        initial="closed",
        widget=forms.RadioSelect,
    )
    clients = forms.IntegerField(
        label=_("Clients"), initial=16, min_value=1, widget=forms.NumberInput(attrs=_PLAIN)
    )
    rate = _number(_("Requests/s"), 1.0)
    warm_up = _number(_("Warm-up (s)"), 6, least=0)
    seconds = _number(_("Measured for (s)"), 30)
    ttft = _number(_("SLO: TTFT (ms)"), None, _("For goodput."))
    tpot = _number(_("SLO: TPOT (ms)"), None)
    trials = forms.IntegerField(
        label=_("Trials"), initial=25, min_value=2, widget=forms.NumberInput(attrs=_PLAIN)
    )
    minutes = _number(_("At most (minutes)"), 120)
    allow = forms.BooleanField(label=_("Lift the limits that spare production"), required=False)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        rows = Deployment.objects.filter(build_profile__isnull=False).order_by("name")
        names = [(name, name) for name in rows.values_list("name", flat=True)]
        self.fields["deployment"].choices = names  # type: ignore[attr-defined]

    def clean_values(self) -> dict[str, Any]:
        """The YAML as a mapping."""
        try:
            found = yaml.safe_load(self.cleaned_data["values"] or "{}")
        except yaml.YAMLError as error:
            raise forms.ValidationError(
                _t("This is no YAML: %(error)s") % {"error": str(error).splitlines()[0]}, code="yaml"
            ) from error
        if not isinstance(found, dict):
            raise forms.ValidationError(_t("Write one parameter a line, as threads: [1, 2]."), code="yaml")
        return {str(key): value for key, value in found.items()}

    def request(self) -> dict[str, Any]:
        """As services.start_tuning takes it."""
        data = self.cleaned_data
        seconds = float(data["seconds"])
        bounds = [
            {"figure": name, "most" if not FIGURES[name].more else "least": float(value)}
            for name, value in (
                (data["bound_one"], data["value_one"]),
                (data["bound_two"], data["value_two"]),
            )
            if name and value is not None
        ]
        load = (
            {"mode": "closed", "concurrency": [data["clients"]]}
            if data["mode"] == "closed"
            else {"mode": "open", "rate": [float(data["rate"])]}
        )
        slo = {name: data[field] for name, field in (("ttft_ms", "ttft"), ("tpot_ms", "tpot")) if data[field]}
        return {
            "deployment": data["deployment"],
            "parameters": {**dict.fromkeys(data["parameters"]), **data["values"]},
            "objectives": list(dict.fromkeys(name for name in (data["objective"], data["second"]) if name)),
            "constraints": bounds,
            "scenario": {
                "load": load,
                "prompts": {
                    "input": {"distribution": "fixed", "mean": 12.0},
                    "output": {"distribution": "uniform", "least": 8, "most": 128},
                },
                "timing": {
                    "warm_up_seconds": float(data["warm_up"]),
                    "seconds": seconds,
                    "most_seconds": 2 * seconds,
                    "until_steady": False,
                },
                "slo": slo,
            },
            "trials": data["trials"],
            "minutes": float(data["minutes"]),
        }
