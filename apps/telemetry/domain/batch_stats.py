"""Batch sizes as Triton executed them, out of the statistics API (`/v2/models/stats`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from apps.telemetry.domain import histogram
from apps.telemetry.domain.figures import Series
from apps.telemetry.domain.histogram import Histogram

# Every size up to 16 by itself, then an eighth of a power of two apart: preferred sizes stay apart from each other.
_SIZES = (
    *range(1, 17),
    *range(20, 33, 4),
    *range(40, 65, 8),
    *range(80, 129, 16),
    *range(160, 257, 32),
    *(384, 512, 768, 1024),
)
BOUNDS: tuple[float, ...] = tuple(float(size) for size in _SIZES)


def read(document: object) -> dict[Series, Histogram]:
    """Executions since the model was loaded by batch size, by model and version; nothing where it tells none.

    The counts begin anew at each load, also where the metrics endpoint's go on. Raises ValueError where the document
    is no statistics document.
    """
    rows = document.get("model_stats") if isinstance(document, dict) else None
    if not isinstance(rows, list):
        raise ValueError("model_stats: expected a list.")
    found = {}
    for row in rows:
        if not isinstance(row, dict):
            continue
        sizes = _sizes(row)
        # A model that has executed nothing yet begins at zero; executions whose sizes are not told are unknown.
        if sizes or row.get("execution_count") in (0, "0"):
            version = str(row.get("version", ""))
            name = str(row.get("name", ""))
            found[f"{name}/{version}" if version else name] = histogram.of_values(sizes, BOUNDS)
    return found


def _sizes(row: Mapping[str, Any]) -> dict[float, float]:
    sizes: dict[float, float] = {}
    for each in row.get("batch_stats") or ():
        try:
            # JSON of some front ends writes 64-bit numbers as text.
            size, count = float(each["batch_size"]), float(each["compute_infer"]["count"])
        except (KeyError, TypeError, ValueError):
            continue
        sizes[size] = sizes.get(size, 0.0) + count
    return sizes
