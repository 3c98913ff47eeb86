"""Cumulative histograms: differences, sums and quantiles.

Percentiles of several servers are never averaged: their histograms are added, and the quantile is read from the sum.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

from apps.telemetry.domain.prometheus import Exposition, Sample


@dataclass(frozen=True, slots=True)
class Histogram:
    """`counts[i]` observations were at most `bounds[i]`; the last bound is infinity, so the last count is all.

    `total` is the sum of the observations, in the metric's own unit.
    """

    bounds: tuple[float, ...]
    counts: tuple[float, ...]
    total: float

    @property
    def count(self) -> float:
        """Number of observations."""
        return self.counts[-1]

    def mean(self) -> float | None:
        """Mean of the observations; None without any."""
        return self.total / self.count if self.count > 0 else None

    def quantile(self, q: float) -> float | None:
        """Estimate of the q-quantile (0..1) by Prometheus' rule; None without observations.

        Linear inside the bucket that holds the rank; the first bucket begins at 0 where its bound is above 0. A rank
        in the infinite bucket gives the highest finite bound: the truth is at least that. None where the histogram
        has no finite bucket.
        """
        if self.count <= 0 or not math.isfinite(self.count) or len(self.bounds) < 2:
            return None
        rank = q * self.count
        index = next(i for i, count in enumerate(self.counts) if count >= rank)
        # The first bucket that reaches the rank may be an empty one before any observation (rank 0).
        upper = self.bounds[index]
        if math.isinf(upper):
            return self.bounds[-2]
        below = self.counts[index - 1] if index else 0.0
        lower = self.bounds[index - 1] if index else min(0.0, upper)
        inside = self.counts[index] - below
        return upper if inside <= 0 else lower + (upper - lower) * (rank - below) / inside


def read(exposition: Exposition, family: str, **labels: str) -> Histogram | None:
    """The histogram of a family, summed over its label sets; None where it has no samples."""
    return read_by(exposition, family, lambda _labels: "", 1.0, **labels).get("")


def read_by(
    exposition: Exposition,
    family: str,
    key_of: Callable[[Mapping[str, str]], str],
    scale: float = 1.0,
    **wanted: str,
) -> dict[str, Histogram]:
    """The histograms of a family, summed by a key of their labels; bounds and sums are multiplied by `scale`.

    A bucket written a moment before another may be larger than a later one; counts are made to rise. Without the
    infinite bucket the _count stands for it.
    """
    buckets: dict[str, dict[float, float]] = {}
    for sample in _those(exposition, f"{family}_bucket", wanted):
        bound = _bound(sample.labels.get("le"))
        if bound is not None:
            mine = buckets.setdefault(key_of(sample.labels), {})
            mine[bound] = mine.get(bound, 0.0) + sample.value
    counts = _summed(_those(exposition, f"{family}_count", wanted), key_of)
    sums = _summed(_those(exposition, f"{family}_sum", wanted), key_of)
    found = {}
    for key in {*buckets, *counts}:
        at = buckets.get(key, {})
        if math.inf not in at:
            if key not in counts:
                continue
            at[math.inf] = counts[key]
        bounds = tuple(sorted(at))
        found[key] = Histogram(
            tuple(bound * scale for bound in bounds),
            _rising(at[bound] for bound in bounds),
            sums.get(key, 0.0) * scale,
        )
    return found


def _those(exposition: Exposition, name: str, wanted: Mapping[str, str]) -> Iterable[Sample]:
    for sample in exposition.samples.get(name, ()):
        if sample.value == sample.value and all(sample.labels.get(k) == v for k, v in wanted.items()):
            yield sample


def _summed(samples: Iterable[Sample], key_of: Callable[[Mapping[str, str]], str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for sample in samples:
        key = key_of(sample.labels)
        found[key] = found.get(key, 0.0) + sample.value
    return found


@lru_cache(maxsize=4096)
def _bound(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return None if math.isnan(value) else value


def _rising(counts: Iterable[float]) -> tuple[float, ...]:
    highest = 0.0
    rising = []
    for count in counts:
        highest = max(highest, count)
        rising.append(highest)
    return tuple(rising)


def delta(new: Histogram, old: Histogram | None) -> Histogram:
    """Observations between two scrapes. After a restart (fewer than before, or other buckets) all are new."""
    if old is None or old.bounds != new.bounds or new.count < old.count:
        return new
    if any(after < before for after, before in zip(new.counts, old.counts, strict=True)):
        return new
    counts = tuple(after - before for after, before in zip(new.counts, old.counts, strict=True))
    return Histogram(new.bounds, _rising(counts), max(0.0, new.total - old.total))


def merge(histograms: Sequence[Histogram]) -> Histogram | None:
    """Sum of histograms; None of none. Where bounds differ only those that all have are kept: exact there."""
    if not histograms:
        return None
    first = histograms[0].bounds
    if all(h.bounds is first or h.bounds == first for h in histograms):
        counts = histograms[0].counts if len(histograms) == 1 else _columns(histograms)
        return Histogram(first, counts, sum(h.total for h in histograms))
    common = set(histograms[0].bounds).intersection(*(h.bounds for h in histograms))
    bounds = tuple(sorted(common))
    sums = [0.0] * len(bounds)
    for histogram in histograms:
        at = dict(zip(histogram.bounds, histogram.counts, strict=True))
        sums = [sum_ + at[bound] for sum_, bound in zip(sums, bounds, strict=True)]
    return Histogram(bounds, tuple(sums), sum(h.total for h in histograms))


def _columns(histograms: Sequence[Histogram]) -> tuple[float, ...]:
    return tuple(map(sum, zip(*(h.counts for h in histograms), strict=True)))


def of_values(values: Mapping[float, float], bounds: Sequence[float]) -> Histogram:
    """The histogram of exact values, each with its number of observations, in buckets up to `bounds` (ascending)."""
    counts = [0.0] * (len(bounds) + 1)
    for value, number in values.items():
        counts[bisect_left(bounds, value)] += number
    total = sum(value * number for value, number in values.items())
    return Histogram((*bounds, math.inf), tuple(accumulate(counts)), total)


def align(histogram: Histogram, bounds: Sequence[float]) -> Histogram:
    """The same observations with fewer bounds, all of which it has."""
    at = dict(zip(histogram.bounds, histogram.counts, strict=True))
    return Histogram(tuple(bounds), tuple(at[bound] for bound in bounds), histogram.total)
