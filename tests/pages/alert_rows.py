"""One of each kind of row that the alert pages show."""

from __future__ import annotations

from datetime import timedelta

from django.utils import timezone

from apps.telemetry.alerts import services
from apps.telemetry.alerts.models import Alert, Notification, NotificationChannel, Silence
from tests.support.sequences import go_on_after


def one_of_each() -> Alert:
    """A rule, a channel, a firing alert that was told, a silence that holds; numbers are 1."""
    rule = services.save_alert_rule(
        "test",
        {
            "name": "kv-full",
            "summary": "KV cache almost full",
            "remedy": "Lower the maximum batch size.",
            "severity": "critical",
            "condition": {"kind": "threshold", "key": "kv_use", "value": 0.9},
        },
    )
    services.save_channel("test", {"name": "ops", "url": "https://hooks.example.org/inflight"})
    now = timezone.now()
    alert = Alert.objects.create(
        pk=1, state="firing", rule=rule, rule_name=rule.name, summary=rule.summary, severity="critical",
        fingerprint="f1", target="deployment", target_id="1", target_name="demo", deployment="demo",
        sentence="KV use is 97%, above 90%.", remedy=rule.remedy, value=0.97, threshold=0.9,
        true_since=now - timedelta(minutes=5), last_true=now, fired_at=now - timedelta(minutes=4),
    )  # fmt: skip
    Silence.objects.create(
        pk=1, rule="other", reason="planned work", created_label="ada",
        starts_at=now - timedelta(hours=1), ends_at=now + timedelta(hours=1),
    )  # fmt: skip
    told = Notification.objects.create(
        pk=1, state="delivered", uid="n0t1f1cat10n", channel=NotificationChannel.objects.get(), event="firing",
        rule_name=rule.name, body={"title": "Firing: KV cache almost full (demo)"}, next_at=now, sent_at=now,
        attempt=1, answer="200 ok",
    )  # fmt: skip
    told.alerts.add(alert)
    go_on_after(Alert, Silence, Notification)
    return alert
