"""Rows of telemetry; each part keeps its own beside its services."""

from __future__ import annotations

from apps.telemetry.alerts.models import (
    Alert,
    AlertRule,
    Notification,
    NotificationChannel,
    Severity,
    Silence,
)
from apps.telemetry.storage.models import Mark, Rollup

__all__ = [
    "Alert",
    "AlertRule",
    "Mark",
    "Notification",
    "NotificationChannel",
    "Rollup",
    "Severity",
    "Silence",
]
