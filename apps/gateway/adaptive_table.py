"""The table's routes with what adaptive admission lets through."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from apps.gateway.adaptive_models import AdaptiveAdmission
from apps.gateway.domain.facts import Route


def bounds() -> dict[int, AdaptiveAdmission]:
    """What is bounded now, by deployment."""
    return {row.deployment_id: row for row in AdaptiveAdmission.objects.filter(enabled=True)}


def bounded(route: Route, rows: Mapping[int, AdaptiveAdmission]) -> Route:
    """The route with what adaptive admission lets through: slots of its upstreams, and who may wait."""
    found = [(one, rows.get(one.deployment_id or 0)) for one in route.upstreams]
    mine = [row for _one, row in found if row is not None]
    if not mine:
        return route
    upstreams = tuple(
        replace(one, slots=_least(one.slots, row.admitted)) if row is not None else one for one, row in found
    )
    queue = _least(route.queue_size, *(row.queue for row in mine))
    return replace(route, upstreams=upstreams, queue_size=route.queue_size if queue is None else queue)


def _least(*values: int | None) -> int | None:
    return min((value for value in values if value is not None), default=None)
