"""Where charts get their figures: telemetry's curves and distributions over any range."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import cast

from apps.dashboard.charts import frames
from apps.dashboard.charts.distributions import COLUMNS, Distribution
from apps.dashboard.charts.frames import Frame
from apps.dashboard.charts.ranges import MAX_POINTS, TimeRange
from apps.telemetry import history
from apps.telemetry.history import Scope

FLEET = Scope("fleet")
# Figures of single seconds reach back 15 minutes. A range of just that length must not miss them by the time that
# passes between the request and the query; no other range begins so close to their end.
_SECONDS_REACH = 900.0
_PASSED = 30.0


def reached(since: float) -> float:
    """Where to read from: `since`, or a moment later where single seconds are only just out of reach."""
    late = time.time() - _SECONDS_REACH - since
    return since + late + 1.0 if -1.0 <= late < _PASSED else since


def frame(scope: Scope, chosen: TimeRange, keys: Sequence[str]) -> Frame:
    """Figures of one object over a range, in at most about MAX_POINTS complete steps."""
    return between(scope, chosen.since, chosen.until, keys)


def between(scope: Scope, since: float, until: float, keys: Sequence[str]) -> Frame:
    """The same between two epoch seconds."""
    found = history.series(scope, reached(since), until, MAX_POINTS, keys)
    step = found.step_seconds
    # The browser makes the step that is not over yet out of live samples.
    end = math.floor(until / step) * step if until > time.time() - step else until
    middle = step / 2 if step > 1 else 0.0
    points = [
        {**point, "at": point["at"] + middle}
        for point in found.points
        if point["at"] is not None and point["at"] + (step if step > 1 else 0.0) <= end
    ]
    return frames.of_points(points, keys, step, end, found.source)


def compared(scope: Scope, chosen: TimeRange, keys: Sequence[str]) -> Frame | None:
    """The earlier period that a range is compared with, moved onto it; None where there is none.

    It reaches on beyond the range's end as far as figures are there, because a live range moves on over it.
    """
    if not chosen.offset:
        return None
    since = chosen.since - chosen.offset
    until = min(chosen.until, since + 1.5 * chosen.seconds) if chosen.live else since + chosen.seconds
    return frames.shifted(between(scope, since, until, keys), chosen.offset)


def distribution(scope: Scope, name: str, chosen: TimeRange) -> Distribution:
    """Observations of one histogram over a range, in at most about COLUMNS columns; empty where none are kept."""
    kind = cast("history.Distribution", name)
    found = history.distribution(scope, kind, reached(chosen.since), chosen.until, COLUMNS)
    bounds = [math.inf if bound is None else bound for bound in found.bounds]
    middle = found.step_seconds / 2
    return with_gaps([at + middle for at in found.times], bounds, found.counts, found.step_seconds)


def with_gaps(
    times: Sequence[float], bounds: Sequence[float], counts: Sequence[Sequence[float]], step: float
) -> Distribution:
    """Columns with an empty one at each end of a silence, or Plotly would draw its neighbours across it."""
    shown: list[float] = []
    columns: list[Sequence[float] | None] = []
    for at, column in zip(times, counts, strict=True):
        if shown and at - shown[-1] > step * frames.GAP_STEPS:
            ends = dict.fromkeys((round(shown[-1] + step, 3), round(at - step, 3)))
            shown += ends
            columns += [None] * len(ends)
        shown.append(at)
        columns.append(column)
    return Distribution(shown, bounds, columns)
