"""Verdicts: whether a condition holds, does not, or cannot be said. A null value is neither true nor false."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

from apps.telemetry.domain.alerting.conditions import Absence, Change, Events, InState, Threshold

Sample = Mapping[str, float | None]
# Why nothing can be said: samples come, but without a value (nothing happened); or no samples come at all.
Silence = Literal["", "null", "gap"]

# Two samples further apart than this have a gap between them (the scraper pauses for 10 s before a dead server).
LONGEST_STEP = 12.0
# A value older than this says nothing about now.
FRESH_SECONDS = 15.0
# Share of a window that samples must cover before its mean is compared.
COVERAGE = 0.5
# Known values that a mean is made of, at least.
LEAST_VALUES = 5


@dataclass(frozen=True, slots=True)
class Verdict:
    """`active`: the condition holds (None: cannot say); `cleared`: it is over, with the margin of its hysteresis.

    Between the two an alert stays what it is. `value` and `limit` are in the metric's unit; `facts` is evidence.
    """

    active: bool | None
    cleared: bool | None = None
    value: float | None = None
    limit: float | None = None
    silence: Silence = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


def unknown(silence: Silence, **facts: Any) -> Verdict:
    """Cannot say."""
    return Verdict(None, None, silence=silence, facts=facts)


def threshold(condition: Threshold, samples: Sequence[Sample], now: float) -> Verdict:
    """Whether the metric of these samples (oldest first) is beyond its value."""
    recent = _between(samples, now - max(condition.window_seconds, FRESH_SECONDS), now)
    if not recent or now - _at(recent[-1]) > FRESH_SECONDS:
        return unknown("gap")
    inside = _between(recent, now - condition.window_seconds, now)
    value, limit = _measured(condition, inside), condition.value
    if value is None:
        return unknown("null")
    if condition.compare == "above":
        active, cleared = value > limit, value <= condition.clear_value
    else:
        active, cleared = value < limit, value >= condition.clear_value
    # Where no margin is left (a limit of 0), what is not true is over.
    return Verdict(active, cleared and not active, value, limit)


def change(condition: Change, samples: Sequence[Sample], now: float) -> Verdict:
    """Whether the metric moved against its baseline; both windows must be covered by samples."""
    start = now - condition.window_seconds
    recent = _between(samples, start, now)
    before = _between(samples, start - condition.baseline_seconds, start)
    covered = _covered(recent, start, now), _covered(before, start - condition.baseline_seconds, start)
    if min(covered) < COVERAGE:
        return unknown("gap")
    new, old = _values(recent, condition.key), _values(before, condition.key)
    if min(len(new), len(old)) < LEAST_VALUES:
        return unknown("null")
    value, baseline = statistics.fmean(new), statistics.fmean(old)
    if abs(baseline) < condition.at_least:
        return Verdict(False, True, value, None, facts={"baseline": baseline})
    step = abs(baseline) * condition.by if condition.relative else condition.by
    if condition.relative and not step:
        return unknown("null", baseline=baseline)
    moved = value - baseline if condition.direction == "rise" else baseline - value
    limit = baseline + step if condition.direction == "rise" else baseline - step
    return Verdict(moved >= step, moved <= step / 2, value, limit, facts={"baseline": baseline})


def absence(condition: Absence, samples: Sequence[Sample], now: float, watched_since: float) -> Verdict:
    """Whether nothing was said for so long. `watched_since`: before it nobody listened, so it says nothing."""
    told = [sample for sample in samples if condition.key is None or sample.get(condition.key) is not None]
    last = _at(told[-1]) if told else None
    silent = now - max(last if last is not None else watched_since, watched_since)
    facts = {"last": last}
    if silent >= condition.seconds:
        return Verdict(True, False, silent, float(condition.seconds), facts=facts)
    if last is None or last < watched_since:
        return unknown("gap", **facts)
    return Verdict(False, True, silent, float(condition.seconds), facts=facts)


def events(condition: Events, moments: Iterable[float], now: float) -> Verdict:
    """Whether it happened often enough; `moments` are epoch seconds."""
    count = sum(1 for at in moments if now - condition.within_seconds < at <= now)
    return Verdict(count >= condition.count, count < condition.count, float(count), float(condition.count))


def in_state(condition: InState, state: str) -> Verdict:
    """Whether an object is in one of the states."""
    active = state in condition.states
    return Verdict(active, not active, facts={"state": state})


def needed_seconds(condition: object) -> float:
    """How far back the samples of a condition reach."""
    if isinstance(condition, Threshold):
        return max(condition.window_seconds, FRESH_SECONDS)
    if isinstance(condition, Change):
        return float(condition.window_seconds + condition.baseline_seconds)
    return float(condition.seconds) if isinstance(condition, Absence) else 0.0


def _measured(condition: Threshold, samples: Sequence[Sample]) -> float | None:
    values = _values(samples, condition.key)
    if not values:
        return None
    value = _statistic(values, condition.statistic)
    if condition.per is None:
        return value
    parts = _values(samples, condition.per)
    whole = _statistic(parts, condition.statistic) if parts else 0.0
    return value / whole if whole else None


def _at(sample: Sample) -> float:
    return float(sample["at"] or 0.0)


def _between(samples: Sequence[Sample], after: float, until: float) -> list[Sample]:
    return [sample for sample in samples if after < _at(sample) <= until]


def _values(samples: Sequence[Sample], key: str) -> list[float]:
    return [value for value in (sample.get(key) for sample in samples) if value is not None]


def _covered(samples: Sequence[Sample], start: float, end: float) -> float:
    """Share of the time from `start` to `end` in which samples follow each other without a gap."""
    times = [start, *(_at(sample) for sample in samples), end]
    steps = (later - earlier for earlier, later in pairwise(times))
    return sum(step for step in steps if step <= LONGEST_STEP) / (end - start) if samples else 0.0


def _statistic(values: list[float], name: str) -> float:
    if name == "last":
        return values[-1]
    if name == "max":
        return max(values)
    if name == "min":
        return min(values)
    return statistics.median(values) if name == "median" else statistics.fmean(values)
