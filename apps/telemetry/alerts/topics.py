"""The live topic `alerts`: the bell of every page, and the pages of alerts, look again when it has news."""

from __future__ import annotations

from typing import Any

from apps.accounts.roles import Action
from apps.realtime import groups, topics
from apps.telemetry.alerts import selectors

TOPIC = "alerts"


def register() -> None:
    """Register the topic, and which rows it is about; called once, from AppConfig.ready."""
    topics.register(TOPIC, permission=Action.VIEW, snapshot=snapshot, keyed=False)
    groups.route("alert", lambda row: [TOPIC, "overview"])
    groups.route("notification", lambda row: [TOPIC])


def snapshot(key: int) -> dict[str, Any]:
    """How many alerts are raised."""
    found = selectors.raised()
    return {"raised": found.count, "unattended": found.unattended, "worst": found.worst or None}
