"""Samples for pages, the API and the live topics. Absent is null; a gap is a second without a sample."""

from __future__ import annotations

import time

from apps.serving.models import Deployment
from apps.telemetry import store
from apps.telemetry.domain.derive import Sample
from apps.telemetry.domain.thinning import thin

# What a live topic sends to a client that has nothing yet.
FIRST_SECONDS = 60.0
HOUR = 3600.0
# A total that is older says nothing about now.
NOW_SECONDS = 5.0


def history(deployment: Deployment | int, seconds: float = HOUR, max_points: int = 600) -> list[Sample]:
    """Samples of a deployment's last `seconds` (at most an hour), thinned to about `max_points`, oldest first."""
    deployment_id = deployment if isinstance(deployment, int) else deployment.pk
    return thin(store.read(store.deployment_key(deployment_id), _since(seconds)), max_points)


def instance_history(instance_id: int, seconds: float = HOUR, max_points: int = 600) -> list[Sample]:
    """The same for one server."""
    return thin(store.read(store.instance_key(instance_id), _since(seconds)), max_points)


def fleet_history(seconds: float = HOUR, max_points: int = 600) -> list[Sample]:
    """The same for all deployments together."""
    return thin(store.read(store.FLEET, _since(seconds)), max_points)


def totals() -> Sample | None:
    """All deployments together, now; None where telemetry has said nothing for NOW_SECONDS."""
    return store.newest(store.FLEET, NOW_SECONDS)


def latest(deployment_id: int) -> Sample | None:
    """A deployment's newest sample; None where it is older than NOW_SECONDS."""
    return store.newest(store.deployment_key(deployment_id), NOW_SECONDS)


def is_alive() -> bool | None:
    """Whether the telemetry process is at work; None where Redis does not answer."""
    return store.is_alive()


def missed(key: int, since: float | None) -> list[Sample]:
    """What the live topics metrics:<id> and metrics (key 0) send first: all after `since`, else the last minute."""
    after = max(_since(HOUR), since) if since is not None else _since(FIRST_SECONDS)
    return store.read(store.deployment_key(key) if key else store.FLEET, after)


def _since(seconds: float) -> float:
    return time.time() - min(max(seconds, 0.0), HOUR)
