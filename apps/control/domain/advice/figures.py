"""What the rules look at: a deployment's samples over a range of time, and distributions of the same range.

Values that cannot be (negative, not finite, a share above 1.5) count as not told. Nothing is filled in.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from apps.telemetry.domain.vocabulary import BY_NAME

Sample = Mapping[str, float | None]
# Two samples further apart have a gap between them.
LONGEST_STEP = 15.0
# Shares of blocks and the like may stand a little above 1 for a moment; more is a fault of the source.
_HIGHEST_SHARE = 1.5


@dataclass(frozen=True, slots=True)
class Distribution:
    """`counts[i]` observations were at most `bounds[i]` and above the bound before; the last bound may be inf."""

    bounds: tuple[float, ...]
    counts: tuple[float, ...]

    @property
    def total(self) -> float:
        """All observations."""
        return sum(self.counts)

    def share_at(self, sizes: Sequence[float]) -> float | None:
        """Share of observations in the buckets that hold one of these values; None without any."""
        if not self.total:
            return None
        hit, lower = 0.0, -math.inf
        for bound, count in zip(self.bounds, self.counts, strict=True):
            if any(lower < size <= bound for size in sizes):
                hit += count
            lower = bound
        return hit / self.total

    def share_up_to(self, value: float) -> float | None:
        """Share of observations in buckets that end at or below the value."""
        if not self.total:
            return None
        pairs = zip(self.bounds, self.counts, strict=True)
        return sum(count for bound, count in pairs if bound <= value) / self.total

    def highest(self) -> float | None:
        """Upper bound of the highest bucket with an observation; None without any or where it is infinite."""
        filled = [bound for bound, count in zip(self.bounds, self.counts, strict=True) if count > 0]
        return filled[-1] if filled and math.isfinite(filled[-1]) else None

    def commonest(self) -> float | None:
        """Upper bound of the bucket with most observations."""
        if not self.total:
            return None
        return max(zip(self.counts, self.bounds, strict=True))[1]


@dataclass(frozen=True, slots=True)
class Figures:
    """Samples oldest first, from `since` to `until` (epoch seconds), and distributions by name."""

    since: float
    until: float
    samples: tuple[Sample, ...] = ()
    distributions: Mapping[str, Distribution] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """Length of the range."""
        return max(0.0, self.until - self.since)

    def coverage(self) -> float:
        """Share of the range in which samples follow each other without a gap."""
        if not self.samples or not self.seconds:
            return 0.0
        times = [self.since, *(sample["at"] or 0.0 for sample in self.samples), self.until]
        return sum(b - a for a, b in pairwise(times) if 0 <= b - a <= LONGEST_STEP) / self.seconds

    def values(self, key: str, where: Callable[[Sample], bool] | None = None) -> list[float]:
        """Known, possible values of a key, in the samples that fit."""
        found = (_possible(key, sample.get(key)) for sample in self.samples if where is None or where(sample))
        return [value for value in found if value is not None]

    def mean(self, key: str, where: Callable[[Sample], bool] | None = None) -> float | None:
        """Mean of the known values."""
        values = self.values(key, where)
        return statistics.fmean(values) if values else None

    def peak(self, key: str) -> float | None:
        """Highest known value."""
        return max(self.values(key), default=None)

    def share(self, key: str, holds: Callable[[float], bool]) -> float | None:
        """Share of the known values for which it holds."""
        values = self.values(key)
        return sum(1 for value in values if holds(value)) / len(values) if values else None

    def amount(self, key: str) -> float | None:
        """A rate added up over the range: how many in all."""
        mean = self.mean(key)
        return None if mean is None else mean * self.seconds

    def halves(self, key: str) -> tuple[float | None, float | None]:
        """Mean of the first and of the second half of the range."""
        middle = (self.since + self.until) / 2
        first = self.mean(key, lambda sample: (sample["at"] or 0.0) < middle)
        return first, self.mean(key, lambda sample: (sample["at"] or 0.0) >= middle)


def _possible(key: str, value: float | None) -> float | None:
    if value is None or isinstance(value, bool) or not math.isfinite(value) or value < 0:
        return None
    known = BY_NAME.get(key)
    is_share = known is not None and known.kind == "ratio" and known.unit == "1"
    return None if is_share and value > _HIGHEST_SHARE else value
