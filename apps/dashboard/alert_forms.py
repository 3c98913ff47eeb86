"""Forms of the alert pages. They shape what a person types; the services decide whether it is good."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from django import forms
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from apps.core import clock
from apps.telemetry.alerts.models import AlertRule, NotificationChannel, Severity
from apps.telemetry.domain.vocabulary import KEYS

_NAME = {"autocomplete": "off", "spellcheck": "false", "maxlength": "63", "class": "input mono"}
_PLAIN = {"autocomplete": "off", "spellcheck": "false", "class": "input mono"}
_DAY = 86_400


def _metrics(blank: str | Promise = "") -> list[tuple[str, Any]]:
    areas: dict[str, list[tuple[str, str]]] = {}
    for key in KEYS:
        unit = "" if key.unit == "1" else f" ({key.unit})"
        areas.setdefault(key.area, []).append((key.name, f"{key.title}{unit}"))
    grouped: list[tuple[str, Any]] = list(areas.items())
    return [("", blank), *grouped] if blank else grouped


def _seconds(label: Any, initial: int, least: int = 0, most: int = _DAY) -> forms.IntegerField:
    return forms.IntegerField(label=label, initial=initial, min_value=least, max_value=most, required=False)


class RuleForm(forms.Form):
    """A rule with its condition as fields; which of them count depends on `kind`."""

    name = forms.CharField(
        label=_("Name"), max_length=63, widget=forms.TextInput(attrs=_NAME), help_text=_("It stays as it is.")
    )
    summary = forms.CharField(
        label=_("Summary"), max_length=200, help_text=_("What a person reads first when it fires.")
    )
    remedy = forms.CharField(
        label=_("What to do"), required=False, max_length=2000, widget=forms.Textarea(attrs={"rows": 3})
    )
    severity = forms.ChoiceField(label=_("Severity"), choices=Severity.choices, initial=Severity.WARNING)
    target = forms.ChoiceField(label=_("About"), choices=AlertRule.Target.choices)
    selector = forms.CharField(
        label=_("Names"),
        max_length=200,
        initial="*",
        widget=forms.TextInput(attrs=_PLAIN),
        help_text=_("* and ? as in file names; a server also goes by its deployment's name."),
    )
    kind = forms.ChoiceField(
        label=_("Watch for"),
        choices=[
            ("threshold", _("a limit")),
            ("change", _("a change")),
            ("burn_rate", _("an error budget")),
            ("events", _("events")),
            ("absence", _("silence")),
            ("state", _("a state")),
        ],
        initial="threshold",
        widget=forms.RadioSelect,
    )
    key = forms.ChoiceField(label=_("Metric"), choices=_metrics, required=False)
    per = forms.ChoiceField(label=_("As a share of"), choices=lambda: _metrics(_("nothing")), required=False)
    compare = forms.ChoiceField(
        label=_("Is"), choices=[("above", _("above")), ("below", _("below"))], required=False
    )
    value = forms.FloatField(
        label=_("Limit"), required=False, help_text=_("In the metric's unit; a share is 0 to 1.")
    )
    clear = forms.FloatField(
        label=_("Over at"), required=False, help_text=_("Empty: 10% on the good side of the limit.")
    )
    statistic = forms.ChoiceField(
        label=_("Taken as"),
        choices=[
            ("mean", _("mean")),
            ("median", _("median")),
            ("max", _("highest")),
            ("min", _("lowest")),
            ("last", _("newest")),
        ],
        required=False,
    )
    window_seconds = _seconds(_("Over the last (s)"), 30, 1, 3600)
    change_key = forms.ChoiceField(label=_("Metric"), choices=_metrics, required=False)
    direction = forms.ChoiceField(
        label=_("Which"), choices=[("rise", _("rises")), ("fall", _("falls"))], required=False
    )
    by = forms.FloatField(label=_("By"), required=False)
    relative = forms.ChoiceField(
        label=_("Counted"),
        choices=[("yes", _("as a share of what it was")), ("no", _("as an amount"))],
        required=False,
    )
    at_least = forms.FloatField(label=_("From at least"), required=False, initial=0)
    recent_seconds = _seconds(_("Now: the last (s)"), 60, 10, 3600)
    baseline_seconds = _seconds(_("Before: the (s) before that"), 300, 10, 3600)
    absence_key = forms.ChoiceField(
        label=_("Metric"), choices=lambda: _metrics(_("any: no sample at all")), required=False
    )
    absence_seconds = _seconds(_("Nothing for (s)"), 30, 10, 3600)
    event = forms.ChoiceField(
        label=_("Event"),
        choices=[
            ("instance_restart", _("a server restarted")),
            ("instance_failure", _("a server failed")),
            ("deployment_failure", _("a deployment failed")),
        ],
        required=False,
    )
    count = forms.IntegerField(
        label=_("At least (times)"), initial=2, min_value=1, max_value=1000, required=False
    )
    within_seconds = _seconds(_("Within (s)"), 600, 60)
    states = forms.CharField(
        label=_("States"),
        required=False,
        widget=forms.TextInput(attrs=_PLAIN),
        help_text=_("With commas between."),
    )
    indicator = forms.ChoiceField(
        label=_("A request is bad when it"),
        choices=[
            ("errors", _("fails")),
            ("ttft", _("is slow to its first token (TTFT)")),
            ("itl", _("is slow between tokens (ITL)")),
            ("e2e", _("is slow end to end")),
        ],
        required=False,
    )
    limit_ms = forms.FloatField(label=_("Slow from (ms)"), required=False)
    objective = forms.FloatField(
        label=_("Objective (% good)"), initial=99, min_value=50, max_value=99.999, required=False
    )
    for_seconds = _seconds(_("Must hold for (s)"), 60)
    resolve_seconds = _seconds(_("Must be over for (s)"), 60)
    repeat_seconds = _seconds(_("Tell again after (s)"), 4 * 3600, 60, 7 * _DAY)
    channels = forms.MultipleChoiceField(
        label=_("Tell"),
        required=False,
        choices=lambda: [(name, name) for name in NotificationChannel.objects.values_list("name", flat=True)],
        widget=forms.CheckboxSelectMultiple,
        help_text=_("None chosen: every channel that is switched on."),
    )
    enabled = forms.BooleanField(label=_("Switched on"), required=False, initial=True)

    def condition(self, before: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The condition as the services spell it; an error budget keeps the windows that it had."""
        data = {name: self.cleaned_data.get(name) for name in self.fields}
        kind = str(data["kind"] or "")
        names = _FIELDS.get(kind, {})
        found: dict[str, Any] = {"kind": kind}
        found |= {
            key: data[field] for key, field in names.items() if data[field] is not None and data[field] != ""
        }
        if kind == "change":
            found["relative"] = data["relative"] != "no"
        if kind == "state":
            found["states"] = [word.strip() for word in str(data["states"]).split(",") if word.strip()]
        if kind == "burn_rate":
            if data["objective"] is not None:
                found["objective"] = round(data["objective"] / 100, 8)
            if before and before.get("kind") == "burn_rate" and "windows" in before:
                found["windows"] = before["windows"]
        return found

    def values(self, before: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The whole rule as the services spell it."""
        data = self.cleaned_data
        plain = ("name", "summary", "remedy", "severity", "target", "selector", "channels", "enabled")
        found = {name: data[name] for name in plain if name in data}
        for name in ("for_seconds", "resolve_seconds", "repeat_seconds"):
            if data.get(name) is not None:
                found[name] = data[name]
        return {**found, "condition": self.condition(before)}


# Fields of a condition by kind: name in the condition -> name in the form.
_FIELDS: dict[str, dict[str, str]] = {
    "threshold": {
        name: name for name in ("key", "per", "compare", "value", "clear", "statistic", "window_seconds")
    },
    "change": {
        "key": "change_key",
        "direction": "direction",
        "by": "by",
        "at_least": "at_least",
        "window_seconds": "recent_seconds",
        "baseline_seconds": "baseline_seconds",
    },
    "absence": {"key": "absence_key", "seconds": "absence_seconds"},
    "events": {name: name for name in ("event", "count", "within_seconds")},
    "state": {},
    "burn_rate": {"indicator": "indicator", "limit_ms": "limit_ms"},
}


def initial_of(rule: AlertRule) -> dict[str, Any]:
    """A rule as the form's initial values."""
    plain = ("name", "summary", "remedy", "severity", "target", "selector", "enabled",
             "for_seconds", "resolve_seconds", "repeat_seconds")  # fmt: skip
    found: dict[str, Any] = {name: getattr(rule, name) for name in plain}
    condition = rule.condition
    found["kind"] = condition.get("kind")
    for key, field in _FIELDS.get(str(condition.get("kind")), {}).items():
        found[field] = condition.get(key)
    found["relative"] = "yes" if condition.get("relative", True) else "no"
    found["states"] = ", ".join(condition.get("states", []))
    if "objective" in condition:
        found["objective"] = round(condition["objective"] * 100, 6)
    return {**found, "channels": [channel.name for channel in rule.channels.all()]}


def form_names(kind: str) -> dict[str, str]:
    """Names that the service uses for a condition's fields -> names in the form."""
    found = {f"condition.{key}": field for key, field in _FIELDS.get(kind, {}).items()}
    return {
        **found,
        "condition.states": "states",
        "condition.objective": "objective",
        "condition.kind": "kind",
        "condition.relative": "relative",
    }


class SilenceForm(forms.Form):
    """What is silent, for how long and why."""

    HOURS = ((1, _("1 hour")), (4, _("4 hours")), (24, _("1 day")), (168, _("1 week")))

    rule = forms.CharField(
        label=_("Rule"), required=False, max_length=63, widget=forms.TextInput(attrs=_PLAIN),
        help_text=_("Empty: every rule. * and ? as in file names."),
    )  # fmt: skip
    object_name = forms.CharField(
        label=_("Object"), required=False, max_length=200, widget=forms.TextInput(attrs=_PLAIN),
        help_text=_("Name of a deployment, server or node. Empty: everything."),
    )  # fmt: skip
    severity = forms.ChoiceField(
        label=_("Severity"), choices=[("", _("any")), *Severity.choices], required=False
    )
    hours = forms.TypedChoiceField(label=_("For"), choices=HOURS, coerce=int, initial=1)
    reason = forms.CharField(label=_("Reason"), max_length=500)

    def values(self) -> dict[str, Any]:
        """The silence as the service spells it, from now on."""
        data = self.cleaned_data
        return {
            "rule": data["rule"],
            "object_name": data["object_name"],
            "severity": data["severity"] or None,
            "reason": data["reason"],
            "ends_at": clock.now() + timedelta(hours=data["hours"]),
        }


class ChannelForm(forms.Form):
    """A webhook or e-mail addresses."""

    name = forms.CharField(label=_("Name"), max_length=63, widget=forms.TextInput(attrs=_NAME))
    type = forms.ChoiceField(
        label=_("By"), choices=NotificationChannel.Kind.choices, initial="webhook", widget=forms.RadioSelect
    )
    url = forms.CharField(
        label=_("URL"),
        required=False,
        max_length=2000,
        widget=forms.TextInput(attrs=_PLAIN),
        help_text=_(
            "JSON is posted to it. Addresses that are not public must be allowed by an administrator."
        ),
    )
    secret = forms.CharField(
        label=_("Secret"),
        required=False,
        max_length=200,
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password", "class": "input mono"}),
        help_text=_(
            "Signs each message (HMAC-SHA256). It is never shown again; left empty it stays as it is."
        ),
    )
    recipients = forms.CharField(
        label=_("Recipients"),
        required=False,
        widget=forms.Textarea(attrs={"rows": 3, "spellcheck": "false"}),
        help_text=_("One address a line."),
    )
    least_severity = forms.ChoiceField(
        label=_("From severity"), choices=Severity.choices, initial=Severity.WARNING
    )
    send_resolved = forms.BooleanField(label=_("Also when it is over"), required=False, initial=True)
    enabled = forms.BooleanField(label=_("Switched on"), required=False, initial=True)

    def values(self) -> dict[str, Any]:
        """The channel as the service spells it."""
        data = dict(self.cleaned_data)
        secret = data.pop("secret")
        data["recipients"] = [line.strip() for line in data["recipients"].splitlines() if line.strip()]
        return {**data, "secret": secret} if secret else data
