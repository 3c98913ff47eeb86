"""A joined host's own scraper: what only the host itself can see of its GPUs, its memory and its servers' processes.

The servers' metrics are read by the one telemetry process through the node's proxy, so that a deployment over several
hosts has one sum; what this process finds reaches it through Redis, `host:<instance id>`, at most FRESH_MS old.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from dataclasses import dataclass
from typing import Any

from django.conf import settings

from apps.realtime import pool
from apps.realtime.redis_clients import REDIS_ERRORS, answer, async_client, sync_client
from apps.serving import states
from apps.serving.models import Instance
from apps.telemetry import devices, pace, store, targets
from apps.telemetry.devices import Device, ProcessGauge
from apps.telemetry.domain import derive
from apps.telemetry.domain.derive import Interval, Sample
from apps.telemetry.storage.models import ScopeKind
from apps.telemetry.storage.rollups import Rollups

log = logging.getLogger(__name__)

FRESH_MS = 5000
# What runs here and which GPUs there are is looked up again after so many seconds.
LOOK_SECONDS = 5.0
_NOTHING = Interval({}, {}, {})


@dataclass(frozen=True, slots=True)
class Server:
    """A server of this host."""

    instance_id: int
    pid: int
    created: float | None
    gpu_uuid: str


@dataclass(frozen=True, slots=True)
class Told:
    """What a server's host tells of it: its processes' use, and its GPU's figures."""

    process: dict[str, float | None]
    gpu: Device


def key_of(instance_id: int) -> str:
    """Where a server's host leaves what it tells."""
    return f"host:{instance_id}"


class RemoteProcess:
    """Reads what another host tells of one of its servers; blocking."""

    def __init__(self, instance_id: int) -> None:
        self._key = key_of(instance_id)

    def read(self) -> Told:
        """What was told last; nothing where it is too old or Redis does not answer."""
        try:
            text: Any = sync_client().get(self._key)
        except REDIS_ERRORS:
            return Told({}, {})
        try:
            told = json.loads(text) if text else {}
            return Told(dict(told.get("process", {})), dict(told.get("gpu", {})))
        except (ValueError, TypeError, AttributeError):
            return Told({}, {})


class NodeScraper:
    """Once a second: this host, its GPUs and its servers' processes."""

    def __init__(self, rollups: Rollups | None = None) -> None:
        self._rollups = rollups or Rollups()
        self._gpus = devices.Gpus()
        self._gauges: dict[Server, ProcessGauge] = {}
        self._node: int | None = None
        self._devices: list[targets.Device] = []
        self._looked_at = float("-inf")
        self._away = False

    async def run(self) -> None:
        """Read and write until cancelled; Redis away is a gap in the live samples alone."""
        while True:
            await asyncio.sleep(pace.until_tick(0.0, pace.PERIOD))
            try:
                await self.once()
                self._away = False
            except REDIS_ERRORS as error:
                if not self._away:
                    log.warning("What this host tells is not kept, Redis does not answer: %s", error)
                self._away = True
            except Exception:
                log.exception("The figures of this second were not written.")

    async def once(self) -> None:
        """One reading of everything."""
        await self._look()
        uuids = {each.uuid for each in self._devices} | {each.gpu_uuid for each in self._gauges}
        gpus = await asyncio.to_thread(self._gpus.read, uuids - {""})
        host = await asyncio.to_thread(devices.host)
        used = await asyncio.to_thread(self._used)
        now = time.time()
        self._rollups.roll(now)
        await store.write(self._samples(now, host, gpus), alive=False)
        await self._tell(used, gpus)

    async def _look(self) -> None:
        if time.monotonic() - self._looked_at < LOOK_SECONDS:
            return
        self._looked_at = time.monotonic()
        try:
            self._node, self._devices = await pool.run(targets.devices)
            found = await pool.run(servers)
        except Exception:
            log.exception("What runs on this host could not be listed.")
            return
        self._gauges = {
            each: self._gauges.get(each) or ProcessGauge(each.pid, each.created) for each in found
        }

    def _used(self) -> dict[Server, dict[str, float | None]]:
        return {server: gauge.read() for server, gauge in self._gauges.items()}

    def _samples(self, now: float, host: Device, gpus: dict[str, Device]) -> dict[str, Sample]:
        found: dict[str, Sample] = {}
        own = {each.gpu_id: gpus[each.uuid] for each in self._devices if each.uuid in gpus}
        for gpu_id, reading in own.items():
            found[store.gpu_key(gpu_id)] = self._kept(
                ScopeKind.GPU, gpu_id, derive.sample(now, _NOTHING, reading)
            )
        if self._node is not None:
            reading = {**devices.merged([], list(own.values())), **host}
            sample = derive.sample(now, _NOTHING, reading)
            found[store.node_key(self._node)] = self._kept(ScopeKind.NODE, self._node, sample)
        return found

    def _kept(self, kind: ScopeKind, scope_id: int, sample: Sample) -> Sample:
        self._rollups.add_sample((int(kind), scope_id), sample)
        return sample

    async def _tell(self, used: dict[Server, dict[str, float | None]], gpus: dict[str, Device]) -> None:
        if not used:
            return
        pipeline = async_client().pipeline(transaction=False)
        for server, process in used.items():
            told = {"process": process, "gpu": gpus.get(server.gpu_uuid, {})}
            pipeline.set(key_of(server.instance_id), json.dumps(told), px=FRESH_MS)
        async with answer():
            await pipeline.execute()


def servers() -> list[Server]:
    """This node's servers that can be measured. Reads the database."""
    rows = Instance.objects.select_related("gpu").filter(
        node__node_id=settings.INFLIGHT_NODE_ID,
        state__in=(states.SERVING, states.DRAINING),
        pid__isnull=False,
    )
    return [
        Server(row.pk, row.pid, row.process_created, row.gpu.uuid if row.gpu is not None else "")
        for row in rows
        if row.pid is not None
    ]
