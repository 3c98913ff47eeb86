"""Forms of the gateway's pages. They shape what a person types; services decide whether it is good."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django import forms
from django.contrib.auth.models import User
from django.utils.translation import gettext as _t
from django.utils.translation import gettext_lazy as _

from apps.core import clock
from apps.gateway import inputs, selectors
from apps.gateway.models import ExternalDeployment, GatewayKey, GatewayRoute, PriorityClass
from apps.serving.models import Deployment

_PLAIN = {"autocomplete": "off", "spellcheck": "false"}
_MONO = {**_PLAIN, "class": "input mono"}
KEEP = "keep"
LIFETIMES = {"7": 7, "30": 30, "90": 90, "365": 365}
# Rows for targets that a form shows beyond those that are filled.
SPARE_ROWS = 2


class LimitForm(forms.Form):
    """Bounds of a key or a route; empty: none."""

    requests_per_minute = forms.IntegerField(
        label=_("Requests a minute"), required=False, min_value=1, widget=forms.NumberInput(attrs=_PLAIN)
    )
    tokens_per_minute = forms.IntegerField(
        label=_("Tokens a minute"), required=False, min_value=1, widget=forms.NumberInput(attrs=_PLAIN)
    )
    concurrent_requests = forms.IntegerField(
        label=_("Requests at once"), required=False, min_value=1, widget=forms.NumberInput(attrs=_PLAIN)
    )
    max_tokens = forms.IntegerField(
        label=_("Tokens an answer may have"),
        required=False,
        min_value=1,
        widget=forms.NumberInput(attrs=_PLAIN),
    )

    def limits(self) -> dict[str, int | None]:
        """The bounds as services spell them."""
        return {name: self.cleaned_data.get(name) for name in inputs.LIMITS}


class KeyForm(LimitForm):
    """What an application may do with its key."""

    name = forms.CharField(
        label=_("Name"),
        max_length=100,
        widget=forms.TextInput(attrs=_PLAIN),
        help_text=_("The application or machine that will use the key."),
    )
    owner = forms.ModelChoiceField(
        label=_("Owner"),
        queryset=User.objects.filter(is_active=True).order_by("username"),
        to_field_name="username",
        required=False,
        empty_label=None,
        help_text=_("Who answers for it. The key stops when this account is switched off."),
    )
    scope = forms.ChoiceField(
        label=_("Models"),
        choices=[("all", _("All models, also those that come later")), ("some", _("Only these"))],
        initial="all",
        widget=forms.RadioSelect,
    )
    routes = forms.MultipleChoiceField(
        label=_("Models that it may use"), required=False, widget=forms.CheckboxSelectMultiple
    )
    priority = forms.ChoiceField(
        label=_("Priority"),
        choices=PriorityClass.choices,
        initial=PriorityClass.NORMAL,
        help_text=_("Who goes first where more is asked than can be computed."),
    )
    lifetime = forms.ChoiceField(label=_("Expires"), initial="")

    def __init__(self, *args: Any, row: GatewayKey | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.row = row
        names = {*selectors.public_names(), *((row.routes or []) if row else [])}
        self.fields["routes"].choices = [(name, name) for name in sorted(names)]  # type: ignore[attr-defined]
        ways = [("", _t("never")), *((key, _t("in %(n)d days") % {"n": n}) for key, n in LIFETIMES.items())]
        if row is not None and row.expires_at is not None:
            ways.insert(0, (KEEP, _t("as now: %(day)s") % {"day": row.expires_at.date().isoformat()}))
        self.fields["lifetime"].choices = ways  # type: ignore[attr-defined]
        self.fields["lifetime"].required = False

    def values(self) -> dict[str, Any]:
        """The columns as services spell them."""
        data = self.cleaned_data
        return {
            "name": data["name"],
            "routes": None if data["scope"] == "all" else list(data["routes"]),
            "priority": data["priority"],
            "expires_at": self._expires_at(data["lifetime"]),
            **self.limits(),
        }

    def _expires_at(self, lifetime: str) -> Any:
        if lifetime == KEEP and self.row is not None:
            return self.row.expires_at
        return clock.now() + timedelta(days=LIFETIMES[lifetime]) if lifetime in LIFETIMES else None

    @staticmethod
    def initial_of(row: GatewayKey) -> dict[str, Any]:
        """What the form shows of a key."""
        return {
            "name": row.name,
            "scope": "all" if row.routes is None else "some",
            "routes": row.routes or [],
            "priority": row.priority,
            "lifetime": KEEP if row.expires_at else "",
            **{name: getattr(row, name) for name in inputs.LIMITS},
        }


class LoadForm(forms.Form):
    """A load to try a key's limits with. Nothing of it is kept."""

    clients = forms.IntegerField(label=_("Clients at once"), initial=2, min_value=1, max_value=64)
    prompt_tokens = forms.IntegerField(
        label=_("Prompt (tokens)"), initial=500, min_value=1, max_value=1_000_000
    )
    answer_tokens = forms.IntegerField(
        label=_("Answer (tokens)"), initial=200, min_value=1, max_value=1_000_000
    )
    seconds = forms.FloatField(label=_("Takes (s)"), initial=2.0, min_value=0.05, max_value=600)


class RouteForm(LimitForm):
    """One public name in front of one or more deployments."""

    name = forms.CharField(
        label=_("Public name"),
        max_length=63,
        widget=forms.TextInput(attrs=_MONO),
        help_text=_("Clients send it as the model. It stays as it is."),
    )
    fallback = forms.ChoiceField(
        label=_("Fallback"), required=False, help_text=_("Tried where none of the targets can answer.")
    )
    queue_size = forms.IntegerField(
        label=_("Requests that may wait"), initial=512, min_value=0, max_value=100_000
    )
    queue_seconds = forms.FloatField(label=_("Longest wait (s)"), initial=60, min_value=0, max_value=3600)
    record_bodies = forms.BooleanField(label=_("Keep the texts of requests and answers"), required=False)
    body_days = forms.IntegerField(label=_("Days that texts are kept"), initial=7, min_value=1, max_value=90)

    def __init__(self, *args: Any, own_name: str = "", filled: int = 0, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        known = target_choices()
        self.numbers = range(min(32, max(2, filled + SPARE_ROWS)))
        for number in self.numbers:
            self.fields[f"target_{number}"] = forms.ChoiceField(
                label=_("Target"), required=False, choices=known
            )
            self.fields[f"weight_{number}"] = forms.FloatField(
                label=_("Weight"), required=False, min_value=0, max_value=1_000_000
            )
            self.fields[f"longest_{number}"] = forms.IntegerField(
                label=_("Longest prompt (tokens)"), required=False, min_value=1
            )
        names = [name for name in selectors.public_names() if name != own_name]
        self.fields["fallback"].choices = [  # type: ignore[attr-defined]
            ("", _t("none")),
            *((name, name) for name in names),
        ]

    @property
    def rows(self) -> list[list[forms.BoundField]]:
        """The fields of each target."""
        return [
            [self[f"{word}_{number}"] for word in ("target", "weight", "longest")] for number in self.numbers
        ]

    def values(self) -> dict[str, Any]:
        """The columns as services spell them."""
        data = self.cleaned_data
        columns = ("name", "fallback", "queue_size", "queue_seconds", "record_bodies", "body_days")
        return {**{name: data[name] for name in columns}, "targets": self._targets(), **self.limits()}

    def _targets(self) -> list[dict[str, Any]]:
        found = []
        for number in self.numbers:
            kind, _colon, name = self.cleaned_data.get(f"target_{number}", "").partition(":")
            if not name:
                continue
            weight, longest = (self.cleaned_data.get(f"{word}_{number}") for word in ("weight", "longest"))
            target = {kind: name, "weight": 1.0 if weight is None else weight}
            found.append({**target, "max_prompt_tokens": longest} if longest else target)
        return found

    @staticmethod
    def initial_of(row: GatewayRoute) -> dict[str, Any]:
        """What the form shows of a route."""
        found = {name: getattr(row, name) for name in (*inputs.ROUTE_FIELDS,) if name != "targets"}
        for number, target in enumerate(row.targets):
            kind = "deployment" if target.get("deployment") else "external"
            found[f"target_{number}"] = f"{kind}:{target[kind]}"
            found[f"weight_{number}"] = target.get("weight", 1.0)
            found[f"longest_{number}"] = target.get("max_prompt_tokens")
        return found


def target_choices() -> Sequence[tuple[str, str]]:
    """What a route may lead to."""
    own = Deployment.objects.order_by("name").values_list("name", flat=True)
    foreign = ExternalDeployment.objects.values_list("name", flat=True)
    return [
        ("", _t("none")),
        *((f"deployment:{name}", name) for name in own),
        *((f"external:{name}", _t("%(name)s (external)") % {"name": name}) for name in foreign),
    ]


class ExternalForm(forms.Form):
    """Somebody else's OpenAI-style API."""

    name = forms.CharField(
        label=_("Public name"),
        max_length=63,
        widget=forms.TextInput(attrs=_MONO),
        help_text=_("Clients send it as the model. It stays as it is."),
    )
    base_url = forms.CharField(
        label=_("Base URL"),
        max_length=2000,
        widget=forms.TextInput(attrs={**_MONO, "placeholder": "https://host/v1"}),
        help_text=_("What stands before /chat/completions."),
    )
    model = forms.CharField(label=_("Model there"), max_length=200, widget=forms.TextInput(attrs=_MONO))
    slots = forms.IntegerField(
        label=_("Requests at once"),
        required=False,
        min_value=1,
        max_value=100_000,
        help_text=_("More wait in the gateway. Empty: no bound."),
    )
    max_sequence_tokens = forms.IntegerField(
        label=_("Maximum sequence length (tokens)"), required=False, min_value=1
    )
    secret = forms.CharField(
        label=_("Secret"),
        required=False,
        max_length=4000,
        widget=forms.PasswordInput(attrs={**_MONO, "autocomplete": "new-password"}),
        help_text=_("Sent as a bearer token. Kept encrypted and never shown again."),
    )
    forget = forms.BooleanField(label=_("Forget the secret"), required=False)

    def values(self) -> dict[str, Any]:
        """The columns as services spell them, without the secret."""
        return {name: self.cleaned_data[name] for name in inputs.EXTERNAL_FIELDS}
