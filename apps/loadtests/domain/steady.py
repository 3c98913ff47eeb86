"""When a run has settled: the last three windows lie within 10% of each other in throughput and in latency.

The rule is perf_analyzer's. Ticks are one second each; a window is several of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

WINDOWS, TOLERANCE = 3, 0.10


@dataclass(frozen=True, slots=True)
class Tick:
    """What a second of a run brought. Latency is the mean of what ended in it, seconds, None where nothing did."""

    tokens: float
    completed: int
    latency: float | None


def is_steady(ticks: Sequence[Tick], window: int, tolerance: float = TOLERANCE) -> bool:
    """Whether the newest three windows of `window` ticks agree; False while there are too few of them."""
    if window < 1 or len(ticks) < WINDOWS * window:
        return False
    newest = ticks[-WINDOWS * window :]
    parts = [newest[index * window : (index + 1) * window] for index in range(WINDOWS)]
    counts = [sum(tick.tokens or tick.completed for tick in part) for part in parts]
    means = [_mean_latency(part) for part in parts]
    if any(mean is None for mean in means):
        return False
    return _close([float(count) for count in counts], tolerance) and _close(
        [mean for mean in means if mean is not None], tolerance
    )


def _mean_latency(ticks: Sequence[Tick]) -> float | None:
    known = [(tick.latency, tick.completed) for tick in ticks if tick.latency is not None and tick.completed]
    total = sum(count for _, count in known)
    return sum(latency * count for latency, count in known) / total if total else None


def _close(values: Sequence[float], tolerance: float) -> bool:
    return min(values) > 0 and max(values) / min(values) <= 1 + tolerance
