"""How many instances a load needs: out of a run's curve of latency over rate, with the interval and what was
guessed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from apps.loadtests.domain.compare import METRICS, Sample, figures_of, value_of

DRAWS = 1000


@dataclass(frozen=True, slots=True)
class Point:
    """One step: requests a second that came, and what was measured."""

    rate: float
    sample: Sample


@dataclass(frozen=True, slots=True)
class Capacity:
    """The answer. `instances` None: not with any number, by what was measured; `least` and `most` its 95% interval.

    `rate_each` is the highest rate at which one instance keeps the bound, `notes` what is not measured but assumed.
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
    values = [value_of(point.sample, METRICS[metric]) for point in ordered]
    known = [(point, value) for point, value in zip(ordered, values, strict=True) if value is not None]
    if not known:
        raise ValueError("no step of the run has that figure")
    rates = [point.rate / instances for point, _ in known]
    each = highest_rate(rates, [value for _, value in known], bound)
    drawn = _drawn([point for point, _ in known], metric, rates, bound, seed)
    title = METRICS[metric].title
    asked = f"{rate:g} requests/s at {title} under {bound:g} ms"
    curve = [(round(x, 4), round(value, 2)) for x, (_, value) in zip(rates, known, strict=True)]
    notes = ["Instances are taken to add up: a load over n of them was not measured."]
    if instances > 1:
        notes[0] = f"The run's load was shared by {instances} instances, each taken to bear its part."
    if each is None:
        lightest = f"{rates[0]:g} requests/s an instance"
        return Capacity(
            f"Not answered for {asked}: even {lightest}, the lightest load measured, gave {known[0][1]:.0f} ms.",
            *(rate, metric, bound, None, None, None, None, None, None, False, curve),
            [*notes, "A lighter load was not measured; a step with a lower rate may keep the bound."],
        )
    beyond = each >= rates[-1]
    low, high = (float(value) for value in np.percentile(drawn, [2.5, 97.5])) if drawn.size else (each, each)
    needed, most, least = (_instances(rate, value) for value in (each, low, high))
    if beyond:
        notes.append(
            f"Every step kept the bound, so an instance bears at least {rates[-1]:g} requests/s; more was "
            "not measured, and fewer instances may do."
        )
    if needed * each > 0 and len(known) == 1:
        notes.append("The curve has one step: nothing says how latency grows with the rate.")
    span = f"{least} to {most}" if least != most else f"{least}"
    text = f"For {asked} you need {needed} instance{'s' if needed != 1 else ''} (95%: {span})"
    text += f", each with at most {each:.2g} requests/s{' (the most measured)' if beyond else ''}."
    return Capacity(text, rate, metric, bound, needed, least, most, each, low, high, beyond, curve, notes)


def _instances(rate: float, each: float) -> int:
    return max(1, math.ceil(rate / each - 1e-9)) if each > 0 else 0


def highest_rate(rates: Sequence[float], values: Sequence[float], bound: float) -> float | None:
    """The highest rate at which a latency that never falls with the rate keeps the bound; None: not at the lowest.

    The values are first made to rise (a lower latency at a higher rate is noise), then joined by lines in the
    logarithm.
    """
    rising = _isotonic(np.log(np.asarray(values, dtype=np.float64)))
    limit = math.log(bound)
    if rising[0] > limit:
        return None
    for index in range(1, len(rates)):
        if rising[index] > limit:
            low, high = rising[index - 1], rising[index]
            part = (limit - low) / (high - low)
            return float(rates[index - 1] + part * (rates[index] - rates[index - 1]))
    return float(rates[-1])


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


def _drawn(
    points: Sequence[Point], metric: str, rates: Sequence[float], bound: float, seed: int
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The highest rate of each of 1,000 curves whose blocks are drawn again; 0 where even the lowest breaks the
    bound."""
    random = np.random.default_rng(seed)
    curves = []
    for point in points:
        blocks = point.sample.blocks
        weights = random.multinomial(blocks, [1 / blocks] * blocks, DRAWS).astype(np.float64)
        found = figures_of(point.sample, METRICS[metric], weights)
        curves.append(found if found is not None else np.full(DRAWS, np.nan))
    rows = [row for row in np.array(curves).T if np.isfinite(row).all() and (row > 0).all()]
    return np.array([highest_rate(rates, list(row), bound) or rates[0] for row in rows])
