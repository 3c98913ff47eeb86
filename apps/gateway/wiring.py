"""The parts of a gateway process, put together once and handed to every call."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine, Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from django.conf import settings

from apps.gateway.access.admission import Admission, Text
from apps.gateway.domain.facts import Route, Table, Upstream
from apps.gateway.metrics import GatewayMetrics
from apps.gateway.routing.balancer import Balancer
from apps.gateway.running import Registry
from apps.gateway.tracing import Tracing
from apps.gateway.upstream_urls import address_fits
from apps.gateway.upstreams.openai import OpenAIUpstreams
from apps.gateway.upstreams.triton import TritonUpstreams
from apps.gateway.usage.recorder import Recorder
from apps.gateway.watch import TableHolder
from apps.streaming.http_client import Pool

if TYPE_CHECKING:
    from apps.gateway.call import Call

log = logging.getLogger(__name__)

# An instance that died is back within this time, or something is wrong.
RETURN_SECONDS = 60.0


@dataclass(slots=True)
class Parts:
    """What a call needs. `calls` are those that are not over; `tasks` keeps what runs beside them."""

    holder: TableHolder
    admission: Admission
    recorder: Recorder
    registry: Registry
    balancer: Balancer
    triton: TritonUpstreams
    external: OpenAIUpstreams
    pools: tuple[Pool, ...]
    metrics: GatewayMetrics
    tracing: Tracing
    max_body_bytes: int
    # Names of routes that something serves.
    serving: set[str] = field(default_factory=set)
    # When a route's last upstream went, by its name; monotonic seconds.
    lost_at: dict[str, float] = field(default_factory=dict)
    calls: set[Call] = field(default_factory=set)
    tasks: set[asyncio.Task[Any]] = field(default_factory=set)

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run something beside the calls; what it raises is logged."""
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("A background task of the gateway failed", exc_info=task.exception())

    def served_lately(self, name: str) -> bool:
        """Whether something served this route until a moment ago, so that it is worth waiting for its return."""
        lost = self.lost_at.get(name)
        return lost is not None and time.monotonic() - lost < RETURN_SECONDS

    def table_changed(self, table: Table) -> None:
        """There is a new table: forget what is gone, and let those go on who wait for what is new."""
        serving = {route.name for route in table.routes.values() if route.upstreams}
        for name in self.serving - serving:
            self.lost_at[name] = time.monotonic()
        for name in serving | (self.lost_at.keys() - table.routes.keys()):
            self.lost_at.pop(name, None)
        self.serving = serving
        self.balancer.keep(table.routes.values())
        self.spawn(self.triton.keep(one for route in table.routes.values() for one in route.upstreams))
        self.admission.room_grew()


class Slots:
    """The slots of the newest table's upstreams, as the admission asks for them."""

    def __init__(self, holder: TableHolder, balancer: Balancer) -> None:
        self._holder, self._balancer = holder, balancer

    def lane(self, route: str, text: Text) -> Hashable:
        """See Places."""
        found = self._route(route)
        return self._balancer.lane(found, text) if found is not None else route

    def room(self, route: str, text: Text) -> bool:
        """See Places."""
        found = self._route(route)
        return found is not None and self._balancer.room(found, text)

    def take(self, route: str, text: Text) -> Upstream | None:
        """See Places."""
        found = self._route(route)
        if found is None or not self._balancer.room(found, text):
            return None
        place = self._balancer.choose(found, text)
        if place is not None:
            self._balancer.taken(place.uid)
        return place

    def took(self, place: Upstream) -> None:
        """See Places."""
        self._balancer.taken(place.uid)

    def give_back(self, place: Upstream) -> None:
        """See Places."""
        self._balancer.done(place.uid)

    def most(self, route: str) -> int | None:
        """See Places."""
        found = self._route(route)
        return self._balancer.capacity(found) if found is not None else 0

    def _route(self, name: str) -> Route | None:
        return self._holder.table.routes.get(name)


def build(holder: TableHolder | None = None, recorder: Recorder | None = None) -> Parts:
    """The parts as the settings say. Call it in the event loop that will run them."""
    processes = settings.INFLIGHT_GATEWAY_PROCESSES
    own, foreign = Pool(), Pool(allowed=address_fits)
    balancer = Balancer(divide_by=processes, prefixes=settings.INFLIGHT_GATEWAY_PREFIX_AFFINITY)
    triton = TritonUpstreams(own, settings.INFLIGHT_GATEWAY_TRANSPORT)
    holder = holder or TableHolder()

    def body_days(name: str) -> int:
        route = holder.table.routes.get(name)
        return route.body_days if route is not None else 7

    admission = Admission(Slots(holder, balancer), processes=processes)
    registry = Registry()

    def waiting() -> int:
        return sum(admission.waiting(name) for name in holder.table.routes)

    parts = Parts(
        holder=holder,
        admission=admission,
        recorder=recorder or Recorder(body_days),
        registry=registry,
        balancer=balancer,
        triton=triton,
        external=OpenAIUpstreams(foreign),
        pools=(own, foreign),
        metrics=GatewayMetrics(registry.__len__, waiting),
        tracing=Tracing(),
        max_body_bytes=settings.INFLIGHT_GATEWAY_MAX_BODY_BYTES,
    )

    holder.on_change(parts.table_changed)
    return parts
