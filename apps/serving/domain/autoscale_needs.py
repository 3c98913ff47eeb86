"""How many servers one moment's figures ask for: each target for itself, then the largest.

A figure that nobody told asks for nothing and allows nothing: it neither adds a server nor takes one away.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

Metric = Literal["in_flight", "waiting", "ttft_ms", "kv_use", "gpu_use"]
METRICS: tuple[Metric, ...] = ("in_flight", "waiting", "ttft_ms", "kv_use", "gpu_use")
# Within a tenth of the target nothing changes (as in the Horizontal Pod Autoscaler's default tolerance).
TOLERANCE = 0.1
# One look at most doubles the servers. A queue or a latency adds at most half: it says that there are too few, not
# how many are missing. One of so many times its target needs no long look.
MOST_GROWTH = 2
SYMPTOM_GROWTH = 1.5
SEVERE = 3.0
SYMPTOMS: frozenset[Metric] = frozenset({"waiting", "ttft_ms"})
# So large a part of a time must be told before it says that fewer servers do.
COVERED = 0.8
# Fewer servers must have so large a part of their slots free of what runs now.
FILLED_AT_MOST = 0.7


@dataclass(frozen=True, slots=True)
class Target:
    """What one figure should be: requests of each server (in_flight, waiting), milliseconds, or a share (0..1]."""

    metric: Metric
    value: float


@dataclass(frozen=True, slots=True)
class Point:
    """What a deployment did from `at` (epoch seconds) for `seconds`: means; null is what nobody told.

    `running`, `waiting` and `slots` are of all its `servers` together; `waiting` counts the engines' queues and the
    gateway's. `ttft_ms` is the 90th percentile.
    """

    at: float
    seconds: float
    servers: float | None
    running: float | None = None
    waiting: float | None = None
    slots: float | None = None
    ttft_ms: float | None = None
    kv_use: float | None = None
    gpu_use: float | None = None

    @property
    def idle(self) -> bool:
        """Whether it is known that nothing ran or waited."""
        return self.running == 0 and self.waiting == 0

    @property
    def until(self) -> float:
        """Where its time ends."""
        return self.at + self.seconds


@dataclass(frozen=True, slots=True)
class Need:
    """Servers that a moment asks for (null: no target could be read), the target that asks most, and the metrics
    that nobody told."""

    servers: int | None
    by: Metric | None
    value: float | None
    missing: tuple[Metric, ...]


def need(point: Point, targets: Sequence[Target], filled: float = 1.0, chance: float = 0.0) -> Need:
    """What one moment asks for.

    Fewer servers than it has where these would be filled to `filled` of the target. With `chance` above 0 more only
    where requests in flight are above what is wanted by so many times its square root (independent requests at once
    vary so much), or a queue or a latency is SEVERE.
    """
    return _need(point, tuple(targets), filled, chance)


@lru_cache(maxsize=8192)
def _need(point: Point, targets: tuple[Target, ...], filled: float, chance: float) -> Need:
    """A window is looked at every few seconds, and most of its moments were in the last one."""
    if not point.servers:
        return Need(None, None, None, tuple(target.metric for target in targets))
    now = max(1, round(point.servers))
    best: tuple[int, Metric, float] | None = None
    missing: list[Metric] = []
    for target in targets:
        value = value_of(point, target.metric)
        wanted = _wanted(point, target, value, now, filled)
        if wanted is not None and wanted > now and chance and _by_chance(target, value or 0.0, now, chance):
            wanted = now
        if wanted is None:
            missing.append(target.metric)
        elif best is None or wanted > best[0]:
            best = (wanted, target.metric, value or 0.0)
    if best is None:
        return Need(None, None, None, tuple(missing))
    return Need(*best, tuple(missing))


def _by_chance(target: Target, value: float, now: int, chance: float) -> bool:
    """Whether a moment like this comes about by chance where the target is usual: a few seconds' queue is no load."""
    if target.metric in SYMPTOMS:
        return value < SEVERE * target.value
    if target.metric != "in_flight":
        return False
    usual = target.value * now
    return value * now < usual + chance * math.sqrt(usual) - 1e-9


def value_of(point: Point, metric: Metric) -> float | None:
    """The figure that a target is compared with; null where it is not known."""
    servers = point.servers
    if metric == "waiting":
        return None if point.waiting is None or not servers else point.waiting / servers
    if metric == "in_flight":
        if point.waiting is None or point.running is None or not servers:
            return None
        return (point.running + point.waiting) / servers
    found: float | None = getattr(point, metric)
    return found


def _wanted(point: Point, target: Target, value: float | None, now: int, filled: float) -> int | None:
    if target.metric in SYMPTOMS:
        return _by_symptom(point, target, value, now)
    if value is None:
        # A GPU or a cache that tells nothing while nobody asks is not used.
        return 0 if point.idle else None
    ratio = value / target.value
    if ratio > 1 + TOLERANCE:
        return min(now * MOST_GROWTH, math.ceil(now * ratio))
    return min(now, math.ceil(now * ratio / filled - 1e-9))


def _by_symptom(point: Point, target: Target, value: float | None, now: int) -> int | None:
    """A queue or a latency says that servers are missing; that there are too many only their free slots can say."""
    if value is not None and value > target.value * (1 + TOLERANCE):
        return max(now + 1, math.ceil(now * min(SYMPTOM_GROWTH, value / target.value)))
    if value is None and target.metric == "waiting":
        return None
    if point.running is None or point.waiting is None or not point.slots or not point.servers:
        return 0 if point.idle else None
    room = point.slots / point.servers * FILLED_AT_MOST
    return min(now, math.ceil((point.running + point.waiting) / room))


def covered(points: Iterable[Point], since: float, until: float) -> float:
    """Which part (0..1) of a range the points cover."""
    if until <= since:
        return 1.0
    told = sum(max(0.0, min(point.until, until) - max(point.at, since)) for point in points)
    return min(1.0, told / (until - since))


def smoothed(points: Sequence[Point], until: float, seconds: float) -> list[Point]:
    """Means over stretches of `seconds` that end at `until`, oldest first: single requests come and go.

    A figure is null where less than COVERED of its stretch tells it.
    """
    groups: dict[int, list[Point]] = {}
    for point in points:
        groups.setdefault(max(0, math.floor((until - point.until) / seconds + 1e-9)), []).append(point)
    return [_mean(groups[key]) for key in sorted(groups, reverse=True)]


def _mean(points: Sequence[Point]) -> Point:
    whole = sum(point.seconds for point in points)
    found: dict[str, float | None] = {}
    for name in ("servers", "running", "waiting", "slots", "ttft_ms", "kv_use", "gpu_use"):
        told = [(value, point.seconds) for point in points if (value := getattr(point, name)) is not None]
        known = sum(seconds for _value, seconds in told)
        enough = known > 0 and known >= COVERED * whole
        found[name] = sum(value * seconds for value, seconds in told) / known if enough else None
    return Point(at=points[0].at, seconds=whole, **found)
