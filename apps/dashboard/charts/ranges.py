"""The time range of a page of charts: out of the URL, with the earlier period it is compared with."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.utils import timezone
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from apps.core.exceptions import InvalidInput

MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0
# Seconds shown, by the name in the URL.
RANGES: dict[str, float] = {
    "15m": 15 * MINUTE,
    "1h": HOUR,
    "6h": 6 * HOUR,
    "24h": DAY,
    "7d": 7 * DAY,
}
DEFAULT_RANGE = "15m"
CUSTOM = "custom"
# The points of one line, and of one heat map's columns.
MAX_POINTS = 300
# Roll-ups of an hour are kept longest; a range beyond this holds nothing that any roll-up keeps.
LONGEST = 400 * DAY
SHORTEST = 10.0

LABELS: dict[str, str | Promise] = {
    "15m": gettext_lazy("15 min"),
    "1h": gettext_lazy("1 h"),
    "6h": gettext_lazy("6 h"),
    "24h": gettext_lazy("24 h"),
    "7d": gettext_lazy("7 d"),
}
# How far back the compared period lies, by the name in the URL; None: right before the range.
COMPARED: dict[str, float | None] = {"before": None, "hour": HOUR, "day": DAY, "week": 7 * DAY}
COMPARED_LABELS: dict[str, str | Promise] = {
    "": gettext_lazy("nothing"),
    "before": gettext_lazy("the period before"),
    "hour": gettext_lazy("an hour earlier"),
    "day": gettext_lazy("a day earlier"),
    "week": gettext_lazy("a week earlier"),
}


@dataclass(frozen=True, slots=True)
class TimeRange:
    """From `since` to `until` (epoch seconds). `live`: it ends now and moves on.

    `compare` names the earlier period, `offset` is how many seconds earlier it lies; 0 without one.
    """

    name: str
    since: float
    until: float
    live: bool
    compare: str = ""
    offset: float = 0.0

    @property
    def seconds(self) -> float:
        """Length of the range."""
        return self.until - self.since

    @property
    def query(self) -> str:
        """The range as it stands in an address."""
        when = f"range={self.name}" if self.live else f"from={self.since:.0f}&to={self.until:.0f}"
        return f"{when}&compare={self.compare}" if self.compare else when


def parse(query: Mapping[str, str], now: float) -> TimeRange:
    """Range of an address: ?range=1h, or ?from=&to= (ISO 8601 or epoch seconds), and ?compare=day.

    Raises InvalidInput naming the parameter: an unknown name, a time that cannot be read, an end before its begin.
    """
    compare = query.get("compare", "").strip()
    if compare not in COMPARED and compare:
        raise _refused("compare", compare, ", ".join(COMPARED))
    since, until = _moment(query, "from"), _moment(query, "to")
    if since is None and until is None:
        name = query.get("range", "").strip() or DEFAULT_RANGE
        if name not in RANGES:
            raise _refused("range", name, ", ".join(RANGES))
        return _compared(TimeRange(name, now - RANGES[name], now, live=True), compare)
    until = min(until if until is not None else now, now)
    since = since if since is not None else until - RANGES[DEFAULT_RANGE]
    _check(since, until)
    return _compared(TimeRange(CUSTOM, since, until, live=False), compare)


def _compared(found: TimeRange, compare: str) -> TimeRange:
    if not compare:
        return found
    # A period cannot overlap the one that it is compared with.
    offset = max(COMPARED[compare] or 0.0, found.seconds)
    return TimeRange(found.name, found.since, found.until, found.live, compare, offset)


def _check(since: float, until: float) -> None:
    if until - since < SHORTEST:
        raise InvalidInput(
            "range_empty",
            _("The range begins when it ends, or later, or lies in the future."),
            field="from",
            remedy=_("Choose a begin at least 10 seconds before the end."),
        )
    if until - since > LONGEST:
        raise InvalidInput(
            "range_too_long",
            _("The range is longer than 400 days; no figures are kept that long."),
            field="from",
            remedy=_("Choose a later begin."),
        )


def _moment(query: Mapping[str, str], name: str) -> float | None:
    text = query.get(name, "").strip()
    if not text:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = _iso(name, text)
    # Before 2001 or after 2286 it is no epoch second: perhaps milliseconds, perhaps a mistake.
    if not math.isfinite(seconds) or not 1e9 <= seconds < 1e10:
        raise _unreadable(name, text)
    return seconds


def _iso(name: str, text: str) -> float:
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise _unreadable(name, text) from error
    if found.tzinfo is None:
        found = found.replace(tzinfo=timezone.get_current_timezone())
    return found.astimezone(UTC).timestamp()


def _unreadable(name: str, text: str) -> InvalidInput:
    return InvalidInput(
        "time_unreadable",
        _("“%(text)s” is no time.") % {"text": text[:40]},
        field=name,
        remedy=_("Write it as 2026-11-30T14:05 or as seconds since 1970."),
    )


def _refused(name: str, text: str, known: str) -> InvalidInput:
    return InvalidInput(
        f"{name}_unknown",
        _("There is no %(name)s “%(text)s”.") % {"name": name, "text": text[:40]},
        field=name,
        remedy=_("Use one of %(known)s.") % {"known": known},
    )


def choices(chosen: TimeRange) -> list[dict[str, Any]]:
    """Ranges for the bar above the charts."""
    suffix = f"&compare={chosen.compare}" if chosen.compare else ""
    return [
        {"name": name, "label": LABELS[name], "current": name == chosen.name, "url": f"?range={name}{suffix}"}
        for name in RANGES
    ]


def compared_choices(chosen: TimeRange) -> list[dict[str, Any]]:
    """Earlier periods for the bar; those that would overlap the range are left out."""
    return [
        {"name": name, "label": label, "current": name == chosen.compare}
        for name, label in COMPARED_LABELS.items()
        if not name or name == chosen.compare or (COMPARED[name] or chosen.seconds) >= chosen.seconds
    ]
