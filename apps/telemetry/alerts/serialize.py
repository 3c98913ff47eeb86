"""Rows of alerting as plain JSON values, for API, command line and live topics. No secrets."""

from __future__ import annotations

from typing import Any

from apps.core import clock
from apps.core.exceptions import InflightError
from apps.serving.serialize import iso, status_dict
from apps.telemetry.alerts import wording
from apps.telemetry.alerts.models import Alert, AlertRule, Notification, NotificationChannel, Silence
from apps.telemetry.domain.alerting import conditions


def described(rule: AlertRule) -> str:
    """The rule's condition in one line, or why it cannot be read."""
    try:
        return wording.describe(conditions.parse(rule.condition, rule.target))
    except InflightError as error:
        return error.sentence


def rule_dict(rule: AlertRule) -> dict[str, Any]:
    """One rule."""
    return {
        "id": rule.pk,
        "name": rule.name,
        "summary": rule.summary,
        "remedy": rule.remedy or None,
        "target": rule.target,
        "selector": rule.selector,
        "severity": rule.severity,
        "condition": rule.condition,
        "description": described(rule),
        "for_seconds": rule.for_seconds,
        "resolve_seconds": rule.resolve_seconds,
        "null_seconds": rule.null_seconds,
        "repeat_seconds": rule.repeat_seconds,
        "channels": [channel.name for channel in rule.channels.all()],
        "enabled": rule.enabled,
        "shipped": bool(rule.shipped_digest),
        "created_at": iso(rule.created_at),
        "updated_at": iso(rule.updated_at),
    }


def alert_dict(alert: Alert) -> dict[str, Any]:
    """One alert."""
    who = alert.acknowledged_by
    return {
        **status_dict(alert),
        "rule": alert.rule_name,
        "summary": alert.summary,
        "severity": alert.severity,
        "target": alert.target,
        "object": alert.target_name or None,
        "deployment": alert.deployment or None,
        "value": alert.value,
        "limit": alert.threshold,
        "unit": wording.unit_of(alert.rule.condition) if alert.rule else None,
        "facts": alert.facts,
        "true_since": iso(alert.true_since),
        "fired_at": iso(alert.fired_at),
        "resolved_at": iso(alert.resolved_at),
        "acknowledged_at": iso(alert.acknowledged_at),
        "acknowledged_by": who.get_username() if who else None,
        "note": alert.note or None,
        "fingerprint": alert.fingerprint,
    }


def silence_dict(silence: Silence) -> dict[str, Any]:
    """One silence."""
    now = clock.now()
    return {
        "id": silence.pk,
        "rule": silence.rule or None,
        "object_name": silence.object_name or None,
        "severity": silence.severity or None,
        "reason": silence.reason,
        "starts_at": iso(silence.starts_at),
        "ends_at": iso(silence.ends_at),
        "active": silence.starts_at <= now < silence.ends_at,
        "who": silence.created_label,
        "created_at": iso(silence.created_at),
    }


def channel_dict(channel: NotificationChannel) -> dict[str, Any]:
    """One channel; of its secret only whether there is one."""
    return {
        "id": channel.pk,
        "name": channel.name,
        "type": channel.type,
        "url": channel.url or None,
        "signed": bool(channel.secret),
        "recipients": channel.recipients,
        "least_severity": channel.least_severity,
        "send_resolved": channel.send_resolved,
        "enabled": channel.enabled,
        "created_at": iso(channel.created_at),
        "updated_at": iso(channel.updated_at),
    }


def notification_dict(row: Notification) -> dict[str, Any]:
    """One notification."""
    return {
        **status_dict(row),
        "uid": row.uid,
        "channel": row.channel.name,
        "event": row.event,
        "rule": row.rule_name or None,
        "alerts": [alert.pk for alert in row.alerts.all()],
        "title": row.body.get("title"),
        "attempts": row.attempt,
        "answer": row.answer or None,
        "next_at": iso(row.next_at) if row.is_active else None,
        "sent_at": iso(row.sent_at),
    }
