"""Figures in columns: complete steps of a range, as the page embeds them and the browser goes on with them.

A frame never holds a step that is still going on. The browser gets the samples of that step over the live socket,
from `live_from` on, and keeps the same rules: a step is the mean of its samples, the highest of quantiles and flags,
and a step without any sample is a row of nulls.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from apps.telemetry.domain.vocabulary import BY_NAME

Samples = Sequence[Mapping[str, Any]]
# A step may be this much late before the line is broken.
GAP_STEPS = 1.8
# Kinds of which a step shows the highest value: neither quantiles nor flags have a mean.
HIGHEST = frozenset({"quantile", "flag"})


@dataclass(frozen=True, slots=True)
class Frame:
    """`at` (epoch seconds, ascending) and one column for each key; None where nothing was told.

    `step` is the length of a step in seconds, `live_from` the end of the last complete one.
    """

    step: float
    live_from: float
    at: list[float] = field(default_factory=list)
    columns: dict[str, list[float | None]] = field(default_factory=dict)
    source: str = ""

    def known(self, key: str) -> bool:
        """Whether any step has a value for `key`."""
        return any(value is not None for value in self.columns.get(key, ()))

    def newest(self, key: str) -> float | None:
        """Value of the last step."""
        column = self.columns.get(key)
        return column[-1] if column else None

    def as_json(self) -> dict[str, Any]:
        """What static/js/charts/series.js reads."""
        kinds = {key: "highest" for key in self.columns if key in BY_NAME and BY_NAME[key].kind in HIGHEST}
        return {
            "step": self.step,
            "live_from": self.live_from,
            "at": self.at,
            "columns": self.columns,
            "kinds": kinds,
        }


def of_points(
    points: Iterable[Mapping[str, Any]], keys: Iterable[str], step: float, until: float, source: str = ""
) -> Frame:
    """Frame of points that lie `step` apart at most; a longer silence becomes one row of nulls."""
    columns: dict[str, list[float | None]] = {key: [] for key in keys}
    frame = Frame(step, until, [], columns, source)
    for point in points:
        at = float(point["at"])
        if frame.at and at - frame.at[-1] > step * GAP_STEPS:
            _append(frame, frame.at[-1] + step, {})
        _append(frame, at, point)
    return frame


def _append(frame: Frame, at: float, point: Mapping[str, Any]) -> None:
    frame.at.append(round(at, 3))
    for key, column in frame.columns.items():
        value = point.get(key)
        column.append(None if value is None else float(f"{float(value):.6g}"))


def of_samples(samples: Samples, keys: Sequence[str], since: float, until: float, step: float) -> Frame:
    """Frame of samples of one second each: complete steps between `since` and `until`."""
    end = until // step * step
    groups: dict[int, list[Mapping[str, Any]]] = {}
    for sample in samples:
        at = float(sample["at"])
        if since <= at < end:
            groups.setdefault(int(at // step), []).append(sample)
    points = [
        {"at": _mean([float(sample["at"]) for sample in group]), **{key: _value(group, key) for key in keys}}
        for _number, group in sorted(groups.items())
    ]
    return of_points(points, keys, step, end, "live")


def _value(group: Samples, key: str) -> float | None:
    known = [float(sample[key]) for sample in group if sample.get(key) is not None]
    if not known:
        return None
    return max(known) if key in BY_NAME and BY_NAME[key].kind in HIGHEST else _mean(known)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def shifted(frame: Frame, seconds: float) -> Frame:
    """The same steps, `seconds` later: an earlier period laid over the range that it is compared with."""
    at = [round(moment + seconds, 3) for moment in frame.at]
    return Frame(frame.step, frame.live_from + seconds, at, frame.columns, frame.source)
