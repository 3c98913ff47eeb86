"""Checking what a person says about rules, channels and silences; every refusal names field and remedy."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.core.exceptions import NON_FIELD_ERRORS, ValidationError
from django.core.validators import validate_email
from django.db import models
from django.utils.translation import gettext as _

from apps.core import outbound, secrets
from apps.core.exceptions import Finding, InvalidInput
from apps.fleet.states import NODE
from apps.serving.states import DEPLOYMENT, INSTANCE
from apps.telemetry.alerts.models import AlertRule, NotificationChannel
from apps.telemetry.alerts.shapes import GLOB
from apps.telemetry.domain.alerting import conditions

STATES = {"deployment": DEPLOYMENT.values, "instance": INSTANCE.values, "node": NODE.values}
RULE_FIELDS = (
    "name",
    "summary",
    "remedy",
    "target",
    "selector",
    "severity",
    "condition",
    "for_seconds",
    "resolve_seconds",
    "null_seconds",
    "repeat_seconds",
    "enabled",
)
CHANNEL_FIELDS = ("name", "type", "url", "recipients", "least_severity", "send_resolved", "enabled")


def rule(row: AlertRule, data: Mapping[str, Any]) -> dict[str, Any]:
    """Set the columns of a rule; returns {field: [old, new]} of those that differ. Saves nothing."""
    changes = _assign(row, data, RULE_FIELDS)
    # What the columns refuse is said before the condition is looked at: its target may be to blame.
    _check_columns(row, exclude=["condition"])
    if not re.match(GLOB, row.selector):
        raise InvalidInput(
            "selector",
            _("%(selector)r cannot be a part of a name.") % {"selector": row.selector},
            field="selector",
            remedy=_("Use letters, digits, . _ - / and the wildcards * and ?."),
        )
    parsed = conditions.parse(row.condition, row.target, STATES)
    if "condition" in changes:
        row.condition = conditions.plain(parsed)
        changes["condition"][1] = row.condition
        if changes["condition"][0] == row.condition:
            del changes["condition"]
    return changes


def channels(names: object) -> list[NotificationChannel]:
    """Rows of these names. Raises InvalidInput for one that does not exist."""
    wanted = [str(name) for name in names] if isinstance(names, list | tuple | set) else []
    rows = {row.name: row for row in NotificationChannel.objects.filter(name__in=wanted)}
    for name in wanted:
        if name not in rows:
            raise InvalidInput(
                "channel_unknown",
                _("There is no notification channel %(name)s.") % {"name": name},
                field="channels",
                remedy=_("Create it, or name one of: %(names)s.")
                % {"names": ", ".join(NotificationChannel.objects.values_list("name", flat=True)) or "-"},
            )
    return [rows[name] for name in wanted]


def channel(row: NotificationChannel, data: Mapping[str, Any]) -> dict[str, Any]:
    """Set the columns of a channel and check where it leads; returns what differs. Saves nothing."""
    given = dict(data)
    secret = given.pop("secret", None)
    changes = _assign(row, given, CHANNEL_FIELDS)
    _check_columns(row)
    if row.type == NotificationChannel.Kind.WEBHOOK:
        if not row.url:
            raise InvalidInput(
                "required", _("A webhook needs a URL."), field="url", remedy=_("Enter where it is sent to.")
            )
        outbound.check_url(row.url, settings.INFLIGHT_OUTBOUND_ALLOW)
    else:
        _check_recipients(row.recipients)
    if secret is not None:
        row.secret = secrets.encrypt(str(secret)) if secret else ""
        changes["secret"] = [None, "***"]
    return changes


def _check_recipients(recipients: Any) -> None:
    found = recipients if isinstance(recipients, list) else []
    if not found:
        raise InvalidInput(
            "required",
            _("E-mail needs at least one recipient."),
            field="recipients",
            remedy=_("Enter an address, one a line."),
        )
    for address in found:
        try:
            validate_email(address)
        except ValidationError:
            raise InvalidInput(
                "recipient",
                _("%(address)r is no e-mail address.") % {"address": address},
                field="recipients",
                remedy=_("Correct it: one address a line."),
            ) from None


def _assign(row: models.Model, data: Mapping[str, Any], fields: tuple[str, ...]) -> dict[str, Any]:
    for key in data:
        if key not in fields:
            raise InvalidInput(
                "unknown_field",
                _("%(field)s is not a field of this object.") % {"field": key},
                field=key,
                remedy=_("The fields are: %(fields)s.") % {"fields": ", ".join(fields)},
            )
    before = {key: getattr(row, key) if row.pk else None for key in data}
    for key, value in data.items():
        setattr(row, key, value)
    return {key: [before[key], value] for key, value in data.items() if before[key] != value}


def _check_columns(row: models.Model, exclude: list[str] | None = None) -> None:
    try:
        row.full_clean(exclude=exclude)
    except ValidationError as error:
        found = tuple(
            Finding("invalid_value", "error", str(message), "" if field == NON_FIELD_ERRORS else field)
            for field, messages in error.message_dict.items()
            for message in messages
        )
        raise InvalidInput(
            "invalid_value",
            found[0].message,
            field=found[0].where,
            remedy=_("Correct the value and save again."),
            findings=found,
        ) from error
