"""Requests of a window, good and bad, as an objective counts them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import cast

from apps.telemetry import history
from apps.telemetry.alerts.watching import Watched
from apps.telemetry.domain.alerting.burn import Requests
from apps.telemetry.domain.alerting.conditions import BurnRate

NOTHING = Requests(None, None)


def counter(condition: BurnRate, watched: Watched, now: float) -> Callable[[int], Requests]:
    """A function that counts the requests of the last so many seconds at an object."""
    scope = history.Scope(cast(history.ScopeKind, watched.kind), int(watched.id or 0))

    def count(seconds: int) -> Requests:
        if condition.indicator == "errors":
            return _errors(scope, now - seconds, now)
        return _slow(scope, condition.indicator, condition.limit_ms or 0.0, now - seconds, now)

    return count


def _errors(scope: history.Scope, since: float, until: float) -> Requests:
    found = history.window(scope, since, until)
    failed = found["failed"]
    if failed is None:
        return NOTHING
    # The reasons name bad ends alone; some engines' count holds these as well, others' only what ended well.
    return Requests(max(found["requests"] or 0.0, sum(found["ended"].values())), failed)


def _slow(scope: history.Scope, name: str, limit: float, since: float, until: float) -> Requests:
    """Requests slower than `limit` ms: exact where it is a bucket's bound, else interpolated inside the bucket."""
    heat = history.distribution(scope, cast(history.Distribution, name), since, until, max_columns=1)
    total = bad = 0.0
    for column in heat.counts:
        lower = 0.0
        for bound, count in zip(heat.bounds, column, strict=True):
            upper = math.inf if bound is None else bound
            total += count
            if lower >= limit:
                bad += count
            elif upper > limit:
                bad += count if math.isinf(upper) else count * (upper - limit) / (upper - lower)
            lower = upper
    return Requests(total, bad) if heat.counts else NOTHING
