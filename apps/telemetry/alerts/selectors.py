"""Reads of alerting. Nothing here changes a row."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import Case, Count, IntegerField, QuerySet, Value, When
from django.utils.translation import gettext as _

from apps.core import clock
from apps.core.exceptions import NotFound
from apps.telemetry.alerts import silences as fitting
from apps.telemetry.alerts import states
from apps.telemetry.alerts.models import Alert, AlertRule, Notification, NotificationChannel, Silence


@dataclass(frozen=True, slots=True)
class Raised:
    """How many alerts are raised: `bad` is the tone of the worst that nobody looks after and nobody silenced."""

    count: int
    unattended: int
    worst: str


def rules() -> QuerySet[AlertRule]:
    """Every rule with its channels, by name."""
    return AlertRule.objects.prefetch_related("channels")


def rule(name: str) -> AlertRule:
    """One rule, or NotFound."""
    found = rules().filter(name=name).first()
    if found is None:
        raise NotFound(
            "alert_rule_unknown",
            _("There is no alert rule %(name)s.") % {"name": name},
            field="rule",
            remedy=_("The page Alerts lists those that exist."),
        )
    return found


def alerts() -> QuerySet[Alert]:
    """Every alert that was raised, newest first."""
    return Alert.objects.exclude(state=states.PENDING).select_related("rule", "acknowledged_by")


def open_alerts() -> QuerySet[Alert]:
    """Pending, firing and acknowledged alerts: what fires first, worst first."""
    order = Case(
        *(When(state=state, then=Value(rank)) for rank, state in enumerate(("firing", "acknowledged"))),
        default=Value(2),
        output_field=IntegerField(),
    )
    severity = Case(
        *(When(severity=word, then=Value(rank)) for rank, word in enumerate(("critical", "warning"))),
        default=Value(2),
        output_field=IntegerField(),
    )
    rows = Alert.objects.filter(state__in=states.OPEN).select_related("rule", "acknowledged_by")
    return rows.annotate(standing=order, weight=severity).order_by("standing", "weight", "-true_since")


def alert(pk: int) -> Alert:
    """One alert, or NotFound."""
    found = Alert.objects.select_related("rule", "acknowledged_by").filter(pk=pk).first()
    if found is None:
        raise NotFound(
            "alert_unknown",
            _("There is no alert %(number)d.") % {"number": pk},
            remedy=_("It may have been pending, and over before it fired."),
        )
    return found


def unattended() -> list[Alert]:
    """Alerts that fire, nobody is on and no silence holds back, worst and newest first. Two queries."""
    rows = list(open_alerts().filter(state=states.FIRING))
    quiet = fitting.active(clock.now()) if rows else []
    return [row for row in rows if fitting.matching(quiet, row) is None]


def raised() -> Raised:
    """What the bell shows. Two queries."""
    rows = list(Alert.objects.filter(state__in=states.RAISED).only(
        "state", "severity", "rule_name", "target_name", "deployment"
    ))  # fmt: skip
    quiet = fitting.active(clock.now()) if rows else []
    unattended = [row for row in rows if row.state == states.FIRING and fitting.matching(quiet, row) is None]
    order = ("critical", "warning", "info")
    worst = min((row.severity for row in unattended), key=order.index, default="")
    return Raised(len(rows), len(unattended), worst)


def silences(over: bool = False) -> QuerySet[Silence]:
    """Silences that hold or will hold; with `over` also those that are over."""
    rows = Silence.objects.select_related("created_by")
    return rows if over else rows.filter(ends_at__gt=clock.now())


def silence(pk: int) -> Silence:
    """One silence, or NotFound."""
    found = Silence.objects.filter(pk=pk).first()
    if found is None:
        raise NotFound("silence_unknown", _("There is no silence %(number)d.") % {"number": pk})
    return found


def channels() -> QuerySet[NotificationChannel]:
    """Every channel, by name, with how many rules name it."""
    return NotificationChannel.objects.annotate(rule_count=Count("rules"))


def channel(name: str) -> NotificationChannel:
    """One channel, or NotFound."""
    found = NotificationChannel.objects.filter(name=name).first()
    if found is None:
        raise NotFound(
            "channel_unknown",
            _("There is no notification channel %(name)s.") % {"name": name},
            field="channel",
            remedy=_("The page Alerts lists those that exist."),
        )
    return found


def notifications() -> QuerySet[Notification]:
    """History of notifications, newest first."""
    return Notification.objects.select_related("channel").prefetch_related("alerts")
