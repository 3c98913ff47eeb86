"""Requests that wait at the gateway, by the deployments that could answer them: now, and over the last hour.

Servers cannot tell of them: the gateway hands an engine no more than it computes at once, and nothing to one that
sleeps. Gateway processes publish what runs in them twice a second (gateway/running.py).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from apps.gateway import running
from apps.gateway.models import GatewayRoute
from apps.realtime.redis_clients import REDIS_ERRORS, sync_client
from apps.serving.models import Deployment

# An hour and a little at one entry every five seconds; a stream that nobody writes to is forgotten.
KEPT = 800
TTL_SECONDS = 7200
# An entry says how many waited until the next one, but not for longer than this.
HOLDS_SECONDS = 12.0


def waiting() -> list[tuple[int, ...]]:
    """For each request that waits at a gateway, the deployments behind the name that it asked for."""
    names = [row.route for row in running.snapshot() if row.phase == "waiting"]
    if not names:
        return []
    behind = _behind(set(names))
    return [behind[name] for name in names if behind.get(name)]


def wanted() -> list[tuple[int, ...]]:
    """For each name that sleeps and for which another route answered lately, the deployments behind it."""
    names = running.wanted()
    behind = _behind(set(names)) if names else {}
    return [behind[name] for name in names if behind.get(name)]


def _behind(names: Iterable[str]) -> dict[str, tuple[int, ...]]:
    targets: dict[str, list[str]] = {name: [name] for name in names}
    for route in GatewayRoute.objects.filter(name__in=list(targets)):
        if route.targets:
            targets[route.name] = [
                str(each["deployment"]) for each in route.targets if each.get("deployment")
            ]
    wanted = {each for found in targets.values() for each in found}
    ids = dict(Deployment.objects.filter(name__in=wanted).values_list("name", "pk"))
    return {name: tuple(ids[each] for each in found if each in ids) for name, found in targets.items()}


def shared(waits: Sequence[tuple[int, ...]]) -> dict[int, float]:
    """How many of them wait for each deployment; one that several could answer counts for each in parts."""
    found: defaultdict[int, float] = defaultdict(float)
    for ids in waits:
        for each in ids:
            found[each] += 1.0 / len(ids)
    return dict(found)


def record(numbers: Mapping[int, float], now: float) -> None:
    """Keep how many waited for each deployment at a moment (epoch seconds); a Redis that is away is passed over."""
    try:
        pipeline = sync_client().pipeline(transaction=False)
        for deployment, number in numbers.items():
            fields: dict[Any, Any] = {"at": f"{now:.3f}", "n": f"{number:.3f}"}
            pipeline.xadd(_key(deployment), fields, maxlen=KEPT, approximate=True)
            pipeline.expire(_key(deployment), TTL_SECONDS)
        pipeline.execute()
    except REDIS_ERRORS:
        return


def history(deployment: int, since: float) -> list[tuple[float, float]]:
    """(epoch second, how many waited) from `since` on, oldest first; empty where Redis does not answer."""
    try:
        entries: Any = sync_client().xrange(_key(deployment), min=str(max(0, int((since - 60.0) * 1000))))
    except REDIS_ERRORS:
        return []
    found = [(float(fields["at"]), float(fields["n"])) for _entry, fields in entries]
    return [each for each in found if each[0] >= since - HOLDS_SECONDS]


def during(entries: Sequence[tuple[float, float]], since: float, until: float) -> float | None:
    """How many waited on average in a range: by the entries in it, else by the last one before it; null: unknown."""
    inside = [number for at, number in entries if since <= at < until]
    if inside:
        return sum(inside) / len(inside)
    before = [(at, number) for at, number in entries if since - HOLDS_SECONDS <= at < since]
    return before[-1][1] if before else None


def _key(deployment: int) -> str:
    return f"autoscale:asked:{deployment}"
