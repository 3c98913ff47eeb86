"""What a notification says: the JSON of a webhook with its signature, and the text of a mail."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from apps.core import clock
from apps.telemetry.alerts.models import Alert, Notification, NotificationChannel
from apps.telemetry.alerts.wording import unit_of

# Grows when a receiver would have to be changed.
VERSION = 1
SIGNATURE_HEADER = "X-Inflight-Signature"


def body_of(uid: str, channel: NotificationChannel, event: str, alerts: Sequence[Alert]) -> dict[str, Any]:
    """The JSON that a webhook receives; docs/alerts.md describes it."""
    first = alerts[0] if alerts else None
    return {
        "version": VERSION,
        "id": uid,
        "event": event,
        "channel": channel.name,
        "installation": settings.INFLIGHT_WEB_URL,
        "made_at": clock.now().isoformat(),
        "rule": first.rule_name if first else None,
        "severity": first.severity if first else None,
        "title": _title(event, alerts),
        "alerts": [_alert(alert) for alert in alerts],
        "url": f"{settings.INFLIGHT_WEB_URL}/metrics/alerts/",
    }


def _alert(alert: Alert) -> dict[str, Any]:
    return {
        "id": alert.pk,
        "fingerprint": alert.fingerprint,
        "state": alert.state,
        "summary": alert.summary,
        "sentence": alert.sentence,
        "remedy": alert.remedy,
        "target": alert.target,
        "object": alert.target_name or None,
        "deployment": alert.deployment or None,
        "value": alert.value,
        "limit": alert.threshold,
        "unit": unit_of(alert.rule.condition) if alert.rule else None,
        "fired_at": alert.fired_at.isoformat() if alert.fired_at else None,
        "resolved_at": alert.resolved_at.isoformat() if alert.resolved_at else None,
        "url": f"{settings.INFLIGHT_WEB_URL}/metrics/alerts/{alert.pk}/",
    }


def _title(event: str, alerts: Sequence[Alert]) -> str:
    if not alerts:
        return _("Test from Inflight: this channel works")
    word = {
        Notification.Event.RESOLVED: _("Resolved"),
        Notification.Event.REPEAT: _("Still firing"),
    }.get(Notification.Event(event), _("Firing"))
    if len(alerts) == 1:
        return f"{word}: {alerts[0].summary} ({alerts[0].target_name or alerts[0].rule_name})"
    count = ngettext("%(count)d object", "%(count)d objects", len(alerts)) % {"count": len(alerts)}
    return f"{word}: {alerts[0].summary} ({count})"


def encode(body: dict[str, Any]) -> bytes:
    """The bytes that are sent and signed."""
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8")


def signature(secret: str, timestamp: str, body: bytes) -> str:
    """`sha256=` and the hexadecimal HMAC-SHA256, keyed with the secret, of `<timestamp>.<body>`."""
    digest = hmac.new(secret.encode("utf-8"), timestamp.encode("ascii") + b"." + body, hashlib.sha256)
    return f"sha256={digest.hexdigest()}"


def mail_text(body: dict[str, Any]) -> str:
    """The text of a mail."""
    lines = [str(body["title"]), ""]
    for alert in body["alerts"]:
        lines += [f"- {alert['object'] or alert['target']}: {alert['sentence']}"]
        lines += [f"  {alert['url']}"]
    if body["alerts"]:
        lines += ["", str(body["alerts"][0]["remedy"])]
    return "\n".join([*lines, "", str(body["url"])])
