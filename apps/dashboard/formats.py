"""Figures and times as a person reads them. One spelling for templates, charts and messages."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from apps.core import clock

# Narrow no-break space: between thousands, and between a figure and its unit.
THIN = "\u202f"
ABSENT = "\u2013"
MINUS = "\u2212"
_BYTE_UNITS = ("B", "kB", "MB", "GB", "TB")
_COUNT_UNITS = ("", "k", "M", "B", "T")
MINUTE, HOUR, DAY = 60, 3600, 86_400


class Figure(NamedTuple):
    """A figure and its unit, apart so that a tile can set them in two sizes."""

    value: str
    unit: str

    def __str__(self) -> str:
        return f"{self.value}{THIN}{self.unit}" if self.unit else self.value


def grouped(value: float | None, digits: int = 0) -> str:
    """12345.6 -> "12 346" with thin spaces; absent is a dash."""
    return ABSENT if value is None else f"{value:,.{digits}f}".replace(",", THIN)


def significant(value: float | None) -> str:
    """Three figures or so: 0.42, 4.2, 42.1, 421, 4 210."""
    if value is None:
        return ABSENT
    size = abs(value)
    digits = 0 if size >= 100 or size == 0 else 1 if size >= 10 else 2
    text = grouped(value, digits)
    return text.rstrip("0").rstrip(".") if "." in text else text


def _scaled(value: float, base: float, units: tuple[str, ...]) -> Figure:
    step = 0
    while abs(value) >= base and step < len(units) - 1:
        value /= base
        step += 1
    digits = 0 if step == 0 or abs(value) >= 100 else 1
    return Figure(grouped(value, digits), units[step])


def filesize(value: float | None) -> Figure:
    """Bytes in powers of 1000, as disks and vendors count: 271.1 MB."""
    return Figure(ABSENT, "") if value is None else _scaled(float(value), 1000, _BYTE_UNITS)


def memory(value: float | None) -> Figure:
    """Bytes in powers of 1024, as memory is sold: 1.2 GiB."""
    if value is None:
        return Figure(ABSENT, "")
    return _scaled(float(value), 1024, ("B", "KiB", "MiB", "GiB", "TiB"))


def count(value: float | None) -> Figure:
    """Parameters and the like: 134.5 M."""
    return Figure(ABSENT, "") if value is None else _scaled(float(value), 1000, _COUNT_UNITS)


def megabytes(value: float | None) -> str:
    """Bytes as MB without the unit, for a column whose head says MB."""
    if value is None:
        return ABSENT
    size = value / 1_000_000
    return grouped(size, 1 if size < 10 else 0)


def gibibytes(value: float | None) -> str:
    """Bytes as GiB without the unit, for a column whose head says GiB."""
    return ABSENT if value is None else grouped(value / 2**30, 1)


def percent(value: float | None, digits: int = 0) -> str:
    """0..1 -> "42 %"; absent is a dash."""
    return ABSENT if value is None else f"{grouped(value * 100, digits)}{THIN}%"


def change(share: float | None) -> str:
    """0.124 -> "+12 %"; nothing where it is absent or under half a percent."""
    if share is None or abs(share) < 0.005:
        return ""
    return f"{'+' if share > 0 else MINUS}{grouped(min(abs(share), 9.99) * 100)}{THIN}%"


def duration(seconds: float | None) -> str:
    """Length of time in its two largest units: 0.4 s, 45 s, 3 min 12 s, 2 h 05 min, 3 d 4 h."""
    if seconds is None:
        return ABSENT
    if seconds < 10:
        return f"{grouped(max(seconds, 0.0), 1)}{THIN}s"
    whole = round(seconds)
    if whole < MINUTE:
        return f"{whole}{THIN}s"
    if whole < HOUR:
        return f"{whole // MINUTE}{THIN}min {whole % MINUTE:02d}{THIN}s"
    if whole < DAY:
        return f"{whole // HOUR}{THIN}h {whole % HOUR // MINUTE:02d}{THIN}min"
    return f"{whole // DAY}{THIN}d {whole % DAY // HOUR}{THIN}h"


def since(moment: datetime | None, end: datetime | None = None) -> float | None:
    """Seconds from a row's time to `end` (default: now), None where it has not begun."""
    return None if moment is None else ((end or clock.now()) - moment).total_seconds()


def relative(moment: datetime, now: datetime | None = None) -> str:
    """How long ago, in its largest unit: now, 12 s ago, 3 min ago, 2 h ago, 5 days ago, then the date."""
    seconds = ((now or clock.now()) - moment).total_seconds()
    ahead, seconds = seconds < 0, abs(seconds)
    if seconds < 5:
        return _("now")
    if seconds < MINUTE:
        amount = f"{int(seconds)}{THIN}s"
    elif seconds < HOUR:
        amount = f"{int(seconds // MINUTE)}{THIN}min"
    elif seconds < DAY:
        amount = f"{int(seconds // HOUR)}{THIN}h"
    elif seconds < 30 * DAY:
        days = int(seconds // DAY)
        amount = ngettext("%(n)d day", "%(n)d days", days) % {"n": days}
    else:
        return moment.date().isoformat()
    return _("in %(amount)s") % {"amount": amount} if ahead else _("%(amount)s ago") % {"amount": amount}
