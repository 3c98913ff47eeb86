"""Fields for service level, roll-out and scaling, as the page and the admin both show them.

They shape what a person types; policies and autoscale_policy decide whether it is good.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _

from apps.core.exceptions import InflightError
from apps.serving.domain.autoscale_needs import METRICS
from apps.serving.models import Deployment

_MONO = {"autocomplete": "off", "spellcheck": "false", "class": "input mono"}


class CanaryField(forms.CharField):
    """Steps as `10:300, 50:600`; cleaned they are [{weight, seconds}]."""

    def to_python(self, value: Any) -> Any:
        """The steps. Raises ValidationError naming the word that is none."""
        steps = []
        for word in str(value or "").replace(",", " ").split():
            weight, colon, seconds = word.partition(":")
            if not (colon and weight.isdecimal() and seconds.isdecimal() and len(word) < 16):
                raise forms.ValidationError(
                    _("%(word)s is no step; write percent:seconds, as 10:300."), params={"word": word}
                )
            steps.append({"weight": int(weight), "seconds": int(seconds)})
        return steps


class TargetsField(forms.CharField):
    """Targets as `in_flight=8, ttft_ms=800`; cleaned they are [{metric, value}]."""

    def to_python(self, value: Any) -> Any:
        """The targets. Raises ValidationError naming the word that is none."""
        found = []
        for word in str(value or "").replace(",", " ").split():
            metric, _sign, number = word.partition("=")
            if metric not in METRICS or not re.fullmatch(r"\d{1,7}(\.\d{1,6})?", number):
                raise forms.ValidationError(
                    _("%(word)s is no target; write metric=value with one of %(metrics)s."),
                    params={"word": word, "metrics": ", ".join(METRICS)},
                )
            found.append({"metric": metric, "value": float(number)})
        return found


class ScheduleField(forms.CharField):
    """A line an entry: `0 8 * * mon-fri Europe/Berlin 2..6`; cleaned they are the entries of `scaling.schedule`."""

    def to_python(self, value: Any) -> Any:
        """The entries. Raises ValidationError naming the line that is none."""
        found = []
        for line in str(value or "").splitlines():
            words = line.split()
            if not words:
                continue
            bounds = re.fullmatch(r"(\d{0,3})\.\.(\d{0,3})", words[-1]) if len(words) in (6, 7) else None
            if bounds is None or words[-1] == "..":
                raise forms.ValidationError(
                    _("%(line)s is no entry; write it as 0 8 * * mon-fri Europe/Berlin 2..6."),
                    params={"line": line.strip()},
                )
            entry: dict[str, Any] = {"at": " ".join(words[:5])}
            if len(words) == 7:
                entry["timezone"] = words[5]
            for name, number in zip(("min_replicas", "max_replicas"), bounds.groups(), strict=True):
                if number:
                    entry[name] = int(number)
            found.append(entry)
        return found


class PolicyForm(forms.Form):
    """What a deployment promises, how it changes and how it scales. Empty fields have the defaults of the shapes."""

    slo_ttft_ms = forms.FloatField(
        label=_("TTFT at most (ms)"), required=False, help_text=_("90th percentile. Empty: not promised.")
    )
    slo_itl_ms = forms.FloatField(
        label=_("ITL at most (ms)"), required=False, help_text=_("90th percentile between two tokens.")
    )
    slo_error_percent = forms.FloatField(
        label=_("Failed requests at most (%)"),
        required=False,
        min_value=0,
        max_value=100,
        help_text=_("Failed and rejected among all."),
    )
    slo_window_seconds = forms.IntegerField(
        label=_("Judged over (s)"), required=False, help_text=_("Empty: 300.")
    )
    max_surge = forms.IntegerField(
        label=_("Servers beyond the wanted number"),
        required=False,
        min_value=0,
        help_text=_("Empty: 1, so that a new server starts beside the old one. Cost: memory for both."),
    )
    max_unavailable = forms.IntegerField(
        label=_("Servers that may be missing"),
        required=False,
        min_value=0,
        help_text=_("Empty: 0. More is quicker, and requests wait meanwhile."),
    )
    progress_seconds = forms.IntegerField(
        label=_("Longest time without progress (s)"),
        required=False,
        help_text=_("Empty: 600. Then the revision before goes on."),
    )
    drain_seconds = forms.IntegerField(
        label=_("Time for streams to end (s)"),
        required=False,
        min_value=0,
        help_text=_("Empty: 120. A replaced server is ended when its streams are, or after this."),
    )
    canary = CanaryField(
        label=_("Canary steps"),
        required=False,
        max_length=200,
        widget=forms.TextInput(attrs={**_MONO, "placeholder": "10:300, 50:600"}),
        help_text=_(
            "Percent of new requests and seconds, as 10:300, 50:600. Each step is judged by the service level. "
            "Empty: all at once."
        ),
    )
    min_replicas = forms.IntegerField(
        label=_("Fewest servers"),
        required=False,
        min_value=0,
        max_value=64,
        help_text=_("Empty: 1. 0 lets it sleep."),
    )
    max_replicas = forms.IntegerField(
        label=_("Most servers"),
        required=False,
        min_value=1,
        max_value=64,
        help_text=_("Needed for targets. Cost: each server holds its own weights and KV cache."),
    )
    scaling_targets = TargetsField(
        label=_("Targets"),
        required=False,
        max_length=200,
        widget=forms.TextInput(attrs={**_MONO, "placeholder": "in_flight=8, ttft_ms=800"}),
        help_text=_(
            "in_flight and waiting count the requests of each server, ttft_ms is a 90th percentile, kv_use and "
            "gpu_use are shares. The one that asks for most servers decides. Empty: the load changes nothing."
        ),
    )
    scaling_schedule = ScheduleField(
        label=_("Schedule"),
        required=False,
        max_length=2000,
        widget=forms.Textarea(
            attrs={**_MONO, "rows": 2, "placeholder": "0 8 * * mon-fri Europe/Berlin 2..6"}
        ),
        help_text=_(
            "A line each: minute, hour, day, month, weekday, time zone, fewest..most servers from then on."
        ),
    )
    up_window_seconds = forms.IntegerField(
        label=_("More after (s)"),
        required=False,
        help_text=_("Empty: 15. More must be asked for all the while."),
    )
    down_window_seconds = forms.IntegerField(
        label=_("Fewer after (s)"),
        required=False,
        help_text=_("Empty: 300. Longer is steadier and costs more."),
    )
    up_cooldown_seconds = forms.IntegerField(
        label=_("Between two additions (s)"), required=False, min_value=0, help_text=_("Empty: 15.")
    )
    down_cooldown_seconds = forms.IntegerField(
        label=_("Before a removal (s)"),
        required=False,
        min_value=0,
        help_text=_("Empty: 60, after any change."),
    )
    idle_seconds = forms.IntegerField(
        label=_("Sleeps after (s)"),
        required=False,
        min_value=0,
        help_text=_(
            "So long without a request it has no server; the next request waits for one. Empty: never."
        ),
    )
    wake_seconds = forms.IntegerField(
        label=_("Longest wait for it to wake (s)"), required=False, help_text=_("Empty: 300.")
    )


SLO_FIELDS = ("slo_ttft_ms", "slo_itl_ms", "slo_error_percent", "slo_window_seconds")
ROLLOUT_FIELDS = ("max_surge", "max_unavailable", "progress_seconds", "drain_seconds", "canary")
_SCALING_NUMBERS = (
    "min_replicas",
    "max_replicas",
    "up_window_seconds",
    "down_window_seconds",
    "up_cooldown_seconds",
    "down_cooldown_seconds",
    "idle_seconds",
    "wake_seconds",
)
SCALING_FIELDS = (
    *("min_replicas", "max_replicas", "scaling_targets", "scaling_schedule", "up_window_seconds"),
    *("down_window_seconds", "up_cooldown_seconds", "down_cooldown_seconds", "idle_seconds", "wake_seconds"),
)


def policy_values(data: Mapping[str, Any]) -> dict[str, Any]:
    """`slo`, `rollout` and `scaling` out of a form's cleaned data, as services take them."""
    percent = data.get("slo_error_percent")
    slo = {
        "ttft_ms": data.get("slo_ttft_ms"),
        "itl_ms": data.get("slo_itl_ms"),
        "error_rate": percent / 100 if percent is not None else None,
        "window_seconds": data.get("slo_window_seconds"),
    }
    rollout = {name: data.get(name) for name in ROLLOUT_FIELDS}
    scaling = {name: data.get(name) for name in _SCALING_NUMBERS}
    scaling |= {"targets": data.get("scaling_targets"), "schedule": data.get("scaling_schedule")}
    return {"slo": _given(slo), "rollout": _given(rollout), "scaling": _given(scaling)}


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None and value != []}


def policy_initial(row: Deployment) -> dict[str, Any]:
    """What the fields show of a deployment: only what was set."""
    slo, rollout, scaling = dict(row.slo), dict(row.rollout), dict(row.scaling)
    rate = slo.get("error_rate")
    return {
        "slo_ttft_ms": slo.get("ttft_ms"),
        "slo_itl_ms": slo.get("itl_ms"),
        "slo_error_percent": rate * 100 if rate is not None else None,
        "slo_window_seconds": slo.get("window_seconds"),
        **{key: rollout.get(key) for key in ROLLOUT_FIELDS},
        "canary": ", ".join(f"{step['weight']}:{step['seconds']}" for step in rollout.get("canary", [])),
        **{key: scaling.get(key) for key in _SCALING_NUMBERS},
        "scaling_targets": ", ".join(
            f"{each['metric']}={each['value']:g}" for each in scaling.get("targets", [])
        ),
        "scaling_schedule": "\n".join(_line(each) for each in scaling.get("schedule", [])),
    }


def _line(entry: Mapping[str, Any]) -> str:
    least, most = (entry.get(name) for name in ("min_replicas", "max_replicas"))
    bounds = f"{'' if least is None else least}..{'' if most is None else most}"
    return f"{entry['at']} {entry.get('timezone', 'UTC')} {bounds}"


# Which field of a form shows what the service says of a part of a document.
_FIELDS = {
    "placement.device": "device",
    "slo": "slo_ttft_ms",
    "slo.ttft_ms": "slo_ttft_ms",
    "slo.itl_ms": "slo_itl_ms",
    "slo.error_rate": "slo_error_percent",
    "slo.window_seconds": "slo_window_seconds",
    "rollout": "canary",
    "scaling": "min_replicas",
    "scaling.targets": "scaling_targets",
    "scaling.schedule": "scaling_schedule",
}


def form_field(where: str) -> str:
    """The form's field behind a part of a document, as `scaling.schedule.0.at`."""
    parts = where.split(".")
    for length in range(len(parts), 0, -1):
        known = ".".join(parts[:length])
        if known in _FIELDS and length > 1:
            return _FIELDS[known]
    if parts[0] in ("rollout", "scaling") and len(parts) > 1:
        return parts[1]
    return _FIELDS.get(where, where)


def field_names(error: InflightError) -> dict[str, str]:
    """The same for every part that a refusal names."""
    found = [error.field, *(each.where for each in getattr(error, "findings", ()) or ())]
    return {where: form_field(where) for where in found}
