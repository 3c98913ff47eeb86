"""Cumulative histograms: differences, sums and quantiles.

Percentiles of several servers are never averaged: their histograms are added, and the quantile is read from the sum.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from apps.telemetry.domain.prometheus import Exposition


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
    """The histogram of a family, summed over its label sets; None where it has no samples.

    A bucket written a moment before another may be larger than a later one; counts are made to rise.
    """
    buckets: dict[float, float] = {}
    for sample in exposition.samples.get(f"{family}_bucket", ()):
        matches = all(sample.labels.get(k) == v for k, v in labels.items())
        if not matches or "le" not in sample.labels or math.isnan(sample.value):
            continue
        bound = _bound(sample.labels["le"])
        if bound is not None:
            buckets[bound] = buckets.get(bound, 0.0) + sample.value
    count = exposition.total(f"{family}_count", **labels)
    if math.inf not in buckets:
        if count is None:
            return None
        buckets[math.inf] = count
    bounds = tuple(sorted(buckets))
    return Histogram(
        bounds,
        _rising(buckets[bound] for bound in bounds),
        exposition.total(f"{family}_sum", **labels) or 0.0,
    )


def _bound(text: str) -> float | None:
    try:
        value = float(text)
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
    if old is None or old.bounds != new.bounds:
        return new
    if any(after < before for after, before in zip(new.counts, old.counts, strict=True)):
        return new
    counts = tuple(after - before for after, before in zip(new.counts, old.counts, strict=True))
    return Histogram(new.bounds, _rising(counts), max(0.0, new.total - old.total))


def merge(histograms: Sequence[Histogram]) -> Histogram | None:
    """Sum of histograms; None of none. Where bounds differ only those that all have are kept: exact there."""
    if not histograms:
        return None
    common = set(histograms[0].bounds).intersection(*(h.bounds for h in histograms))
    bounds = tuple(sorted(common))
    counts = [0.0] * len(bounds)
    for histogram in histograms:
        at = dict(zip(histogram.bounds, histogram.counts, strict=True))
        counts = [sum_ + at[bound] for sum_, bound in zip(counts, bounds, strict=True)]
    return Histogram(bounds, tuple(counts), sum(h.total for h in histograms))
