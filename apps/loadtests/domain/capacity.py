"""How many instances a load needs: out of a run's curve of latency over rate, with the interval and what was
guessed.

The answer is where the measured latencies, joined by lines, cross the bound. The interval comes of two ways
of joining the steps, each done again for 1,000 draws of the blocks of each step: the same lines, and (for a
percentile) the share of requests beyond the bound, whose logit is taken to grow evenly with the logarithm of
the rate. A step of a hundred requests knows its 99th percentile by one of them; what the other steps say of
the shares beyond helps there, and where steps lie far apart the lines do. It reaches as far as either says,
and further where blocks are few. `benchmarks/capacity.py` compares it with curves whose truth is known.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from apps.loadtests.domain.compare import METRICS, Sample, figures_of, value_of
from apps.loadtests.domain.student import t_quantile

Floats = npt.NDArray[np.float64]
DRAWS = 1000
# A step of which a larger share got no answer does not bear its rate, however quick the others were.
MOST_LOST = 0.01
# How steep the logit of the share beyond may grow (standard deviation of its slope, before anything is known), and
# how far its height is from the share that is allowed: only what nothing was measured of is kept from running away.
STEEP, HEIGHT = 12.0, 6.0
NEWTON_STEPS = 30


@dataclass(frozen=True, slots=True)
class Point:
    """One step: requests a second that came, what was measured, and which share of them got no answer."""

    rate: float
    sample: Sample
    lost: float = 0.0


@dataclass(frozen=True, slots=True)
class Capacity:
    """The answer. `instances` None: not with any number, by what was measured; `least` and `most` its 95% interval.

    `rate_each` is the highest rate at which one instance keeps the bound, `rate_low` and `rate_high` its interval.
    An end that is None beside an answer is open: no step was light, or heavy, enough to say. `notes` is what is not
    measured but assumed.
    """

    sentence: str
    rate: float
    metric: str
    bound_ms: float
    instances: int | None
    least: int | None
    most: int | None
    rate_each: float | None
    rate_low: float | None
    rate_high: float | None
    extrapolated: bool
    curve: list[tuple[float, float]]
    notes: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """JSON form."""
        return asdict(self)


def plan(
    points: Sequence[Point], rate: float, metric: str, bound: float, instances: int = 1, seed: int = 0
) -> Capacity:
    """Instances for `rate` requests/s with `metric` (a name of METRICS, milliseconds) at most `bound`.

    The curve belongs to `instances` servers together. Raises ValueError for an unknown metric or an empty curve.
    """
    if metric not in METRICS or METRICS[metric].percent == 0:
        raise ValueError(f"{metric} is no latency")
    ordered = sorted(points, key=lambda point: point.rate)
    values = [_value(point, metric) for point in ordered]
    known = [(point, value) for point, value in zip(ordered, values, strict=True) if value is not None]
    if not known:
        raise ValueError("no step of the run has that figure")
    rates = [point.rate / instances for point, _ in known]
    kept = [point for point, _ in known]
    crossed = crossing(rates, [value for _, value in known], bound)
    curve = [
        (round(x, 4), round(value, 2)) for x, (_, value) in zip(rates, known, strict=True) if value < math.inf
    ]
    asked = f"{rate:g} requests/s at {METRICS[metric].title} under {bound:g} ms"
    notes = [*_taken(instances), *_lost(kept, rates)]
    if crossed == 0.0:
        return _unanswered(asked, rate, metric, bound, rates[0], known[0], curve, notes)
    beyond = math.isinf(crossed)
    each = min(crossed, rates[-1])
    low, high = _interval(kept, metric, rates, bound, crossed, seed)
    needed = _instances(rate, each)
    most = _instances(rate, low) if low > 0 else None
    least = _instances(rate, high) if math.isfinite(high) else 1
    if beyond:
        notes.append(
            f"Every step kept the bound, so an instance bears at least {rates[-1]:g} requests/s; more was "
            "not measured, and fewer instances may do."
        )
    elif math.isinf(high):
        notes.append(f"An instance may bear more than {rates[-1]:g} requests/s, the heaviest load measured.")
    if most is None:
        notes.append(
            f"The steps are too short to be sure that an instance bears {rates[0]:g} requests/s, the lightest."
        )
    if len(known) == 1:
        notes.append("The curve has one step: nothing says how latency grows with the rate.")
    text = f"For {asked} you need {needed} instance{'s' if needed != 1 else ''} (95%: {_span(least, most)})"
    text += f", each with at most {each:.2g} requests/s{' (the most measured)' if beyond else ''}."
    return Capacity(
        text,
        rate,
        metric,
        bound,
        needed,
        least,
        most,
        each,
        low if low > 0 else None,
        high if math.isfinite(high) else None,
        beyond,
        curve,
        notes,
    )


def _value(point: Point, metric: str) -> float | None:
    """The figure of a step; infinite where too many of its requests got no answer."""
    return math.inf if point.lost > MOST_LOST else value_of(point.sample, METRICS[metric])


def _taken(instances: int) -> list[str]:
    if instances > 1:
        return [f"The run's load was shared by {instances} instances, each taken to bear its part."]
    return ["Instances are taken to add up: a load over n of them was not measured."]


def _lost(points: Sequence[Point], rates: Sequence[float]) -> list[str]:
    return [
        f"At {rate:g} requests/s {point.lost:.0%} got no answer, so that step counts as one that breaks the bound."
        for point, rate in zip(points, rates, strict=True)
        if point.lost > MOST_LOST
    ]


def _span(least: int, most: int | None) -> str:
    if most is None:
        return f"{least} or more"
    return f"{least} to {most}" if least != most else f"{least}"


def _unanswered(
    asked: str,
    rate: float,
    metric: str,
    bound: float,
    lightest: float,
    first: tuple[Point, float],
    curve: list[tuple[float, float]],
    notes: list[str],
) -> Capacity:
    point, value = first
    gave = f"gave {value:.0f} ms" if value < math.inf else f"left {point.lost:.0%} without an answer"
    return Capacity(
        f"Not answered for {asked}: even {lightest:g} requests/s an instance, the lightest load measured, {gave}.",
        *(rate, metric, bound, None, None, None, None, None, None, False, curve),
        [*notes, "A lighter load was not measured; a step with a lower rate may keep the bound."],
    )


def _instances(rate: float, each: float) -> int:
    return max(1, math.ceil(rate / each - 1e-9)) if each > 0 else 0


def highest_rate(rates: Sequence[float], values: Sequence[float], bound: float) -> float | None:
    """The highest of these rates at which a latency that never falls with the rate keeps the bound; None: not at the
    lowest."""
    found = crossing(rates, values, bound)
    return min(found, float(rates[-1])) if found > 0 else None


def crossing(rates: Sequence[float], values: Sequence[float], bound: float) -> float:
    """The rate at which a latency that never falls with it reaches the bound; 0: below the lowest, infinite: beyond
    the highest.

    The values are first made to rise (a lower latency at a higher rate is noise), then joined by lines in the
    logarithm.
    """
    # From a step that does not bear its rate on none keeps the bound; how quickly it got there nobody knows.
    borne = next((index for index, value in enumerate(values) if math.isinf(value)), len(values))
    limit = math.log(bound)
    rising = _isotonic(np.log(np.asarray(values[:borne], dtype=np.float64)))
    rising += [math.inf] * (len(values) - borne)
    if rising[0] > limit:
        return 0.0
    for index in range(1, len(rates)):
        if rising[index] > limit:
            low, high = rising[index - 1], rising[index]
            part = (limit - low) / (high - low) if high < math.inf else 0.0
            return float(rates[index - 1] + part * (rates[index] - rates[index - 1]))
    return math.inf


def _isotonic(values: np.ndarray[Any, np.dtype[np.float64]]) -> list[float]:
    """Pool adjacent violators."""
    blocks: list[list[float]] = []
    for value in values:
        blocks.append([float(value), 1.0])
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            last, size = blocks.pop()
            total = blocks[-1][1] + size
            blocks[-1] = [(blocks[-1][0] * blocks[-1][1] + last * size) / total, total]
    return [value for value, size in blocks for _ in range(int(size))]


def _interval(
    points: Sequence[Point], metric: str, rates: Sequence[float], bound: float, crossed: float, seed: int
) -> tuple[float, float]:
    """Where the crossing lies with 95%; 0 and infinite are open ends."""
    random = np.random.default_rng(seed)
    weights = [
        random.multinomial(
            point.sample.blocks, [1 / point.sample.blocks] * point.sample.blocks, DRAWS
        ).astype(np.float64)
        for point in points
    ]
    blocks = min(point.sample.blocks for point in points)
    # Few blocks show too little of how blocks differ (Student's t), and drawn again too little by (n - 1)/n.
    wider = t_quantile(0.95, blocks - 1) / 1.96 * math.sqrt(blocks / (blocks - 1)) if blocks > 1 else 1.0
    ways = [_by_lines(points, metric, rates, bound, weights)]
    if METRICS[metric].percent > 0:
        ways.append(_by_shares(points, metric, rates, bound, weights))
    lows, highs = [], []
    for drawn in ways:
        if drawn.size:
            lows.append(float(np.quantile(drawn, 0.025, method="lower")))
            highs.append(float(np.quantile(drawn, 0.975, method="higher")))
    low, high = min([*lows, crossed]), max([*highs, crossed])
    if 0 < low < crossed < math.inf:
        low = crossed * (low / crossed) ** wider
    if crossed < high < math.inf and crossed > 0:
        high = crossed * (high / crossed) ** wider
    return (low if low >= rates[0] else 0.0), (high if high <= rates[-1] else math.inf)


def _by_lines(
    points: Sequence[Point], metric: str, rates: Sequence[float], bound: float, weights: Sequence[Floats]
) -> Floats:
    """The crossing of each curve whose blocks are drawn again."""
    curves = []
    for point, drawn in zip(points, weights, strict=True):
        if point.lost > MOST_LOST:
            curves.append(np.full(DRAWS, np.inf))
            continue
        found = figures_of(point.sample, METRICS[metric], drawn)
        curves.append(found if found is not None else np.full(DRAWS, np.nan))
    rows = [row for row in np.array(curves).T if not np.isnan(row).any() and (row > 0).all()]
    return np.array([crossing(rates, list(row), bound) for row in rows], dtype=np.float64)


def _by_shares(
    points: Sequence[Point], metric: str, rates: Sequence[float], bound: float, weights: Sequence[Floats]
) -> Floats:
    """Where the share beyond the bound reaches the one that is allowed, for each draw of the blocks.

    logit(share) = a + b x log(rate), by the likelihood of the counts with wide priors around no slope and the
    allowed share; Newton's steps for all draws at once.
    """
    allowed = 1 - METRICS[metric].percent / 100
    counts, beyond = [], []
    for point, drawn in zip(points, weights, strict=True):
        values, block = point.sample.values[METRICS[metric].series]
        of_block = np.bincount(block, minlength=point.sample.blocks).astype(np.float64)
        late = values > (0.0 if point.lost > MOST_LOST else bound)
        late_block = np.bincount(block, weights=late, minlength=point.sample.blocks)
        counts.append(drawn @ of_block)
        beyond.append(drawn @ late_block)
    n, k = np.array(counts).T, np.array(beyond).T
    x = np.log(np.asarray(rates, dtype=np.float64))
    middle = float(x.mean())
    x = x - middle
    level = math.log(allowed / (1 - allowed))
    a, b = np.full(len(n), level), np.full(len(n), 1.0)
    for _step in range(NEWTON_STEPS):
        share = 1 / (1 + np.exp(-np.clip(a[:, None] + b[:, None] * x, -30.0, 30.0)))
        rest, spread = k - n * share, n * share * (1 - share)
        ga = rest.sum(1) - (a - level) / HEIGHT**2
        gb = (rest * x).sum(1) - b / STEEP**2
        haa = spread.sum(1) + 1 / HEIGHT**2
        hab = (spread * x).sum(1)
        hbb = (spread * x**2).sum(1) + 1 / STEEP**2
        least = haa * hbb - hab**2
        a = a + np.clip((hbb * ga - hab * gb) / least, -2.0, 2.0)
        b = b + np.clip((haa * gb - hab * ga) / least, -2.0, 2.0)
    rising = b > 0.05
    found = np.exp(np.clip((level - a) / np.where(rising, b, 1.0) + middle, -20.0, 20.0))
    found = np.where(rising, found, np.where(a > level, 0.0, np.inf))
    found = np.where(found < rates[0], 0.0, found)
    return np.where(found > rates[-1], np.inf, found)
