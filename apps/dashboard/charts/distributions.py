"""Histograms as charts: latency over time as a heat map, executed batch sizes as bars."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from apps.dashboard import formats
from apps.dashboard.charts import figure

# Histograms that the heat map can show, by the vocabulary's name.
HEATS: dict[str, str | Promise] = {
    "ttft": gettext_lazy("TTFT"),
    "itl": gettext_lazy("ITL"),
    "e2e": gettext_lazy("End to end"),
    "queue": gettext_lazy("Queue"),
}
COLUMNS = 120
EN_DASH = "\u2013"


@dataclass(frozen=True, slots=True)
class Distribution:
    """How observations spread over the buckets, column by column.

    `times` are epoch seconds; `bounds` the buckets' upper ends, the last one infinite; `counts[column][bucket]` is
    how many observations lie in the bucket (not below it), None for a column without any reading.
    """

    times: Sequence[float]
    bounds: Sequence[float]
    counts: Sequence[Sequence[float] | None]

    @property
    def totals(self) -> list[float]:
        """Observations of each bucket over all columns."""
        return [sum(column[i] for column in self.counts if column) for i in range(len(self.bounds))]


def heat_json(found: Distribution, unit: str = "ms") -> dict[str, Any]:
    """What static/js/charts/heat.js draws; buckets above and below all observations are left out."""
    totals = found.totals
    used = [index for index, total in enumerate(totals) if total > 0]
    if not used:
        return {"times": [], "labels": [], "counts": [], "unit": unit, "total": 0}
    first, last = used[0], used[-1] + 1
    labels = bound_labels(found.bounds)[first:last]
    counts = [
        None if column is None else [_short(value) for value in column[first:last]] for column in found.counts
    ]
    times = [round(at, 1) for at in found.times]
    return {"times": times, "labels": labels, "counts": counts, "unit": unit, "total": sum(totals)}


def _short(value: float) -> float:
    return int(value) if value == int(value) else round(value, 2)


def bound_labels(bounds: Sequence[float]) -> list[str]:
    """Names of buckets by their upper ends: "≤ 5", "≤ 10", "> 10"."""
    labels = []
    for index, bound in enumerate(bounds):
        if math.isinf(bound):
            labels.append(f"> {formats.significant(bounds[index - 1])}" if index else _("all"))
        else:
            labels.append(f"≤ {formats.significant(bound)}")
    return labels


def heat_card(heats: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Card of the heat map; the first histogram with observations is shown first."""
    chosen = next((name for name in HEATS if heats.get(name, {}).get("times")), next(iter(HEATS)))
    return {
        "id": "chart-heat",
        "kind": "heat",
        "figure_id": "chart-heat-figure",
        "title": _("Latency, request by request"),
        "unit": "ms",
        "note": "",
        "traces": [],
        "choices": [
            {
                "name": name,
                "label": label,
                "chosen": name == chosen,
                "empty": not heats.get(name, {}).get("times"),
            }
            for name, label in HEATS.items()
        ],
        "figure": {"heats": heats, "figure": figure.heat_figure()},
    }


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """What the batching profile wants: the largest batch, and the sizes that it prefers (none: any size is run)."""

    most: int
    preferred: tuple[int, ...] = ()
    strategy: str = "inflight"

    @property
    def sentence(self) -> str:
        """The same in words."""
        if self.strategy == "none":
            return _("Batching is off: one request at a time.")
        if self.strategy == "inflight":
            return _("In-flight batching prefers no sizes: requests join and leave the running batch.")
        if not self.preferred:
            return _("The profile prefers no sizes.")
        sizes = ", ".join(formats.grouped(size) for size in self.preferred)
        return _("Preferred sizes, in another colour: %(sizes)s.") % {"sizes": sizes}


def bars_json(found: Distribution, limits: BatchLimits) -> dict[str, Any]:
    """What static/js/charts/bars.js draws. `most` and `preferred` are places among the bars.

    Buckets up to the one that holds the largest possible batch are always shown: a size that never forms is a zero
    that says something.
    """
    totals, steps = found.totals, sum(found.totals)
    holds = next((i for i, bound in enumerate(found.bounds) if limits.most <= bound), len(found.bounds) - 1)
    used = max((i for i, total in enumerate(totals) if total > 0), default=-1)
    shown = max(holds, used) + 1 if found.bounds else 0
    places = {
        next((i for i, bound in enumerate(found.bounds) if size <= bound), holds) for size in limits.preferred
    }
    return {
        "labels": size_labels(found.bounds)[:shown],
        "shares": [round(total / steps * 100, 3) if steps else 0.0 for total in totals[:shown]],
        "steps": steps,
        "most": holds if found.bounds else None,
        "most_label": _("largest possible: %(n)s") % {"n": limits.most},
        "preferred": sorted(places),
    }


def size_labels(bounds: Sequence[float]) -> list[str]:
    """Names of buckets of whole numbers: "1", "2", "3 to 4", "> 64"."""
    labels, below = [], 0.0
    for bound in bounds:
        if math.isinf(bound):
            labels.append(f"> {formats.grouped(below)}")
        elif bound - below <= 1:
            labels.append(formats.grouped(bound))
        else:
            labels.append(f"{formats.grouped(below + 1)}{EN_DASH}{formats.grouped(bound)}")
        below = bound
    return labels


def bars_card(bars: dict[str, Any], limits: BatchLimits) -> dict[str, Any]:
    """Card of the executed batch sizes."""
    return {
        "id": "chart-sizes",
        "kind": "bars",
        "figure_id": "chart-sizes-figure",
        "title": _("Batch sizes as executed"),
        "unit": _("% of engine steps"),
        "note": "",
        "hint": limits.sentence,
        "traces": [],
        "figure": {"bars": bars, "figure": figure.bar_figure(_("size"))},
    }
