"""The summary of a whole run: each step of its load, and the first or only one as the run's own figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from apps.loadtests.domain.metrics import Mode, Slo, Window, counted, request_series, summarise
from apps.loadtests.domain.records import OK, Columns

# Points of a distribution that a plot needs.
CDF_POINTS = np.linspace(0, 100, 51)


def summarise_run(
    data: Columns, windows: Sequence[tuple[float, Window, str]], mode: Mode, slo: Slo
) -> dict[str, Any]:
    """{"steps": [{"value", "begin", "end", "stopped", "figures", "cdf"}], "counts_from"}; values as
    metrics.summarise."""
    steps = []
    for index, (value, window, reason) in enumerate(windows):
        mine = data.of_step(index)
        steps.append(
            {
                "value": value,
                "begin": window.begin,
                "end": window.end,
                "stopped": reason,
                "figures": summarise(mine, window, mode, slo),
                "cdf": distributions(mine, window, mode),
            }
        )
    return {"steps": steps, "counts_from": counts_from(data)}


def counts_from(data: Columns) -> str:
    """Where token counts come from: messages (each told its tokens), usage (only the total is told), none."""
    if data.arrival.size and np.isfinite(data.arrival_tokens).all():
        return "messages"
    return "usage" if np.isfinite(data.tokens[data.result == OK]).any() else "none"


def distributions(data: Columns, window: Window, mode: Mode) -> dict[str, list[float]]:
    """Quantiles 0, 2, ... 100% of TTFT, TPOT and latency in milliseconds; absent where there is no value."""
    mine = counted(data, window, mode)
    series = request_series(mine.where((mine.result == OK) & np.isfinite(mine.first)))
    found = {}
    for name in ("ttft", "tpot", "latency"):
        known = series[name][np.isfinite(series[name])]
        if known.size:
            found[name] = [round(float(value), 3) for value in np.percentile(known, CDF_POINTS)]
    return found
