"""Configurations against each other: how large a difference is, and how sure.

The difference is the mean over the repeats of the logarithm of the ratio, repeat by repeat where both sides have as
many (what drifts hits both). With three repeats or more it is judged by Student's t over the repeats: whatever slows
requests down together, or one run as a whole, is in the spread of the repeats, so the interval holds 95% however a
run's requests hang together. Sides with unequal numbers of repeats are judged by Welch's t.

Fewer repeats have too little spread to judge by. Then a run's measured time is cut into blocks, blocks are drawn
again with replacement (1,000 times), every figure is worked out anew, and that noise counts, or the spread where it
is larger; what changes from run to run is then not in the interval, which a note says. The primary metric is judged
at 5% (Holm's correction over the arms where there are several), all others together are corrected by Holm's method.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from apps.loadtests.domain.metrics import (
    Mode,
    Slo,
    Window,
    arrived_tokens,
    counted,
    good_requests,
    request_series,
)
from apps.loadtests.domain.records import OK, Columns, Floats
from apps.loadtests.domain.student import chi_squared_above, t_quantile, t_two_sided

DRAWS = 1000
LEVEL = 0.05
# Repeats that differ by more than their own noise explains are marked.
SPREAD_LEVEL = 0.1
# With fewer repeats than this Student's t has next to nothing to judge by (12.7 for two).
FEWEST_REPEATS = 3
FEWEST_BLOCKS, MOST_BLOCKS = 6, 24
# Values around a quantile that are looked at, and how far around, as a share of all.
GRID, GRID_REACH = 512, 0.2
# "No worse": the whole interval lies on the good side of this.
NO_WORSE = 0.05


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure that can be compared. `more`: more of it is better. `percent`: of a percentile, -1 of a mean, 0
    of a rate."""

    title: str
    unit: str
    more: bool
    series: str
    percent: int

    @property
    def phrase(self) -> str:
        """How a sentence names it."""
        if self.percent == 0:
            return self.unit
        return self.title if self.title.startswith(("TTFT", "TPOT")) else self.title.lower()


METRICS: dict[str, Metric] = {
    "output_tokens_per_second": Metric("Output tokens", "tokens/s", True, "tokens", 0),
    "requests_per_second": Metric("Requests", "requests/s", True, "requests", 0),
    "goodput_per_second": Metric("Goodput", "good requests/s", True, "good", 0),
    "ttft_mean_ms": Metric("TTFT mean", "ms", False, "ttft", -1),
    "ttft_p50_ms": Metric("TTFT p50", "ms", False, "ttft", 50),
    "ttft_p99_ms": Metric("TTFT p99", "ms", False, "ttft", 99),
    "tpot_mean_ms": Metric("TPOT mean", "ms", False, "tpot", -1),
    "tpot_p99_ms": Metric("TPOT p99", "ms", False, "tpot", 99),
    "latency_mean_ms": Metric("Latency mean", "ms", False, "latency", -1),
    "latency_p50_ms": Metric("Latency p50", "ms", False, "latency", 50),
    "latency_p99_ms": Metric("Latency p99", "ms", False, "latency", 99),
}
DEFAULT_PRIMARY = "output_tokens_per_second"
# What a verdict mentions besides the primary metric.
MENTIONED = ("output_tokens_per_second", "ttft_p99_ms", "latency_mean_ms", "latency_p99_ms")


@dataclass(frozen=True, slots=True)
class Sample:
    """What comparing needs of one run: sums by block of its measured time, values of each request with its block."""

    seconds: float
    blocks: int
    rates: Mapping[str, Floats]
    values: Mapping[str, tuple[Floats, npt.NDArray[np.int64]]]


def sample(data: Columns, window: Window, mode: Mode, slo: Slo | None = None) -> Sample:
    """A run's sample out of its records."""
    mine = counted(data, window, mode)
    good = mine.where((mine.result == OK) & np.isfinite(mine.first))
    series = request_series(good)
    blocks = _blocks(window.seconds, series["latency"])
    rates: dict[str, Floats] = {}
    at = good.due if mode == "open" else good.ended
    of_request = _block(at, window, blocks)
    rates["requests"] = np.bincount(of_request, minlength=blocks).astype(np.float64)
    arrived = arrived_tokens(data)
    if arrived is not None:
        moments, tokens = arrived
        inside = (moments >= window.begin) & (moments < window.end)
        rates["tokens"] = _sums(_block(moments[inside], window, blocks), tokens[inside], blocks)
    if slo is not None and slo.given:
        rates["good"] = _sums(of_request, good_requests(good, slo).astype(np.float64), blocks)
    values = {}
    for name in ("ttft", "tpot", "latency"):
        known = np.isfinite(series[name])
        if known.any():
            order = np.argsort(series[name][known], kind="stable")
            values[name] = (series[name][known][order], of_request[known][order])
    return Sample(window.seconds, blocks, rates, values)


def _sums(block: npt.NDArray[np.int64], weights: Floats, blocks: int) -> Floats:
    return np.bincount(block, weights=weights, minlength=blocks).astype(np.float64)


def _blocks(seconds: float, latency: Floats) -> int:
    """Blocks about twice as long as an answer takes, so that an answer's tokens seldom fall into different ones."""
    usual = float(np.median(latency)) / 1000 if latency.size else 1.0
    return int(min(MOST_BLOCKS, max(FEWEST_BLOCKS, seconds / max(2 * usual, 0.05))))


def _block(at: Floats, window: Window, blocks: int) -> npt.NDArray[np.int64]:
    part = ((at - window.begin) / window.seconds * blocks).astype(np.int64)
    return np.clip(part, 0, blocks - 1)


def value_of(run: Sample, metric: Metric) -> float | None:
    """The figure of one run; None where it has none."""
    found = figures_of(run, metric, np.ones((1, run.blocks)))
    return float(found[0]) if found is not None and math.isfinite(found[0]) and found[0] > 0 else None


def figures_of(run: Sample, metric: Metric, weights: Floats) -> Floats | None:
    """The figure for each row of block weights; None where the run does not have it."""
    if metric.percent == 0:
        sums = run.rates.get(metric.series)
        return None if sums is None else weights @ sums / (run.seconds * weights.sum(axis=1) / run.blocks)
    found = run.values.get(metric.series)
    if found is None:
        return None
    values, block = found
    counts = np.bincount(block, minlength=run.blocks).astype(np.float64)
    total = weights @ counts
    if metric.percent < 0:
        sums = _sums(block, values, run.blocks)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(total > 0, weights @ sums / np.where(total > 0, total, 1), np.nan)
    return _quantiles(values, block, weights, total, metric.percent / 100)


def _quantiles(
    values: Floats, block: npt.NDArray[np.int64], weights: Floats, total: Floats, share: float
) -> Floats:
    """The least of the sorted values that `share` of the weight does not exceed, for each row of weights.

    Of many values only some around the quantile are looked at, so time and memory do not grow with the requests.
    """
    ranks = np.arange(values.size)
    if values.size > GRID:
        low, high = ((share + side) * values.size for side in (-GRID_REACH, GRID_REACH))
        inner = np.linspace(max(0.0, low), min(values.size - 1.0, high), GRID).astype(np.int64)
        ranks = np.unique(np.append(inner, values.size - 1))
    below = np.array(
        [
            np.searchsorted(np.flatnonzero(block == each), ranks, side="right")
            for each in range(weights.shape[1])
        ]
    )
    reached = weights @ below >= (share * total)[:, None] - 1e-9
    return np.where(total > 0, values[ranks[reached.argmax(axis=1)]], np.nan)


@dataclass(frozen=True, slots=True)
class Difference:
    """One metric of an arm against the baseline. `ratio` 1.18 is 18% more; `low` and `high` are its 95% interval.

    `p_adjusted` is corrected for being one of many, `different` judges by it. `better` None: not different.
    `spread`: the repeats differ by more than their own noise explains.
    """

    metric: str
    baseline: float
    value: float
    ratio: float
    low: float
    high: float
    p: float
    p_adjusted: float
    different: bool
    better: bool | None
    spread: bool

    @property
    def no_worse(self) -> bool:
        """Whether the whole interval is less than 5% on the bad side."""
        return self.low >= 1 - NO_WORSE if METRICS[self.metric].more else self.high <= 1 + NO_WORSE


@dataclass(frozen=True, slots=True)
class Arm:
    """One configuration with its repeats, in order."""

    label: str
    runs: Sequence[Sample]


@dataclass(frozen=True, slots=True)
class ArmVerdict:
    """An arm against the baseline: its differences and the verdict in words."""

    label: str
    differences: dict[str, Difference]
    verdict: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """Every arm against the first. `verdict` is the sentence for all of them."""

    primary: str
    baseline: str
    paired: bool
    arms: tuple[ArmVerdict, ...]
    verdict: str
    notes: tuple[str, ...] = field(default_factory=tuple)

    def as_dict(self) -> dict[str, Any]:
        """JSON form."""
        return asdict(self)


def compare(
    arms: Sequence[Arm],
    primary: str = DEFAULT_PRIMARY,
    seed: int = 0,
    metrics: Sequence[str] = tuple(METRICS),
    draws: int = DRAWS,
) -> Comparison:
    """Compare every arm with the first one; `draws` of blocks tell a run's own noise.

    Raises ValueError where there are fewer than two arms with runs.
    """
    if len(arms) < 2 or any(not arm.runs for arm in arms):
        raise ValueError("Comparing needs two configurations with at least one run each.")
    drawn = np.random.default_rng(seed)
    weights = [
        [
            drawn.multinomial(run.blocks, [1 / run.blocks] * run.blocks, draws).astype(np.float64)
            for run in arm.runs
        ]
        for arm in arms
    ]
    names = [primary, *(name for name in metrics if name != primary)]
    raw: list[dict[str, _Raw]] = [
        {
            name: found
            for name in names
            if (found := _raw(arms[0], weights[0], arm, weights[index], METRICS[name])) is not None
        }
        for index, arm in enumerate(arms)
        if index
    ]
    first = _holm({(index, primary): found[primary].p for index, found in enumerate(raw) if primary in found})
    others = _holm(
        {
            (index, name): item.p
            for index, found in enumerate(raw)
            for name, item in found.items()
            if name != primary
        }
    )
    adjusted = {**first, **others}
    judged = tuple(
        _judged(arm.label, raw[index], {name: adjusted[index, name] for name in raw[index]}, primary)
        for index, arm in enumerate(arms[1:])
    )
    text = (
        judged[0].verdict if len(judged) == 1 else " ".join(f"{arm.label}: {arm.verdict}." for arm in judged)
    )
    paired = all(len(arm.runs) == len(arms[0].runs) for arm in arms)
    return Comparison(primary, arms[0].label, paired, judged, text, tuple(_notes(arms, paired)))


@dataclass(frozen=True, slots=True)
class _Raw:
    baseline: float
    value: float
    difference: float
    error: float
    df: float
    spread: bool

    @property
    def p(self) -> float:
        return (
            t_two_sided(self.difference / self.error, self.df)
            if self.error > 0
            else float(self.difference == 0)
        )


def _raw(
    one: Arm, one_weights: list[Floats], other: Arm, other_weights: list[Floats], metric: Metric
) -> _Raw | None:
    before = [_logs(run, metric, drawn) for run, drawn in zip(one.runs, one_weights, strict=True)]
    after = [_logs(run, metric, drawn) for run, drawn in zip(other.runs, other_weights, strict=True)]
    known_before = [item for item in before if item is not None]
    known_after = [item for item in after if item is not None]
    if len(known_before) < len(before) or len(known_after) < len(after):
        return None
    x = np.array([value for value, _ in known_before])
    y = np.array([value for value, _ in known_after])
    vx = np.array([variance for _, variance in known_before])
    vy = np.array([variance for _, variance in known_after])
    blocks = float(sum(run.blocks - 1 for run in (*one.runs, *other.runs)))
    pairs = x.size == y.size
    judged = _judge([y - x] if pairs else [x, y], [vx + vy] if pairs else [vx, vy], blocks)
    return _Raw(
        baseline=float(np.exp(x.mean())),
        value=float(np.exp(y.mean())),
        difference=float(y.mean() - x.mean()),
        error=judged[0],
        df=judged[1],
        spread=judged[2],
    )


def _judge(groups: Sequence[Floats], noise: Sequence[Floats], blocks: float) -> tuple[float, float, bool]:
    """(standard error of the sum of the groups' means, its degrees of freedom, whether the repeats differ by more
    than their own noise).

    One group is that of the pairs. `noise` are the variances that drawn blocks show, `blocks` their degrees of
    freedom.
    """
    own = sum(float(variance.sum()) / variance.size**2 for variance in noise)
    parts = [(float(group.var(ddof=1)) / group.size, group.size) for group in groups if group.size > 1]
    between = sum(part for part, _ in parts)
    marked = _differ(groups, noise)
    if len(parts) == len(groups) and min(size for _, size in parts) >= FEWEST_REPEATS and between > 0:
        # Welch and Satterthwaite; one group's are its size less one.
        df = between**2 / sum(part**2 / (size - 1) for part, size in parts)
        return math.sqrt(between), df, marked
    return math.sqrt(max(own, between)), blocks, marked


def _differ(groups: Sequence[Floats], noise: Sequence[Floats]) -> bool:
    """Cochran's Q of the repeats against their own noise."""
    df = sum(group.size - 1 for group in groups)
    # One of them may have no noise at all, as a figure that never varies.
    q = sum(
        float((((group - group.mean()) ** 2) / np.maximum(variance, 1e-12)).sum())
        for group, variance in zip(groups, noise, strict=True)
    )
    return df >= 1 and chi_squared_above(q, df) < SPREAD_LEVEL


def _logs(run: Sample, metric: Metric, drawn: Floats) -> tuple[float, float] | None:
    """(logarithm of the figure, variance of that logarithm); None where the run does not have the figure."""
    value = value_of(run, metric)
    found = figures_of(run, metric, drawn)
    if value is None or found is None:
        return None
    known = found[np.isfinite(found) & (found > 0)]
    if known.size < drawn.shape[0] // 2:
        return None
    # Blocks are drawn from few: their spread is too small by (n - 1)/n.
    return math.log(value), float(np.log(known).var() * run.blocks / (run.blocks - 1))


def _holm(values: dict[tuple[int, str], float]) -> dict[tuple[int, str], float]:
    """Holm's step-down adjusted p-values."""
    found: dict[tuple[int, str], float] = {}
    highest = 0.0
    for rank, (key, p) in enumerate(sorted(values.items(), key=lambda item: item[1])):
        highest = max(highest, min(1.0, p * (len(values) - rank)))
        found[key] = highest
    return found


def _judged(label: str, raw: dict[str, _Raw], adjusted: dict[str, float], primary: str) -> ArmVerdict:
    differences = {}
    for name, item in raw.items():
        reach = t_quantile(1 - LEVEL, item.df) * item.error
        different = adjusted[name] < LEVEL
        grew = item.difference > 0
        differences[name] = Difference(
            metric=name,
            baseline=item.baseline,
            value=item.value,
            ratio=math.exp(item.difference),
            low=math.exp(max(-50.0, item.difference - reach)),
            high=math.exp(min(50.0, item.difference + reach)),
            p=item.p,
            p_adjusted=adjusted[name],
            different=different,
            better=(grew == METRICS[name].more) if different else None,
            spread=item.spread,
        )
    return ArmVerdict(label, differences, sentence(differences, primary))


def sentence(differences: Mapping[str, Difference], primary: str) -> str:
    """The verdict in words: the primary metric with its interval, then what else got better, worse or no worse."""
    parts = []
    if primary in differences:
        parts.append(_said(differences[primary], first=True))
    else:
        parts.append(f"{METRICS[primary].title} was not measured in every run")
    for name in MENTIONED:
        if name != primary and name in differences:
            parts.append(_said(differences[name], first=False))
    return "; ".join(parts)


def _said(found: Difference, first: bool) -> str:
    metric = METRICS[found.metric]
    interval = f"({percent(found.low)} to {percent(found.high)})"
    if first or metric.percent == 0:
        if found.different:
            return f"{signed(found.ratio)} {metric.phrase} {interval}"
        return f"no difference in {metric.phrase} shown {interval}"
    if found.different:
        return f"{metric.phrase} {abs(found.ratio - 1):.0%} {'higher' if found.ratio > 1 else 'lower'} {interval}"
    if found.no_worse:
        return f"{metric.phrase} no worse"
    return f"{metric.phrase} undecided {interval}"


def percent(ratio: float) -> str:
    """A ratio as a change in per cent, without its sign's plus: 1.18 is 18."""
    text = f"{(ratio - 1) * 100:.0f}"
    return "0" if text == "-0" else text.replace("-", "\u2212")


def signed(ratio: float) -> str:
    """A ratio as a change in per cent with its sign: 1.18 is +18%."""
    text = f"{(ratio - 1) * 100:+.0f}%"
    return text.replace("-", "\u2212")


def _notes(arms: Sequence[Arm], paired: bool) -> list[str]:
    notes = []
    if not paired:
        notes.append(
            "The configurations have different numbers of runs, so they are not compared repeat by repeat."
        )
    if any(len(arm.runs) < FEWEST_REPEATS for arm in arms):
        notes.append(
            "Fewer than three runs of a configuration say too little of what changes from run to run: the intervals "
            "are those of each run's own noise. Three interleaved repeats do better, six find a difference of 10%."
        )
    return notes
