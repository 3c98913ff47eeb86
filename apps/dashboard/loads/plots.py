"""Plots of finished figures, drawn on the server: lines over an axis, and intervals around a zero line.

They need no script, so a shared page shows them too. Positions are per cent of the plot; words and ticks are
HTML beside the drawing, which stretches with its box while they do not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.utils.translation import gettext as _

from apps.dashboard import formats
from apps.loadtests.domain.compare import METRICS, percent

COLORS = tuple(f"--chart-{number}" for number in (1, 2, 3, 4, 6, 5, 7, 8))
TICKS = 4
# The widest change that an interval plot draws to scale.
MOST_CHANGE = 1.0


@dataclass(frozen=True, slots=True)
class Line:
    """One line: (x, y) points; a y of None is a gap. `marks`: points are drawn, as of a curve of few steps."""

    name: str
    points: Sequence[tuple[float, float | None]]
    marks: bool = False


@dataclass(frozen=True, slots=True)
class Plot:
    """What templates/pieces/plot.html draws."""

    id: str
    title: str
    unit: str
    x_title: str
    lines: list[dict[str, Any]]
    x_ticks: list[dict[str, Any]]
    y_ticks: list[dict[str, Any]]
    bands: list[dict[str, float]] = field(default_factory=list)
    limit: float | None = None
    rows: list[list[str]] = field(default_factory=list)

    @property
    def empty(self) -> bool:
        """Whether there is nothing to draw."""
        return not any(line["path"] or line["dots"] for line in self.lines)


def plot(
    name: str,
    title: str,
    unit: str,
    x_title: str,
    lines: Sequence[Line],
    *,
    bands: Iterable[tuple[float, float]] = (),
    limit: float | None = None,
    x_from: float | None = None,
    x_to: float | None = None,
    top: float | None = None,
) -> Plot:
    """Lines over a shared axis that begins at 0 below. `bands` are spans of x that are shaded, `limit` a dotted
    level."""
    known = [(x, y) for line in lines for x, y in line.points if y is not None]
    low = x_from if x_from is not None else min((x for x, _y in known), default=0.0)
    high = x_to if x_to is not None else max((x for x, _y in known), default=1.0)
    high = high if high > low else low + 1.0
    highest = max([y for _x, y in known] + ([limit] if limit is not None else []), default=1.0)
    steps = ticks(top if top is not None else highest)
    most = steps[-1] or 1.0

    def place(x: float) -> float:
        return round((x - low) / (high - low) * 100, 2)

    def height(y: float) -> float:
        return round(100 - min(y / most, 1.0) * 100, 2)

    drawn = [
        {
            "name": line.name,
            "color": COLORS[index % len(COLORS)],
            "path": _path([(place(x), None if y is None else height(y)) for x, y in line.points]),
            "dots": [
                {"x": place(x), "y": height(y), "text": f"{formats.significant(x)}: {formats.significant(y)}"}
                for x, y in line.points
                if y is not None
            ]
            if line.marks
            else [],
        }
        for index, line in enumerate(lines)
    ]
    return Plot(
        id=name,
        title=title,
        unit=unit,
        x_title=x_title,
        lines=drawn,
        x_ticks=[{"at": place(value), "text": formats.significant(value)} for value in _between(low, high)],
        y_ticks=[{"at": height(value), "text": formats.significant(value)} for value in steps],
        bands=[{"at": place(a), "width": round(place(b) - place(a), 2)} for a, b in bands],
        limit=height(limit) if limit is not None else None,
        rows=rows_of(lines),
    )


def _path(points: Sequence[tuple[float, float | None]]) -> str:
    parts, open_ = [], False
    for x, y in points:
        if y is None:
            open_ = False
            continue
        parts.append(f"{'L' if open_ else 'M'}{x} {y}")
        open_ = True
    return "".join(parts) if len(parts) > 1 else ""


def ticks(most: float) -> list[float]:
    """Round values from 0 to at least `most`."""
    if not math.isfinite(most) or most <= 0:
        return [0.0, 1.0]
    rough = most / TICKS
    size = 10 ** math.floor(math.log10(rough))
    step = next(size * factor for factor in (1, 2, 2.5, 5, 10) if size * factor >= rough * 0.999)
    count = math.ceil(most / step - 1e-9)
    return [round(step * index, 10) for index in range(count + 1)]


def _between(low: float, high: float) -> list[float]:
    step = ticks(high - low)[1]
    first = math.ceil(low / step - 1e-9)
    return [round(step * index, 10) for index in range(first, int(high / step + 1e-9) + 1)][:8]


def rows_of(lines: Sequence[Line]) -> list[list[str]]:
    """The table beside a plot: at most 60 rows of x and each line's value."""
    at = sorted({x for line in lines for x, _y in line.points})
    step = -(-len(at) // 60) if at else 1
    values = [dict(line.points) for line in lines]
    return [
        [formats.significant(x), *(formats.significant(found.get(x)) for found in values)] for x in at[::step]
    ]


def intervals(arms: Sequence[Mapping[str, Any]], primary: str) -> list[dict[str, Any]]:
    """Rows of the interval plot: every metric of every arm, the primary first; per cent of the width, zero line
    in it."""
    shown = [
        (arm["label"], name, arm["differences"][name])
        for name in [primary, *(name for name in METRICS if name != primary)]
        for arm in arms
        if name in arm["differences"]
    ]
    reach = max(
        (abs(bound - 1) for _l, _n, item in shown for bound in (item["low"], item["high"])), default=0.1
    )
    reach = min(MOST_CHANGE, max(0.05, reach))

    def place(ratio: float) -> float:
        return round(min(100.0, max(0.0, 50 + (ratio - 1) / reach * 50)), 2)

    rows = []
    for label, name, item in shown:
        tone = "idle" if item["better"] is None else "ok" if item["better"] else "bad"
        left, right = place(item["low"]), place(item["high"])
        rows.append(
            {
                "arm": label,
                "metric": METRICS[name].title,
                "unit": METRICS[name].unit,
                "primary": name == primary,
                "tone": tone,
                "word": _word(item),
                "left": left,
                "width": round(max(0.5, right - left), 2),
                "dot": place(item["ratio"]),
                "change": f"{percent(item['ratio'])}%",
                "interval": _("%(low)s to %(high)s%%")
                % {"low": percent(item["low"]), "high": percent(item["high"])},
                "baseline": formats.significant(item["baseline"]),
                "value": formats.significant(item["value"]),
                "p": f"{item['p_adjusted']:.3f}",
                "spread": item["spread"],
            }
        )
    return rows


def _word(item: Mapping[str, Any]) -> str:
    if item["better"] is None:
        return _("not shown to differ")
    return _("better") if item["better"] else _("worse")


def scale(arms: Sequence[Mapping[str, Any]]) -> int:
    """Per cent of change at the edge of the interval plot."""
    found = [
        abs(item[key] - 1) for arm in arms for item in arm["differences"].values() for key in ("low", "high")
    ]
    return round(min(MOST_CHANGE, max(0.05, max(found, default=0.1))) * 100)
