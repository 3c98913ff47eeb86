"""What people do with alerts, and the rules that every installation begins with."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.utils.translation import gettext as _
from pydantic import ValidationError

from apps.accounts.roles import Action, require
from apps.core import audit, clock
from apps.core.exceptions import Finding, InvalidInput, NotPossibleNow
from apps.core.transitions import transition
from apps.realtime.publisher import publisher
from apps.telemetry.alerts import delivery, inputs, states
from apps.telemetry.alerts.models import Alert, AlertRule, Notification, NotificationChannel, Silence
from apps.telemetry.alerts.shapes import SilenceFields
from apps.telemetry.domain.alerting import conditions
from apps.telemetry.domain.alerting.shipped import RULES

# A silence longer than this is a rule that should be switched off.
LONGEST_SILENCE = timedelta(days=90)
# Seconds between a decision of a person's clock and ours that are forgiven.
_CLOCK_SLACK = timedelta(minutes=1)


def save_alert_rule(
    actor: User | str, data: Mapping[str, Any], instance: AlertRule | None = None
) -> AlertRule:
    """Create a rule, or change one (`instance`); keys that are left out keep their value or default.

    `channels` are names. Its name is fixed. Alerts of a rule that is switched off or asks for something else end.
    """
    require(actor, Action.CONFIGURE)
    given = dict(data)
    names = given.pop("channels", None)
    row = AlertRule.objects.get(pk=instance.pk) if instance is not None else AlertRule()
    if instance is not None and given.get("name", row.name) != row.name:
        raise InvalidInput(
            "name_fixed",
            _("The name of an alert rule cannot change: silences and alerts name it."),
            field="name",
            remedy=_("Create another rule, and delete this one."),
        )
    changes = inputs.rule(row, given)
    chosen = inputs.channels(names) if names is not None else None
    with transaction.atomic():
        row.save()
        if chosen is not None and {each.pk for each in chosen} != set(
            row.channels.values_list("pk", flat=True)
        ):
            row.channels.set(chosen)
            changes["channels"] = [None, [each.name for each in chosen]]
        if instance is None or changes:
            verb = "alertrule.created" if instance is None else "alertrule.changed"
            audit.record(actor, verb, row, detail={"changes": changes})
        if {"enabled", "condition", "target", "selector"} & set(changes) and instance is not None:
            end_alerts(row, actor, "rule_changed", _("The rule was changed or switched off."))
    publisher.touch("alerts")
    return row


def delete_alert_rule(actor: User | str, rule: AlertRule) -> None:
    """Delete a rule of one's own; its open alerts end, its history stays. A shipped one is switched off instead."""
    require(actor, Action.CONFIGURE)
    if rule.shipped_digest:
        raise NotPossibleNow(
            "rule_shipped",
            _("%(name)s comes with Inflight and would be there again after the next update.")
            % {"name": rule.name},
            remedy=_("Switch it off instead; that stays."),
        )
    with transaction.atomic():
        end_alerts(rule, actor, "rule_deleted", _("The rule was deleted."))
        audit.record(actor, "alertrule.deleted", rule)
        rule.delete()
    publisher.touch("alerts")


def end_alerts(rule: AlertRule, actor: User | str, reason: str, sentence: str) -> None:
    """End every open alert of a rule."""
    Alert.objects.filter(rule=rule, state=states.PENDING).delete()
    for alert in Alert.objects.filter(rule=rule, state__in=states.RAISED):
        transition(
            alert, states.RESOLVED, actor=actor, reason=reason, sentence=sentence, resolved_at=clock.now()
        )


def acknowledge(actor: User | str, alert: Alert, note: str = "") -> Alert:
    """Say that somebody is on it: it is not told again, and stays until its condition is over."""
    require(actor, Action.OPERATE)
    moved = transition(
        alert,
        states.ACKNOWLEDGED,
        actor=actor,
        reason=alert.reason,
        sentence=alert.sentence,
        remedy=alert.remedy,
        acknowledged_by=actor if isinstance(actor, User) else None,
        acknowledged_at=clock.now(),
        note=note[:500],
    )
    if not moved and alert.state != states.ACKNOWLEDGED:
        raise _not_raised(alert)
    return alert


def unacknowledge(actor: User | str, alert: Alert) -> Alert:
    """Take it back: nobody is on it any more."""
    require(actor, Action.OPERATE)
    moved = transition(
        alert,
        states.FIRING,
        actor=actor,
        sources=[states.ACKNOWLEDGED],
        verb="alert.unacknowledged",
        reason=alert.reason,
        sentence=alert.sentence,
        remedy=alert.remedy,
        acknowledged_by=None,
        acknowledged_at=None,
        note="",
    )
    if not moved and alert.state != states.FIRING:
        raise _not_raised(alert)
    return alert


def _not_raised(alert: Alert) -> NotPossibleNow:
    return NotPossibleNow(
        "alert_not_raised",
        _("The alert is %(state)s.") % {"state": alert.state},
        remedy=_("Reload the page; there is nothing to acknowledge any more."),
    )


def create_silence(actor: User | str, data: Mapping[str, Any]) -> Silence:
    """Tell nobody of the alerts that fit, for some time. Keys as in SilenceFields."""
    require(actor, Action.OPERATE)
    try:
        fields = SilenceFields.model_validate(dict(data))
    except ValidationError as error:
        found = tuple(
            Finding("invalid_value", "error", item["msg"], ".".join(map(str, item["loc"])))
            for item in error.errors(include_url=False)
        )
        raise InvalidInput(
            "invalid_value", found[0].message, field=found[0].where, remedy=_("Correct it."), findings=found
        ) from error
    begins, ends = _period(fields.starts_at, fields.ends_at)
    with transaction.atomic():
        row = Silence.objects.create(
            rule=fields.rule,
            object_name=fields.object_name,
            severity=fields.severity or "",
            reason=fields.reason,
            starts_at=begins,
            ends_at=ends,
            created_by=actor if isinstance(actor, User) else None,
            created_label=audit.actor_label(actor),
        )
        audit.record(
            actor, "silence.created", row, sentence=fields.reason, detail={"until": ends.isoformat()}
        )
    publisher.touch("alerts")
    return row


def _period(starts_at: datetime | None, ends_at: datetime) -> tuple[datetime, datetime]:
    now = clock.now()
    for field, moment in (("starts_at", starts_at), ("ends_at", ends_at)):
        if moment is not None and moment.tzinfo is None:
            raise InvalidInput(
                "time_zone",
                _("The time has no zone."),
                field=field,
                remedy=_("Write it with one: 2026-01-31T12:00:00Z."),
            )
    begins = starts_at or now
    if ends_at <= max(begins, now - _CLOCK_SLACK):
        raise InvalidInput(
            "silence_over",
            _("The silence would be over before it begins."),
            field="ends_at",
            remedy=_("Choose a later time."),
        )
    if ends_at - begins > LONGEST_SILENCE:
        raise InvalidInput(
            "silence_long",
            _("A silence lasts at most %(days)d days.") % {"days": LONGEST_SILENCE.days},
            field="ends_at",
            remedy=_("Choose an earlier time, or switch the rule off."),
        )
    return begins, ends_at


def end_silence(actor: User | str, silence: Silence) -> Silence:
    """End a silence now; what still fires is told."""
    require(actor, Action.OPERATE)
    now = clock.now()
    if silence.ends_at <= now:
        raise NotPossibleNow("silence_over", _("The silence is over already."), remedy=_("Reload the page."))
    with transaction.atomic():
        silence.ends_at = now
        silence.starts_at = min(silence.starts_at, now)
        silence.save(update_fields=["ends_at", "starts_at"])
        audit.record(actor, "silence.ended", silence)
    publisher.touch("alerts")
    return silence


def save_channel(
    actor: User | str, data: Mapping[str, Any], instance: NotificationChannel | None = None
) -> NotificationChannel:
    """Create a channel, or change one (`instance`); keys that are left out keep their value or default.

    `secret` is kept encrypted: absent it stays, empty it is removed.
    """
    require(actor, Action.CONFIGURE)
    row = NotificationChannel.objects.get(pk=instance.pk) if instance is not None else NotificationChannel()
    changes = inputs.channel(row, data)
    if instance is not None and not changes:
        return row
    with transaction.atomic():
        row.save()
        verb = "notificationchannel.created" if instance is None else "notificationchannel.changed"
        audit.record(actor, verb, row, detail={"changes": changes})
    return row


def delete_channel(actor: User | str, channel: NotificationChannel) -> None:
    """Delete a channel with the history of its notifications, unless a rule names it."""
    require(actor, Action.CONFIGURE)
    users = list(channel.rules.values_list("name", flat=True))
    if users:
        raise NotPossibleNow(
            "channel_in_use",
            _("The channel is named by: %(names)s.") % {"names": ", ".join(users)},
            remedy=_("Take it out of these rules first."),
            facts={"rules": users},
        )
    with transaction.atomic():
        audit.record(actor, "notificationchannel.deleted", channel)
        channel.delete()


def test_channel(actor: User | str, channel: NotificationChannel) -> Notification:
    """Really send a test message, once, now; the row says what came of it."""
    require(actor, Action.OPERATE)
    row = delivery.make(channel, Notification.Event.TEST, [])
    audit.record(actor, "notificationchannel.tested", channel)
    delivery.send(row, last_attempt=True)
    row.refresh_from_db()
    return row


def install_shipped_rules(actor: User | str) -> list[str]:
    """Create the shipped rules that are missing and renew those that nobody changed; returns their names.

    Whether a rule is enabled, and anything that a person changed, stays as it is.
    """
    require(actor, Action.CONFIGURE)
    touched = []
    for data in RULES:
        digest = _digest(data)
        row = AlertRule.objects.filter(name=data["name"]).first()
        if row is not None and (row.shipped_digest == digest or _is_changed(row)):
            continue
        saved = save_alert_rule(actor, data, row)
        AlertRule.objects.filter(pk=saved.pk).update(shipped_digest=digest)
        touched.append(saved.name)
    return touched


def _is_changed(row: AlertRule) -> bool:
    return _digest({key: getattr(row, key) for key in RULES[0]}) != row.shipped_digest


def _digest(data: Mapping[str, Any]) -> str:
    """Digest of what a shipped rule says, its condition with all defaults."""
    said = {key: data[key] for key in RULES[0]}
    said["condition"] = conditions.plain(conditions.parse(data["condition"], str(data["target"])))
    return hashlib.sha256(json.dumps(said, sort_keys=True, default=str).encode()).hexdigest()


__all__ = [
    "acknowledge",
    "create_silence",
    "delete_alert_rule",
    "delete_channel",
    "end_silence",
    "install_shipped_rules",
    "save_alert_rule",
    "save_channel",
    "test_channel",
    "unacknowledge",
]
