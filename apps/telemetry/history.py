"""Figures over any range of time, for pages, the API and alert rules: curves, distributions, totals.

Blocking and read-only. Seconds that nobody told are missing or null, never 0. Percentiles over a step come from the
step's own histograms; they are never averaged. Every function answers in well under 100 ms, because it chooses the
length of the stored steps by the range.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from apps.telemetry.domain.derive import Sample, kind_of_end
from apps.telemetry.domain.histogram import Histogram, align
from apps.telemetry.domain.rollup import Bucket, joined, needed
from apps.telemetry.domain.vocabulary import HISTOGRAMS, NAMES
from apps.telemetry.prometheus_source import PrometheusSource
from apps.telemetry.storage import policy, rows
from apps.telemetry.storage.rows import Step

ScopeKind = Literal["deployment", "instance", "fleet", "gpu", "node"]
Source = Literal["raw", "10s", "1m", "10m", "1h", "8h", "prometheus"]
Distribution = Literal["ttft", "itl", "e2e", "queue", "batch_size", "prompt_tokens", "generated_tokens"]

# Stored steps that one chart reads at most.
MOST_STEPS = 700
# Where an engine tells no batch sizes, what Triton executed stands for them.
_INSTEAD = {"batch_size": "triton_batch_size", "itl": "tpot"}


@dataclass(frozen=True, slots=True)
class Scope:
    """One object whose figures are kept; the fleet's id is 0."""

    kind: ScopeKind
    id: int = 0


@dataclass(frozen=True, slots=True)
class Series:
    """Curves: one point every `step_seconds`, oldest first; `at` (epoch seconds) is where its step begins.

    Steps that nobody told are left out, but each gap begins with a point of nulls, so that lines break.
    """

    step_seconds: float
    source: Source
    points: list[dict[str, float | None]]


@dataclass(frozen=True, slots=True)
class Heat:
    """A distribution over time. `times`: where each column begins (epoch seconds), a step apart or more.

    `bounds`: upper bounds of the buckets in `unit`, the last is infinite (None); `counts[column][bucket]` are numbers
    of observations, not cumulative. `histogram` names what was counted (what Triton executed where the engine tells
    no batch sizes).
    """

    step_seconds: float
    source: Source
    histogram: str
    unit: str
    times: list[float]
    bounds: list[float | None]
    counts: list[list[float]]


def series(
    scope: Scope,
    since: float,
    until: float,
    max_points: int = 300,
    keys: Sequence[str] | None = None,
) -> Series:
    """Curves of a scope from `since` to `until` (epoch seconds), at most about `max_points` points.

    `keys` are names of the vocabulary (default: all); others raise ValueError. With a Prometheus configured ranges
    that reach back further than the finest stored steps come from there; where it fails, from the database.
    """
    names = _names(keys)
    now = time.time()
    until = min(until, now + 1.0)
    if since >= until:
        return Series(1.0, "raw", [])
    from_prometheus = _from_prometheus(scope, since, until, max_points, names, now)
    if from_prometheus is not None:
        return from_prometheus
    step, chart_step, found = _read(scope, since, until, max_points, now, needed(names), names)
    if chart_step == 1:
        points = [_second(each, names) for each in found]
    else:
        points = [joined(group).point(at, names) for at, group in _groups(found, chart_step)]
    return Series(float(chart_step), policy.NAMES[step], _broken(points, chart_step, names))  # type: ignore[arg-type]


def distribution(
    scope: Scope, name: Distribution, since: float, until: float, max_columns: int = 120
) -> Heat:
    """How the values of one kind were distributed over time, at most about `max_columns` columns."""
    now = time.time()
    until = min(until, now + 1.0)
    step, chart_step, found = _read(
        scope, since, until, max_columns, now, {name, _INSTEAD.get(name, name)}, ()
    )
    kind = name if any(name in each.bucket.histograms for each in found) else _INSTEAD.get(name, name)
    if not any(kind in each.bucket.histograms for each in found):
        kind = name
    columns: list[tuple[float, Histogram]] = []
    for at, group in _groups([each for each in found if kind in each.bucket.histograms], chart_step):
        value = joined(group).histograms.get(kind)
        if value is not None:
            columns.append((at, value))
    bounds = _common([value for _at, value in columns])
    return Heat(
        step_seconds=float(chart_step),
        source=policy.NAMES[step],  # type: ignore[arg-type]
        histogram=kind,
        unit=HISTOGRAMS[kind][0],
        times=[at for at, _value in columns],
        bounds=[None if math.isinf(bound) else bound for bound in bounds],
        counts=[_plain(align(value, bounds)) for _at, value in columns],
    )


def window(scope: Scope | Sequence[Scope], since: float, until: float) -> dict[str, Any]:
    """What happened in all of a range, to one object or to several together.

    {"since", "until" (what the stored steps cover), "source", "requests", "prompt_tokens", "generated_tokens",
    "cached_prompt_tokens", "energy_joules" (None where not told), "ended": {reason: number}, "failed", "rejected",
    "cancelled", "histograms": {name: {"unit", "count", "mean", "p50", "p90", "p99"}}, "means": {key: value}}.
    Percentiles are exact to the bucket: bucket counts are added, then read.
    """
    now = time.time()
    until = min(until, now + 1.0)
    step, found = policy.FINEST, list[Step]()
    for each in [scope] if isinstance(scope, Scope) else scope:
        step, _chart, more = _read(each, since, until, MOST_STEPS, now)
        found += more
    total = joined(each.bucket for each in found)
    amounts = total.amounts
    ended = {name[len("ended/") :]: value for name, value in amounts.items() if name.startswith("ended/")}
    classes = dict.fromkeys(("failed", "rejected", "cancelled"), 0.0 if ended else None)
    for reason, value in ended.items():
        classes[kind_of_end(reason)] = (classes[kind_of_end(reason)] or 0.0) + value
    return {
        "since": min((each.at for each in found), default=since),
        "until": max((each.at + each.seconds for each in found), default=until),
        "source": policy.NAMES[step],
        "requests": amounts.get("requests"),
        "prompt_tokens": amounts.get("prompt"),
        "generated_tokens": amounts.get("generated"),
        "cached_prompt_tokens": amounts.get("cached"),
        "energy_joules": amounts.get("gpu_energy_joules"),
        "ended": ended,
        **classes,
        "histograms": {name: _summary(name, value) for name, value in total.histograms.items()},
        "means": {name: total.value(name) for name in NAMES},
    }


def _summary(name: str, value: Histogram) -> dict[str, Any]:
    return {
        "unit": HISTOGRAMS.get(name, ("1", ""))[0],
        "count": value.count,
        "mean": value.mean(),
        "p50": value.quantile(0.5),
        "p90": value.quantile(0.9),
        "p99": value.quantile(0.99),
    }


def _names(keys: Sequence[str] | None) -> tuple[str, ...]:
    if keys is None:
        return NAMES
    unknown = [key for key in keys if key not in NAMES]
    if unknown:
        raise ValueError(f"No such figure: {', '.join(unknown)}.")
    return tuple(keys)


def _read(
    scope: Scope,
    since: float,
    until: float,
    max_points: int,
    now: float,
    histograms: Collection[str] | None = None,
    names: Collection[str] | None = None,
) -> tuple[int, int, list[Step]]:
    """The stored step, the chart's step (a multiple of it) and the steps."""
    most = max(max_points, 1)
    step = rows.step_for(since, until, now, min(MOST_STEPS, max(2 * most, 400)))
    chart_step = step * max(1, math.ceil((until - since) / step / most))
    return step, chart_step, rows.read(scope.kind, scope.id, since, until, step, now, histograms, names)


def _groups(found: Sequence[Step], seconds: int) -> Iterator[tuple[float, list[Bucket]]]:
    """Steps by the chart's step, which begins at a multiple of its length: points do not wander as time passes."""
    at: float | None = None
    group: list[Bucket] = []
    for each in found:
        mine = float(each.at // seconds * seconds)
        if mine != at and group and at is not None:
            yield at, group
            group = []
        at = mine
        group.append(each.bucket)
    if group and at is not None:
        yield at, group


def _second(step: Step, names: Sequence[str]) -> Sample:
    """A live sample as it was shown live: its percentiles look back ten seconds."""
    bucket = step.bucket
    point = bucket.point(step.at, names)
    for name in names:
        if name in bucket.highest:
            point[name] = bucket.highest[name]
    return point


def _broken(points: list[Sample], step: float, names: Sequence[str]) -> list[Sample]:
    """Points with one of nulls at the beginning of each gap."""
    whole: list[Sample] = []
    last: float | None = None
    for point in points:
        at = point["at"] or 0.0
        if last is not None and at - last > 2.5 * step:
            whole.append({"at": last + step, **dict.fromkeys(names, None)})
        whole.append(point)
        last = at
    return whole


def _common(found: Sequence[Histogram]) -> tuple[float, ...]:
    if not found:
        return ()
    return tuple(sorted(set(found[0].bounds).intersection(*(each.bounds for each in found))))


def _plain(value: Histogram) -> list[float]:
    """Counts of each bucket for itself, in integers where they are."""
    before = 0.0
    counts = []
    for count in value.counts:
        counts.append(count - before)
        before = count
    return counts


def _from_prometheus(
    scope: Scope, since: float, until: float, max_points: int, names: Sequence[str], now: float
) -> Series | None:
    source = PrometheusSource.configured()
    if source is None or now - since <= policy.retention(policy.FINEST):
        return None
    step = max(10, math.ceil((until - since) / max(max_points, 1)))
    points = source.points(scope.kind, scope.id, since, until, step, names)
    if points is None:
        return None
    return Series(float(step), "prometheus", _broken(points, step, names))
