"""When things happened that rules count: restarts and failures, out of the rows that record them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from apps.core.models import AuditEntry
from apps.serving import states as serving_states
from apps.serving.models import Instance
from apps.telemetry.alerts.watching import Watched
from apps.telemetry.domain.alerting.conditions import AnyCondition, Events


class Moments:
    """When things happened, read once for all rules of a tick."""

    def __init__(self, now: float, conditions: Iterable[AnyCondition]) -> None:
        wanted = [condition for condition in conditions if isinstance(condition, Events)]
        self._by_event: dict[str, dict[str, list[float]]] = {}
        for event in {condition.event for condition in wanted}:
            seconds = max(each.within_seconds for each in wanted if each.event == event)
            self._by_event[event] = _happened(event, datetime.fromtimestamp(now - seconds, tz=UTC))

    def of(self, condition: Events, watched: Watched) -> list[float]:
        """Moments of an event at a deployment."""
        return self._by_event.get(condition.event, {}).get(watched.name, [])


def _happened(event: str, since: datetime) -> dict[str, list[float]]:
    """Moments of an event by deployment."""
    pairs: Iterable[tuple[str, datetime | None]]
    if event == "instance_restart":
        restarted = Instance.objects.filter(restarts__gt=0, created_at__gte=since)
        pairs = restarted.values_list("deployment__name", "created_at")
    elif event == "instance_failure":
        pairs = Instance.objects.filter(failed_at__gte=since).values_list("deployment__name", "failed_at")
    else:
        entries = AuditEntry.objects.filter(
            object_type="deployment", to_state=serving_states.FAILED, at__gte=since
        )
        pairs = entries.values_list("object_label", "at")
    found: dict[str, list[float]] = {}
    for name, at in pairs:
        if at is not None:
            found.setdefault(name, []).append(at.timestamp())
    return found
