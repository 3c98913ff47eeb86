"""Loads over time for benchmarks/autoscale.py, and the deployments that bear them.

CURVES with seed 1 on PLACE are what the rule of scaling was made with. OTHER_SEEDS, OTHER_CURVES and OTHER_PLACES
are held out: nothing is chosen by them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

HOUR = 3600


@dataclass(frozen=True, slots=True)
class Curve:
    """Requests a second over time. `seconds` is its length; with `idle` the deployment sleeps after so many."""

    name: str
    what: str
    seconds: int
    rate: Callable[[float], float]
    idle: float | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """A deployment: slots and wanted requests in flight of each server, seconds of an answer and of a start."""

    name: str
    slots: int = 8
    target: float = 5.0
    service: float = 6.0
    start_up: float = 60.0

    def servers(self, rate: float) -> int:
        """Servers that a rate keeps busy to the target; at least one."""
        return max(1, math.ceil(rate * self.service / self.target))

    def needed(self, curve: Curve, at: float) -> int:
        """Servers that a curve needs at a moment: one that sleeps needs none while nothing comes."""
        rate = curve.rate(at)
        return 0 if curve.idle is not None and rate == 0 else self.servers(rate)


PLACE = Place("6 s answers, 60 s to start")


def _spikes(at: float) -> float:
    return 5.0 if at % 1800 < 90 else 0.8


def _levels(seed: int) -> Callable[[float], float]:
    levels = np.random.default_rng(seed).gamma(4.0, 0.5, size=HOUR)
    return lambda at: float(levels[int(at // 20) % HOUR])


def _wave(at: float) -> float:
    return 3.15 - 2.85 * math.cos(2 * math.pi * at / (24 * HOUR))


def _office(at: float) -> float:
    return 3.0 if 8 <= at / HOUR < 16 else 0.0


def _steps(at: float) -> float:
    return (1.0, 4.0, 2.0, 6.0, 1.0)[int(at // 1800)]


CURVES = (
    Curve("steps", "1, 4, 2, 6, 1 requests/s, 30 min each", 9000, _steps),
    Curve("wave", "a day: 0.3 to 6 requests/s", 24 * HOUR, _wave),
    Curve("spikes", "0.8 requests/s, every 30 min 5 for 90 s", 4 * HOUR, _spikes),
    Curve("noise", "2 requests/s on average, another level every 20 s", 4 * HOUR, _levels(7)),
    Curve("steady", "2.5 requests/s, at the edge of two numbers of servers", 4 * HOUR, lambda at: 2.5),
    Curve("office", "8 hours of 3 requests/s, 16 without any; sleeps", 24 * HOUR, _office, 900.0),
)


def _weekday(at: float) -> float:
    hour = at / HOUR
    return 0.5 + 4.0 * math.exp(-(((hour - 10) / 2) ** 2)) + 3.0 * math.exp(-(((hour - 15.5) / 2.5) ** 2))


def _ramp(at: float) -> float:
    return 0.5 + 6.5 * min(at / (3 * HOUR), max(0.0, 4 - at / HOUR))


def _sawtooth(at: float) -> float:
    minute = at % HOUR / 60
    return 1.0 + 4.0 * min(minute / 50, (60 - minute) / 10)


def _campaign(at: float) -> float:
    since = at - 2 * HOUR
    return 1.2 + (3.6 * math.exp(-since / 1800) if since >= 0 else 0.0)


def _rushes(at: float) -> float:
    """Calm and rush take turns for times that were drawn once."""
    drawn = np.random.default_rng(19)
    ends = np.cumsum([drawn.exponential(120.0 if turn % 2 else 600.0) for turn in range(200)])
    return 4.0 if int(np.searchsorted(ends, at, side="right")) % 2 else 1.5


def _drawn(curve: Callable[[float], float], seconds: int) -> Callable[[float], float]:
    """The same, worked out once for each second."""
    levels = [curve(float(at)) for at in range(seconds)]
    return lambda at: levels[int(at)]


OTHER_SEEDS = (11, 12, 13)
OTHER_CURVES = (
    Curve("weekday", "a day with two humps, 0.5 to 4.6 requests/s", 24 * HOUR, _weekday),
    Curve("ramp", "0.5 to 7 requests/s in 3 hours, back in one", 4 * HOUR, _ramp),
    Curve("sawtooth", "1 to 5 requests/s in 50 min, back in 10, six times", 6 * HOUR, _sawtooth),
    Curve("campaign", "1.2 requests/s, four times as many at once, then ever fewer", 6 * HOUR, _campaign),
    Curve("rushes", "1.5 requests/s for 10 min, 4 for 2 min, by chance", 6 * HOUR, _drawn(_rushes, 6 * HOUR)),
    Curve("night", "0.7 requests/s, what one server can just bear", 8 * HOUR, lambda at: 0.7),
)
OTHER_PLACES = (
    Place("2 s answers, 20 s to start", slots=4, target=2.5, service=2.0, start_up=20.0),
    Place("20 s answers, 150 s to start", slots=32, target=20.0, service=20.0, start_up=150.0),
)
