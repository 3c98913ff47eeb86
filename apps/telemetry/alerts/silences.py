"""Which silences fit which alerts."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from fnmatch import fnmatchcase

from apps.telemetry.alerts.models import Alert, Silence


def active(now: datetime) -> list[Silence]:
    """Silences that hold now."""
    return list(Silence.objects.filter(starts_at__lte=now, ends_at__gt=now))


def matching(silences: Iterable[Silence], alert: Alert) -> Silence | None:
    """The silence that lasts longest of those that fit the alert."""
    found = [silence for silence in silences if fits(silence, alert)]
    return max(found, key=lambda silence: silence.ends_at) if found else None


def fits(silence: Silence, alert: Alert) -> bool:
    """Whether every column of the silence that says something names the alert."""
    names = {alert.target_name, alert.deployment} - {""} or {""}
    return (
        (not silence.rule or fnmatchcase(alert.rule_name, silence.rule))
        and (not silence.object_name or any(fnmatchcase(name, silence.object_name) for name in names))
        and (not silence.severity or silence.severity == alert.severity)
    )
