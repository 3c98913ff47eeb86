"""Moments of a cron-like schedule in a time zone, looked for backwards: what holds now is what came last."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

# The 29th of February comes after eight years at the latest (around 2100).
FARTHEST_DAYS = 8 * 366


@dataclass(frozen=True, slots=True)
class Cron:
    """Minutes, hours, days of the month, months and days of the week (0 is Sunday) at which something begins.

    `either_day`: both kinds of days are restricted; as in cron, a day need fit only one of them.
    """

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either_day: bool = False

    def fits(self, day: datetime) -> bool:
        """Whether a day is among those that are meant."""
        if day.month not in self.months:
            return False
        of_month, of_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return (of_month or of_week) if self.either_day else (of_month and of_week)


@dataclass(frozen=True, slots=True)
class Entry:
    """Bounds that hold from each of its moments until another entry's; null: the deployment's own."""

    cron: Cron
    timezone: str
    least: int | None = None
    most: int | None = None
    text: str = ""


def last_at(cron: Cron, timezone: str, now: datetime) -> datetime | None:
    """The newest moment of a schedule that is not after `now` (aware); null where there was none.

    A wall time that a change of clocks leaves out begins when the clocks have changed; one that comes twice begins
    the first time.
    """
    zone = ZoneInfo(timezone)
    here = now.astimezone(zone)
    for back in range(FARTHEST_DAYS):
        day = here.date() - timedelta(days=back)
        midnight = datetime.combine(day, time(), zone)
        if not cron.fits(midnight):
            continue
        for hour in sorted(cron.hours, reverse=True):
            for minute in sorted(cron.minutes, reverse=True):
                moment = datetime.combine(day, time(hour, minute), zone).astimezone(UTC)
                if moment <= now:
                    return moment
    return None


def in_force(entries: Iterable[Entry], now: datetime) -> tuple[Entry, datetime] | None:
    """The entry whose moment came last, and that moment; of two at once the later in the list."""
    found: tuple[Entry, datetime] | None = None
    for entry in entries:
        moment = last_at(entry.cron, entry.timezone, now)
        if moment is not None and (found is None or moment >= found[1]):
            found = (entry, moment)
    return found
