"""Whom to tell of which alert: grouped, once, again after a while, never while silenced.

For each channel and alert the history of notifications says what was told already, so a restart tells nothing twice.
Alerts of one rule that want the same said to the same channel go in one message.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import QuerySet

from apps.core import clock
from apps.telemetry.alerts import delivery, silences, states
from apps.telemetry.alerts.models import Alert, Notification, NotificationChannel, Severity

log = logging.getLogger(__name__)

# An alert is told when it has fired for so long: what fires together goes in one message.
GROUP_SECONDS = 5
# An end is told only so long after it; a channel that was silent for longer missed it.
RESOLVED_SECONDS = 3600
KEPT_NOTIFICATIONS = timedelta(days=30)
KEPT_ALERTS = timedelta(days=90)
_RANK = {severity: index for index, severity in enumerate(Severity.values)}


@dataclass(frozen=True, slots=True)
class Told:
    """The newest notification of each event about one alert to one channel."""

    state: str
    at: datetime


History = dict[tuple[int, int, str], Told]


def plan() -> list[Notification]:
    """Make the notifications that are missing; returns them."""
    now = clock.now()
    channels = list(NotificationChannel.objects.filter(enabled=True))
    alerts = list(_candidates(now)) if channels else []
    if not alerts:
        return []
    told = _history(alerts)
    quiet = silences.active(now)
    groups: dict[tuple[int, str, str], list[Alert]] = defaultdict(list)
    for alert in alerts:
        if silences.matching(quiet, alert):
            continue
        for channel in _channels_of(alert, channels):
            event = _event(alert, channel, told, now)
            if event:
                groups[channel.pk, alert.rule_name, event].append(alert)
    by_id = {channel.pk: channel for channel in channels}
    return [
        delivery.make(by_id[channel_id], event, members)
        for (channel_id, _rule, event), members in groups.items()
        if _is_gathered(event, members, now)
    ]


def _candidates(now: datetime) -> QuerySet[Alert]:
    rows = Alert.objects.select_related("rule").prefetch_related("rule__channels")
    firing = rows.filter(state=states.FIRING)
    ended = rows.filter(state=states.RESOLVED, resolved_at__gte=now - timedelta(seconds=RESOLVED_SECONDS))
    return (firing | ended).order_by("fired_at", "pk")


def _history(alerts: Sequence[Alert]) -> History:
    rows = (
        Notification.alerts.through.objects.filter(alert__in=alerts)
        .order_by("notification__created_at")
        .values_list(
            "notification__channel_id",
            "alert_id",
            "notification__event",
            "notification__state",
            "notification__created_at",
        )
    )
    return {(channel, alert, event): Told(state, at) for channel, alert, event, state, at in rows}


def _channels_of(alert: Alert, channels: Iterable[NotificationChannel]) -> Iterable[NotificationChannel]:
    chosen = {channel.pk for channel in alert.rule.channels.all()} if alert.rule else set()
    for channel in channels:
        wanted = channel.pk in chosen if chosen else True
        if wanted and _RANK[alert.severity] >= _RANK[channel.least_severity]:
            yield channel


def _event(alert: Alert, channel: NotificationChannel, told: History, now: datetime) -> str:
    """What is to be told, or an empty text."""
    events = Notification.Event
    first, again = (told.get((channel.pk, alert.pk, event)) for event in (events.FIRING, events.REPEAT))
    if alert.state == states.RESOLVED:
        # Only to those who know that it fired.
        knows = first is not None and first.state == states.DELIVERED
        ended = told.get((channel.pk, alert.pk, events.RESOLVED))
        return events.RESOLVED if knows and ended is None and channel.send_resolved else ""
    if first is None:
        return events.FIRING
    last = again or first
    repeat = timedelta(seconds=alert.rule.repeat_seconds if alert.rule else 0)
    due = alert.rule is not None and last.state != states.QUEUED and now - last.at >= repeat
    return events.REPEAT if due else ""


def _is_gathered(event: str, members: Sequence[Alert], now: datetime) -> bool:
    if event != Notification.Event.FIRING:
        return True
    oldest = min(alert.fired_at or alert.created_at for alert in members)
    return now - oldest >= timedelta(seconds=GROUP_SECONDS)


def plan_and_send() -> None:
    """What the telemetry process does every few seconds."""
    plan()
    delivery.courier.kick()


def prune() -> None:
    """Forget old history."""
    now = clock.now()
    old = Notification.objects.filter(created_at__lt=now - KEPT_NOTIFICATIONS).exclude(state=states.QUEUED)
    old.delete()
    Alert.objects.filter(state=states.RESOLVED, resolved_at__lt=now - KEPT_ALERTS).delete()
