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

__all__ = ["Alert", "AlertRule", "Notification", "NotificationChannel", "Severity", "Silence"]
