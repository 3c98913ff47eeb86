"""What people do with telemetry; each part keeps its services beside its rows."""

from __future__ import annotations

from apps.telemetry.alerts.services import (
    acknowledge,
    create_silence,
    delete_alert_rule,
    delete_channel,
    end_silence,
    install_shipped_rules,
    save_alert_rule,
    save_channel,
    test_channel,
    unacknowledge,
)

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
