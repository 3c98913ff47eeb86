"""Where one server's counters stood, as a document that outlives the telemetry process."""

from __future__ import annotations

import math
from typing import Any

from apps.telemetry.domain.figures import Figures
from apps.telemetry.domain.histogram import Histogram
from apps.telemetry.domain.reading import Reading


def dump(reading: Reading, now: float, wall: float) -> dict[str, Any]:
    """The counters and histograms of a reading; `now` (monotonic) and `wall` (epoch) are the same moment."""
    figures = reading.figures
    return {
        "at": wall - (now - reading.at),
        "counters": figures.counters,
        "histograms": {
            name: {
                series: [list(value.bounds[:-1]), list(value.counts), value.total]
                for series, value in each.items()
            }
            for name, each in figures.histograms.items()
        },
    }


def load(document: Any, now: float, wall: float) -> Reading | None:
    """The reading of a document that `dump` wrote, in this process' monotonic time; None where it is none."""
    try:
        histograms = {
            name: {
                series: Histogram(
                    (*(float(bound) for bound in value[0]), math.inf),
                    tuple(float(count) for count in value[1]),
                    float(value[2]),
                )
                for series, value in each.items()
            }
            for name, each in document["histograms"].items()
        }
        counters = {
            name: {series: float(value) for series, value in each.items()}
            for name, each in document["counters"].items()
        }
        return Reading(
            now - (wall - float(document["at"])), Figures(counters=counters, histograms=histograms)
        )
    except (AttributeError, KeyError, TypeError, ValueError, IndexError):
        return None
