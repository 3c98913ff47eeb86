"""What happened between two scrapes of one server, and the sum of several servers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from apps.telemetry.domain import histogram
from apps.telemetry.domain.batch_stats import BOUNDS
from apps.telemetry.domain.figures import BySeries, Series
from apps.telemetry.domain.histogram import Histogram
from apps.telemetry.domain.reading import Reading

Amounts = Mapping[str, float | None]

# A rate over a longer silence would hide the silence: what was counted meanwhile is kept, but as no rate.
LONGEST_STEP = 5.0
# Without an iteration for so long an engine's latest one says nothing about now. A long prompt takes a second or two,
# and the backend copies its figures only now and then.
STALE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Interval:
    """What happened in some seconds on one or more servers.

    `rates` are per second; `gauges` as they stand; `parts` are amounts whose quotient is a ratio; `histograms` hold
    the observations of the trailing window (see `Window`), `fresh` those of this interval alone; `amounts` are what
    the counters grew by. `gpus` and `host` are device figures that the server told.
    """

    rates: Amounts
    gauges: Amounts
    parts: Amounts
    histograms: Mapping[str, Histogram] = field(default_factory=dict)
    fresh: Mapping[str, Histogram] = field(default_factory=dict)
    amounts: Mapping[str, float] = field(default_factory=dict)
    gpus: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    host: Mapping[str, float] = field(default_factory=dict)


class Window:
    """Observations of the last `seconds`, so that percentiles have something to stand on at one scrape a second."""

    def __init__(self, seconds: float = 10.0) -> None:
        self._seconds = seconds
        self._parts: list[tuple[float, Mapping[str, Histogram]]] = []

    def add(self, at: float, deltas: Mapping[str, Histogram]) -> dict[str, Histogram]:
        """Add the observations that ended at `at`; returns the sums of the window."""
        self._parts = [(when, each) for when, each in self._parts if when > at - self._seconds]
        self._parts.append((at, {name: value for name, value in deltas.items() if value.count > 0}))
        return merged_histograms([each for _when, each in self._parts])

    def clear(self) -> None:
        """Forget them: what comes next is not near enough."""
        self._parts = []


def interval(new: Reading, old: Reading | None, window: Window, longest: float = LONGEST_STEP) -> Interval:
    """What happened between two readings of one server. Without an older one there are gauges and nothing else.

    A series that went down began anew with its model or server: all it counts is new. After more than `longest`
    seconds the amounts count, but no rate and no percentile is made of them.
    """
    now = new.figures
    if old is None or new.at <= old.at:
        return Interval({}, now.gauges, _parts(now.gauges, {}, {}), gpus=now.gpus, host=now.host)
    before = old.figures
    seconds = new.at - old.at
    grown = {name: _grown(values, before.counters.get(name)) for name, values in now.counters.items()}
    amounts = {name: amount for name, amount in grown.items() if amount is not None}
    fresh = _fresh(now.histograms, before.histograms)
    gauges = _gauges(new, old)
    size = gauges.get("batch_size_mean")
    if size and now.progress and new.moved_at == new.at and "batch_size" not in now.histograms:
        # One look at an engine that tells no distribution.
        fresh["batch_size"] = histogram.of_values({size: 1.0}, BOUNDS)
    parts = _parts(gauges, amounts, fresh)
    if seconds > longest:
        window.clear()
        return Interval({}, gauges, parts, {}, fresh, amounts, now.gpus, now.host)
    rates = {name: amount / seconds for name, amount in amounts.items()}
    return Interval(rates, gauges, parts, window.add(new.at, fresh), fresh, amounts, now.gpus, now.host)


def carried(new: Reading, old: Reading | None) -> Reading:
    """`new` with the counters of series that it does not name as they last stood in `old`.

    A series that is missing once and back with what it had must not count all of it again.
    """
    if old is None:
        return new
    now, before = new.figures, old.figures
    for name, values in before.counters.items():
        now.counters[name] = {**values, **now.counters.get(name, {})}
    for name, each in before.histograms.items():
        now.histograms[name] = {**each, **now.histograms.get(name, {})}
    resting = bool(now.progress) and all(before.progress.get(s) == value for s, value in now.progress.items())
    return replace(new, moved_at=old.moved_at) if resting else new


def _grown(new: BySeries, old: BySeries | None) -> float | None:
    """What a counter grew by over its series; None where it was not told before (the start of it is not known)."""
    if old is None:
        return None
    total = 0.0
    for series, value in new.items():
        before = old.get(series, 0.0)  # a series that is new began after the older reading
        total += value if value < before else value - before
    return total


def _fresh(
    new: Mapping[str, Mapping[Series, Histogram]], old: Mapping[str, Mapping[Series, Histogram]]
) -> dict[str, Histogram]:
    found = {}
    for name, each in new.items():
        if name not in old:
            continue
        deltas = [histogram.delta(value, old[name].get(series)) for series, value in each.items()]
        total = histogram.merge(deltas)
        if total is not None:
            found[name] = total
    return found


def _gauges(new: Reading, old: Reading) -> dict[str, float | None]:
    """Gauges as they stand; those of an iteration that is long over are None."""
    gauges: dict[str, float | None] = dict(new.figures.gauges)
    if new.moved_at is None or not old.figures.progress:
        return gauges
    stale = new.at - new.moved_at >= STALE_SECONDS
    gauges["engine_stale"] = float(stale)
    if stale:
        gauges |= dict.fromkeys(new.figures.momentary & set(gauges), None)
    return gauges


def _parts(
    gauges: Amounts, amounts: Mapping[str, float], fresh: Mapping[str, Histogram]
) -> dict[str, float | None]:
    """Numerators and denominators of the ratios, which add up over servers where the ratios do not."""
    parts: dict[str, float | None] = {
        "prompt": amounts.get("prompt"),
        "cached": amounts.get("cached"),
        "executed": amounts.get("executed"),
        "executions": amounts.get("executions"),
        "cache_hits": amounts.get("cache_hits"),
        "cache_lookups": _plus(amounts.get("cache_hits"), amounts.get("cache_misses")),
    }
    batch = fresh.get("batch_size")
    parts["sequences"] = batch.total if batch is not None else gauges.get("batch_size_mean")
    known = gauges.get("batch_size_mean") is not None
    parts["steps"] = batch.count if batch is not None else (1.0 if known else None)
    triton = fresh.get("triton_batch_size")
    if triton is not None and triton.count:
        parts |= {"executed": triton.total, "executions": triton.count}
    for name, family, counter in (("queue", "queue", "queue_ms"), ("request", "e2e", "request_ms")):
        observed = fresh.get(family)
        parts[f"{name}_ms"] = observed.total if observed is not None else amounts.get(counter)
        parts[f"{name}_n"] = observed.count if observed is not None else amounts.get("base_requests")
    for name in ("kv_use", "kv_hit_rate"):
        told = gauges.get(name)
        parts[f"{name}_told"] = told
        parts[f"{name}_tellers"] = None if told is None else 1.0
    return parts


def _plus(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a + b


# Gauges of several servers of which the highest counts; all others are added.
_HIGHEST = frozenset({"model_load_seconds", "engine_stale", "scrape_seconds"})


def merge(intervals: Sequence[Interval]) -> Interval:
    """Several servers as one: rates, gauges, parts and amounts are added, histograms merged."""
    if len(intervals) == 1:
        return intervals[0]
    amounts = {name: value or 0.0 for name, value in added(each.amounts for each in intervals).items()}
    gauges = added(each.gauges for each in intervals)
    for name in _HIGHEST & set(gauges):
        known = [value for each in intervals if (value := each.gauges.get(name)) is not None]
        gauges[name] = max(known) if known else None
    return Interval(
        rates=added(each.rates for each in intervals),
        gauges=gauges,
        parts=added(each.parts for each in intervals),
        histograms=merged_histograms([each.histograms for each in intervals]),
        fresh=merged_histograms([each.fresh for each in intervals]),
        amounts=amounts,
    )


def merged_histograms(several: Sequence[Mapping[str, Histogram]]) -> dict[str, Histogram]:
    """Histograms by name, added over the mappings that have them."""
    names = {name for each in several for name in each}
    merged = {name: histogram.merge([each[name] for each in several if name in each]) for name in names}
    return {name: value for name, value in merged.items() if value is not None}


def added(amounts: Iterable[Amounts]) -> dict[str, float | None]:
    """Sum by name over what is known; None where nobody knows."""
    sums: dict[str, float | None] = {}
    for each in amounts:
        for name, value in each.items():
            before = sums.get(name)
            sums[name] = before if value is None else value if before is None else before + value
    return sums
