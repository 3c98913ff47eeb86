"""Samples for the first paint; what comes after reaches the browser over the live socket."""

from __future__ import annotations

from collections.abc import Iterable

from apps.dashboard.sparklines import WINDOW_SECONDS
from apps.fleet.models import Gpu
from apps.serving.models import Deployment
from apps.telemetry import selectors
from apps.telemetry.domain.derive import Sample

# Every second of an hour: thinning is left to charts.rows, whose steps the browser goes on with.
ALL_POINTS = 3600


def of(deployment_id: int, seconds: float) -> list[Sample]:
    """Samples of one deployment's last `seconds`, oldest first; none where Redis does not answer."""
    return selectors.history(deployment_id, seconds, ALL_POINTS)


def recent(deployment_ids: Iterable[int]) -> dict[int, list[Sample]]:
    """Samples of several deployments over the time of a sparkline."""
    return {key: of(key, WINDOW_SECONDS) for key in deployment_ids}


def fleet() -> list[Sample]:
    """Samples of all deployments together over twice the time of a sparkline, to compare with the time before."""
    return selectors.fleet_history(2 * WINDOW_SECONDS, ALL_POINTS)


def on_gpu(deployment: Deployment) -> bool:
    """Whether the deployment's newest server holds a GPU, and not a CPU slot."""
    held = deployment.instances.filter(gpu__isnull=False).order_by("-created_at")
    return held.values_list("gpu__device", flat=True).first() == Gpu.Device.GPU
