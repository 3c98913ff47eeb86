"""A step of time for one object: what its samples and counters add up to, and how steps are joined to longer ones.

The same figures whichever way they are joined: sums and numbers of seconds for what is averaged, amounts and parts of
ratios added, histograms added and only then a percentile read, the highest of flags.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from typing import Any

from apps.telemetry.domain import histogram
from apps.telemetry.domain.derive import QUANTILES, RATIOS, Interval, Sample
from apps.telemetry.domain.histogram import Histogram
from apps.telemetry.domain.vocabulary import BY_NAME, NAMES

_FROM_HISTOGRAMS = {key: (name, q) for key, name, q in QUANTILES}
_MEANS = frozenset(name for name in NAMES if BY_NAME[name].kind in ("gauge", "rate", "ratio", "mean"))
_HIGHEST = frozenset(name for name in NAMES if BY_NAME[name].kind in ("flag", "quantile"))
_AMOUNTS = frozenset(name for name in NAMES if BY_NAME[name].kind == "amount")


@dataclass(slots=True)
class Bucket:
    """One step. `samples`: how many seconds (or scrapes) it holds.

    `sums`: by key, sum and number of known values; `highest`: of flags and of percentiles without a histogram;
    `amounts`: growth of counters, and of keys of kind amount; `parts`: of ratios; `histograms`: observations.
    """

    samples: int = 0
    sums: dict[str, tuple[float, int]] = field(default_factory=dict)
    highest: dict[str, float] = field(default_factory=dict)
    amounts: dict[str, float] = field(default_factory=dict)
    parts: dict[str, float] = field(default_factory=dict)
    histograms: dict[str, Histogram] = field(default_factory=dict)

    def add_sample(self, sample: Mapping[str, float | None], weight: int = 1) -> None:
        """Take in one second's sample."""
        self.samples += weight
        for name, value in sample.items():
            if value is None:
                continue
            if name in _MEANS:
                total, known = self.sums.get(name, (0.0, 0))
                self.sums[name] = (total + value * weight, known + weight)
            elif name in _HIGHEST:
                self.highest[name] = max(value, self.highest.get(name, value))
            elif name in _AMOUNTS:
                self.amounts[name] = self.amounts.get(name, 0.0) + value

    def add_interval(self, happened: Interval) -> None:
        """Take in what the counters and histograms of one server did; each interval exactly once."""
        self.join(of_intervals([happened]))

    def join(self, other: Bucket, with_histograms: bool = True) -> None:
        """Add another step of the same object (a shorter one inside this, or its other half)."""
        self.samples += other.samples
        for name, (total, known) in other.sums.items():
            mine = self.sums.get(name, (0.0, 0))
            self.sums[name] = (mine[0] + total, mine[1] + known)
        for name, value in other.highest.items():
            self.highest[name] = max(value, self.highest.get(name, value))
        _add(self.amounts, other.amounts)
        _add(self.parts, other.parts)
        if with_histograms:
            self._add_histograms(other.histograms)

    def _add_histograms(self, found: Mapping[str, Histogram]) -> None:
        for name, value in found.items():
            if value.count > 0:
                mine = self.histograms.get(name)
                merged = value if mine is None else histogram.merge([mine, value])
                if merged is not None:
                    self.histograms[name] = merged

    def value(self, name: str) -> float | None:
        """Value of one key of the vocabulary over this step; None where nothing told it."""
        if name in _FROM_HISTOGRAMS:
            kind, q = _FROM_HISTOGRAMS[name]
            found = self.histograms.get(kind)
            return found.quantile(q) if found is not None else self.highest.get(name)
        if name in RATIOS:
            part, whole = RATIOS[name]
            if self.parts.get(whole):
                return self.parts.get(part, 0.0) / self.parts[whole]
        if name in _AMOUNTS:
            return self.amounts.get(name)
        if name in _HIGHEST:
            return self.highest.get(name)
        total, known = self.sums.get(name, (0.0, 0))
        return total / known if known else None

    def point(self, at: float, names: Sequence[str] = NAMES) -> Sample:
        """One point of a chart that begins at epoch second `at`."""
        point: Sample = {"at": at}
        for name in names:
            value = self.value(name)
            point[name] = value if value is None else round(value, 6)
        return point


def _add(sums: dict[str, float], values: Mapping[str, float]) -> None:
    for name, value in values.items():
        sums[name] = sums.get(name, 0.0) + value


def joined(buckets: Iterable[Bucket]) -> Bucket:
    """All of them as one, not to be changed. Histograms are added at once, which is much quicker than one by one."""
    buckets = list(buckets)
    if len(buckets) == 1:
        return buckets[0]
    found = Bucket()
    seen: dict[str, list[Histogram]] = {}
    for bucket in buckets:
        found.join(bucket, with_histograms=False)
        for name, value in bucket.histograms.items():
            seen.setdefault(name, []).append(value)
    for name, values in seen.items():
        merged = histogram.merge(values)
        if merged is not None:
            found.histograms[name] = merged
    return found


def pack(bucket: Bucket) -> bytes:
    """A bucket as it is stored: compressed JSON. Sums that all samples have part in carry no number of their own."""
    document: dict[str, Any] = {
        "n": bucket.samples,
        "s": {
            name: _short(total) if known == bucket.samples else [_short(total), known]
            for name, (total, known) in bucket.sums.items()
        },
        "m": {name: _short(value) for name, value in bucket.highest.items()},
        "a": {name: _short(value, 12) for name, value in bucket.amounts.items()},
        "p": {name: _short(value, 12) for name, value in bucket.parts.items()},
        "h": {name: _pack_histogram(value) for name, value in bucket.histograms.items()},
    }
    text = json.dumps({key: value for key, value in document.items() if value}, separators=(",", ":"))
    return zlib.compress(text.encode(), 1)


def unpack(
    data: bytes,
    histograms: Collection[str] | None = None,
    names: Collection[str] | None = None,
    loads: Callable[[bytes], Any] = json.loads,
) -> Bucket:
    """A stored bucket, with all that it holds or what is named; raises ValueError where the bytes are none.

    A chart of a year reads a thousand of them: `loads` may be a quicker reader of JSON.
    """
    try:
        return of_document(loads(zlib.decompress(data)), histograms, names)
    except (zlib.error, KeyError, TypeError, IndexError, AttributeError) as error:
        raise ValueError(f"not a stored step: {error}") from error


def needed(names: Iterable[str]) -> frozenset[str]:
    """Histograms that some keys are read from."""
    return frozenset(_FROM_HISTOGRAMS[name][0] for name in names if name in _FROM_HISTOGRAMS)


def of_document(
    document: Mapping[str, Any],
    histograms: Collection[str] | None = None,
    names: Collection[str] | None = None,
) -> Bucket:
    """A bucket of the document that `pack` writes; of sums only those that `names` are read from, where given."""
    samples = int(document.get("n", 0))
    told = document.get("s", {})
    sums = {
        name: (value[0], value[1]) if isinstance(value, list) else (value, samples)
        for name, value in (told.items() if names is None else _named(told, names))
    }
    return Bucket(
        samples,
        sums,
        dict(document.get("m", {})),
        dict(document.get("a", {})),
        dict(document.get("p", {})),
        {
            name: _unpack_histogram(value)
            for name, value in document.get("h", {}).items()
            if histograms is None or name in histograms
        },
    )


def _named(values: Mapping[str, Any], names: Collection[str]) -> list[tuple[str, Any]]:
    return [(name, values[name]) for name in names if name in values]


def increments(bucket: Bucket) -> dict[str, Any]:
    """What a bucket of intervals adds besides a sample (amounts, parts, histograms), as a document; may be empty."""
    document = {
        "a": {name: _short(value, 12) for name, value in bucket.amounts.items() if value},
        "p": {name: _short(value, 12) for name, value in bucket.parts.items()},
        "h": {name: _pack_histogram(value) for name, value in bucket.histograms.items()},
    }
    return {key: value for key, value in document.items() if value}


def of_intervals(happened: Sequence[Interval]) -> Bucket:
    """The growth of several intervals, without samples."""
    bucket = Bucket()
    seen: dict[str, list[Histogram]] = {}
    for each in happened:
        _add(bucket.amounts, each.amounts)
        _add(bucket.parts, {name: value for name, value in each.parts.items() if value is not None})
        for name, value in each.fresh.items():
            if value.count > 0:
                seen.setdefault(name, []).append(value)
    for name, values in seen.items():
        merged = histogram.merge(values)
        if merged is not None:
            bucket.histograms[name] = merged
    return bucket


def _short(value: float, digits: int = 7) -> float:
    if value == int(value) and abs(value) < 1e15:
        return int(value)
    return float(f"{value:.{digits}g}")


def _pack_histogram(value: Histogram) -> list[Any]:
    """Bounds without the infinite one, [bucket, count, bucket, count…] of those that hold any, sum."""
    filled: list[float] = []
    before = 0.0
    for index, count in enumerate(value.counts):
        if count > before:
            filled += [index, _short(count - before, 12)]
        before = count
    return [[_short(bound, 9) for bound in value.bounds[:-1]], filled, _short(value.total, 12)]


def _unpack_histogram(value: Sequence[Any]) -> Histogram:
    bounds = _bounds(tuple(value[0]))
    counts = [0.0] * len(bounds)
    filled = value[1]
    for place in range(0, len(filled), 2):
        counts[filled[place]] = float(filled[place + 1])
    return Histogram(bounds, tuple(accumulate(counts)), float(value[2]))


@lru_cache(maxsize=256)
def _bounds(told: tuple[float, ...]) -> tuple[float, ...]:
    """Bounds with the infinite one. Equal ones are one object, so that adding need not compare them."""
    return (*map(float, told), math.inf)
