"""What a key of the vocabulary is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# How values of a key are put together, over time when points are thinned and over servers when they are merged:
# gauge, rate, mean, ratio: the mean of a step, weighted by the seconds that have a value; quantile: read anew from
# the step's added histograms; amount: added up; flag: the highest (a second of trouble marks the step).
Kind = Literal["gauge", "rate", "quantile", "mean", "ratio", "amount", "flag"]
Area = Literal["requests", "latency", "tokens", "kv", "batch", "engine", "process", "gpu", "host", "health"]


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a sample. `unit` is UCUM-like: ms, 1/s, By, W, Cel; 1 for a fraction or count."""

    name: str
    unit: str
    kind: Kind
    title: str
    source: str
    limits: str = ""
    area: Area = "engine"
