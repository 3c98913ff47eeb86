"""Reading usage: sums over hours, grouped as a page, an export or the API wants them."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, cast

from django.db.models import Max, QuerySet, Sum
from django.db.models.functions import TruncDay
from django.utils.translation import gettext as _

from apps.core import clock
from apps.core.exceptions import InvalidInput
from apps.gateway.models import UsageHour
from apps.gateway.usage.counting import TTFT_BOUNDS, TTFT_COLUMNS
from apps.gateway.usage.store import USAGE_DAYS
from apps.telemetry.domain.histogram import Histogram

SUMS = (
    "requests",
    "errors",
    "refused",
    "cancelled",
    "prompt_tokens",
    "completion_tokens",
    "cached_tokens",
)
# Range -> its length and the step of its figures.
RANGES: dict[str, tuple[timedelta, timedelta]] = {
    "24h": (timedelta(hours=24), timedelta(hours=1)),
    "7d": (timedelta(days=7), timedelta(hours=6)),
    "30d": (timedelta(days=30), timedelta(days=1)),
    "90d": (timedelta(days=90), timedelta(days=1)),
}
DEFAULT_RANGE = "24h"
# A cell that begins with one of these is a formula to a spreadsheet.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


@dataclass(frozen=True, slots=True)
class Usage:
    """Sums of one group. `at` is the beginning of its step, None for a whole range; TTFT in ms, None without any."""

    at: datetime | None
    key_id: int | None
    key_name: str | None
    route: str | None
    requests: int
    errors: int
    refused: int
    cancelled: int
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    ttft_mean_ms: float | None
    ttft_p50_ms: float | None
    ttft_p99_ms: float | None

    @property
    def tokens(self) -> int:
        """Prompt and answer together."""
        return self.prompt_tokens + self.completion_tokens


def since_of(range_name: str, now: datetime | None = None) -> datetime:
    """Beginning of a range, on the hour. Raises InvalidInput for an unknown one."""
    found = RANGES.get(range_name)
    if found is None:
        raise InvalidInput(
            "range_unknown",
            _("There is no range %(name)s.") % {"name": range_name},
            field="range",
            remedy=_("Choose one of: %(names)s.") % {"names": ", ".join(RANGES)},
        )
    moment = (now or clock.now()) - found[0] + timedelta(hours=1)
    return moment.replace(minute=0, second=0, microsecond=0)


def rows(
    since: datetime, until: datetime | None = None, *, key_id: int | None = None, route: str = ""
) -> QuerySet[UsageHour]:
    """Hours in a time, of all keys and routes or of one."""
    found = UsageHour.objects.filter(hour__gte=max(since, clock.now() - timedelta(days=USAGE_DAYS)))
    if until is not None:
        found = found.filter(hour__lt=until)
    if key_id is not None:
        found = found.filter(key_id=key_id)
    return found.filter(route=route) if route else found


def total(found: QuerySet[UsageHour]) -> Usage:
    """Sums over all of them."""
    return _usage(found.aggregate(**_sums()))


def by(found: QuerySet[UsageHour], *columns: str) -> list[Usage]:
    """Sums for each value of the columns (`hour`, `day`, `key_id`, `route`), in their order."""
    if "day" in columns:
        found = found.annotate(day=TruncDay("hour"))
    # A key may have been renamed meanwhile; it stays one group.
    named = {"named": Max("key_name")} if "key_id" in columns else {}
    grouped = found.order_by().values(*columns).annotate(**_sums(), **named).order_by(*columns)
    return [_usage(row) for row in grouped]


def steps(found: QuerySet[UsageHour], since: datetime, step: timedelta, until: datetime) -> list[Usage]:
    """Sums for each step from `since` on, also for those in which nothing was asked."""
    merged: dict[int, dict[str, Any]] = {}
    grouped = found.order_by().values("hour").annotate(**_sums())
    for row in cast("Iterable[dict[str, Any]]", grouped):
        number = int((row["hour"] - since) // step)
        into = merged.setdefault(number, dict.fromkeys(_sums(), 0))
        for name in _sums():
            into[name] += row[name] or 0
    count = max(0, -int(-(until - since) // step))
    empty = dict.fromkeys(_sums(), 0)
    return [_usage({**merged.get(n, empty), "hour": since + n * step}) for n in range(count)]


def _sums() -> dict[str, Sum]:
    return {f"sum_{name}": Sum(name) for name in (*SUMS, "ttft_ms", "ttft_count", *TTFT_COLUMNS)}


def _usage(row: dict[str, Any]) -> Usage:
    counts, below = [], 0
    for column in TTFT_COLUMNS:
        below += row[f"sum_{column}"] or 0
        counts.append(float(below))
    bounds = (*map(float, TTFT_BOUNDS), float("inf"))
    ttft = Histogram(bounds, tuple(counts), float(row["sum_ttft_ms"] or 0))
    return Usage(
        at=row.get("hour") or row.get("day"),
        key_id=row.get("key_id"),
        key_name=row.get("named"),
        route=row.get("route"),
        **{name: row[f"sum_{name}"] or 0 for name in SUMS},
        ttft_mean_ms=_rounded(ttft.mean()),
        ttft_p50_ms=_rounded(ttft.quantile(0.5)),
        ttft_p99_ms=_rounded(ttft.quantile(0.99)),
    )


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)


def as_dict(usage: Usage) -> dict[str, Any]:
    """JSON form. `key` and `route` are null where they are not asked for."""
    return {
        "at": usage.at.isoformat() if usage.at else None,
        "key_id": usage.key_id or None,
        "key": usage.key_name or None,
        "route": usage.route or None,
        **{name: getattr(usage, name) for name in SUMS},
        "ttft_mean_ms": usage.ttft_mean_ms,
        "ttft_p50_ms": usage.ttft_p50_ms,
        "ttft_p99_ms": usage.ttft_p99_ms,
    }


def as_csv(found: Iterable[Usage]) -> str:
    """CSV with a heading. No cell begins as a formula, whatever a key is called."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    columns: Sequence[str] = (
        *("at", "key_id", "key", "route"),
        *SUMS,
        *("ttft_mean_ms", "ttft_p50_ms", "ttft_p99_ms"),
    )
    writer.writerow(columns)
    for usage in found:
        row = as_dict(usage)
        writer.writerow([cell(row[column]) for column in columns])
    return out.getvalue()


def cell(value: Any) -> Any:
    """A value as a spreadsheet may have it: texts that it would take for a formula begin with an apostrophe."""
    if value is None:
        return ""
    return f"'{value}" if isinstance(value, str) and value.lstrip(" ").startswith(_FORMULA) else value
