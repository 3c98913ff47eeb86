"""Lines without axes, drawn on the server for the first paint and kept up by static/js/pieces/sparks.js."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

WINDOW_SECONDS = 300
STEP_SECONDS = 5
POINTS = WINDOW_SECONDS // STEP_SECONDS
_WIDTH, _HEIGHT, _MARGIN = 100.0, 24.0, 1.5


@dataclass(frozen=True, slots=True)
class Tile:
    """A stat tile. `key` names the sample value that moves it live, empty where nothing does."""

    label: str
    value: str
    unit: str = ""
    change: float | None = None
    url: str = ""
    key: str = ""
    values: list[float | None] = field(default_factory=list)

    @property
    def line(self) -> list[float | None]:
        """What the sparkline shows: the later half of the values, which also hold the time before it."""
        return self.values[-POINTS:]


def buckets(
    samples: Iterable[Mapping[str, Any]], key: str, now: float, points: int = POINTS
) -> list[float | None]:
    """Mean of `key` in each of the last `points` steps, oldest first; None where nothing was told."""
    sums: list[list[float]] = [[] for _ in range(points)]
    first = int(now // STEP_SECONDS) - points + 1
    for sample in samples:
        value = sample.get(key)
        index = int(float(sample["at"]) // STEP_SECONDS) - first
        if value is not None and 0 <= index < points:
            sums[index].append(float(value))
    return [sum(found) / len(found) if found else None for found in sums]


def change(values: Sequence[float | None]) -> float | None:
    """How much the mean of the later half differs from that of the earlier one, as a share of the earlier.

    None where one half knows less than a tenth of its steps, or the earlier mean is zero.
    """
    half = len(values) // 2
    means = []
    for part in (values[:half], values[half:]):
        known = [value for value in part if value is not None]
        if len(known) < max(1, len(part) // 10):
            return None
        means.append(sum(known) / len(known))
    return means[1] / means[0] - 1 if means[0] else None


def path(values: Sequence[float | None], top: float | None = None) -> str:
    """SVG path in a box of 100 by 24; a missing value lifts the pen. The base line is zero.

    `top` is the value at the upper edge, so that several lines share a scale; None: the highest value.
    """
    known = [value for value in values if value is not None]
    if not known:
        return ""
    top = top or max(known) or 1.0
    step = _WIDTH / max(len(values) - 1, 1)
    parts, down = [], False
    for index, value in enumerate(values):
        if value is None:
            down = False
            continue
        y = _HEIGHT - _MARGIN - value / top * (_HEIGHT - 2 * _MARGIN)
        parts.append(f"{'L' if down else 'M'}{index * step:.1f} {y:.1f}")
        if not down:
            # A lone point shows as a dot.
            parts.append("h.01")
        down = True
    return "".join(parts)
