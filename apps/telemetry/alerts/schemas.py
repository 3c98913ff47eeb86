"""Answers of the REST operations on alerts, as the OpenAPI document describes them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from ninja import Schema
from pydantic import Field

from apps.accounts.rest import StatusFields


class AlertRuleOut(Schema):
    """One alert rule."""

    id: int
    name: str
    summary: str
    remedy: str | None
    target: str
    selector: str
    severity: str
    condition: dict[str, Any]
    description: str = Field(description="The condition in one line.")
    for_seconds: int
    resolve_seconds: int
    null_seconds: int
    repeat_seconds: int
    channels: list[str]
    enabled: bool
    shipped: bool
    created_at: datetime
    updated_at: datetime


class AlertOut(StatusFields):
    """One alert. `value` and `limit` are in `unit`; null where there is none."""

    rule: str
    summary: str
    severity: str
    target: str
    object: str | None
    deployment: str | None
    value: float | None
    limit: float | None
    unit: str | None
    facts: dict[str, Any]
    true_since: datetime
    fired_at: datetime | None
    resolved_at: datetime | None
    acknowledged_at: datetime | None
    acknowledged_by: str | None
    note: str | None
    fingerprint: str


class SilenceOut(Schema):
    """One silence; null fits everything."""

    id: int
    rule: str | None
    object_name: str | None
    severity: str | None
    reason: str
    starts_at: datetime
    ends_at: datetime
    active: bool
    who: str
    created_at: datetime


class ChannelOut(Schema):
    """One notification channel; its secret is never shown."""

    id: int
    name: str
    type: str
    url: str | None
    signed: bool
    recipients: list[str]
    least_severity: str
    send_resolved: bool
    enabled: bool
    created_at: datetime
    updated_at: datetime


class NotificationOut(StatusFields):
    """One message to one channel."""

    uid: str
    channel: str
    event: str
    rule: str | None
    alerts: list[int]
    title: str | None
    attempts: int
    answer: str | None
    next_at: datetime | None
    sent_at: datetime | None
