"""Once a period: the newest readings of all servers become samples, are kept, and go to the live topics."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from apps.realtime import pool
from apps.realtime.groups import group_of
from apps.realtime.layer import channel_layer
from apps.realtime.redis_clients import REDIS_ERRORS
from apps.telemetry import devices, pace, store, targets
from apps.telemetry.devices import Device
from apps.telemetry.domain import derive
from apps.telemetry.domain.derive import Interval, Sample
from apps.telemetry.domain.rollup import Bucket, increments, of_intervals
from apps.telemetry.domain.vocabulary import NAMES
from apps.telemetry.scraper import Observation, Scrape, Scraper
from apps.telemetry.storage.keeper import Scoped
from apps.telemetry.storage.models import ScopeKind
from apps.telemetry.storage.rollups import Marked, Rollups

log = logging.getLogger(__name__)

# A server that answered within so many periods still counts in its deployment's sum: two servers are not read at the
# same moment, and one late answer must not look like half the traffic.
FRESH_PERIODS = 2.5
# This host's GPUs are looked up again after so many seconds.
DEVICES_SECONDS = 10.0
# Objects that are worked on before the readers get their turn again.
AT_ONCE = 20
_FLEET = (int(ScopeKind.FLEET), 0)


@dataclass(slots=True)
class Tick:
    """What one tick writes: samples by stream, increments by stream, samples by live topic.

    `growth` is what counters and histograms grew by, by object.
    """

    growth: dict[Scoped, Bucket] = field(default_factory=dict)

    samples: dict[str, Sample] = field(default_factory=dict)
    more: dict[str, dict[str, Any]] = field(default_factory=dict)
    published: dict[str, Sample] = field(default_factory=dict)


class Writer:
    """Turns the scraper's readings into samples and open steps."""

    def __init__(self, scraper: Scraper, rollups: Rollups | None = None, local_devices: bool = False) -> None:
        self._scraper = scraper
        self._rollups = rollups or Rollups()
        self._gpus = devices.Gpus()
        self._away = False
        self._local = local_devices
        self._node: int | None = None
        self._devices: list[targets.Device] = []
        self._devices_at = float("-inf")

    async def run(self) -> None:
        """Write until cancelled. Redis away: live samples of that time are a gap, stored steps are not."""
        while True:
            length = self._scraper.length()
            await asyncio.sleep(pace.until_tick(pace.write_offset(length), length))
            try:
                await self.once()
                self._away = False
            except REDIS_ERRORS as error:
                if not self._away:
                    log.warning("Samples are not kept, Redis does not answer: %s", error)
                self._away = True
            except Exception:
                log.exception("The samples of this second were not written.")

    async def once(self) -> None:
        """Write and publish the samples of this period."""
        await self._find_devices()
        scrapes = list(self._scraper.scrapes.values())
        uuids = {s.target.gpu_uuid for s in scrapes} | {device.uuid for device in self._devices}
        gpus = await asyncio.to_thread(self._gpus.read, uuids - {""})
        host = await asyncio.to_thread(devices.host) if self._local else {}
        now = time.time()
        self._rollups.roll(now)
        tick = await self._tick(now, scrapes, gpus)
        self._host_samples(tick, now, host, gpus)
        await store.write(tick.samples, tick.more)
        await asyncio.gather(*(self._publish(topic, sample) for topic, sample in tick.published.items()))

    async def _find_devices(self) -> None:
        if self._local and time.monotonic() - self._devices_at >= DEVICES_SECONDS:
            self._devices_at = time.monotonic()
            try:
                self._node, self._devices = await pool.run(targets.devices)
            except Exception:
                log.exception("The GPUs of this host could not be listed.")

    async def _tick(self, now: float, scrapes: list[Scrape], gpus: dict[str, Device]) -> Tick:
        tick = Tick()
        taken = {scrape.target.instance_id: scrape.take() for scrape in scrapes}
        fresh_seconds = FRESH_PERIODS * self._scraper.length()
        fresh = {s for s in scrapes if s.latest and now - s.latest.at <= fresh_seconds}
        lost = [s for s in scrapes if s.lost]
        tick.growth = await self._count(scrapes, taken)
        groups: dict[int, list[Scrape]] = defaultdict(list)
        for number, scrape in enumerate(scrapes):
            groups[scrape.target.deployment_id].append(scrape)
            if number % AT_ONCE == 0:
                await asyncio.sleep(0)
            if scrape.lost or (scrape in fresh and taken[scrape.target.instance_id]):
                self._sample(tick, now, "instance", scrape.target.instance_id, [scrape], gpus)
        for number, (deployment_id, members) in enumerate(groups.items()):
            if number % AT_ONCE == 0:
                await asyncio.sleep(0)
            sample = self._group(tick, now, "deployment", deployment_id, members, taken, fresh, gpus)
            if sample is not None:
                tick.published[f"metrics:{deployment_id}"] = sample
        if scrapes and (fresh or lost):
            sample = self._group(tick, now, "fleet", 0, scrapes, taken, fresh, gpus)
            if sample is not None:
                tick.published["metrics"] = sample
        return tick

    def _group(
        self,
        tick: Tick,
        now: float,
        kind: str,
        scope_id: int,
        members: list[Scrape],
        taken: Mapping[int, list[Observation]],
        fresh: set[Scrape],
        gpus: Mapping[str, Device],
    ) -> Sample | None:
        """A sample of several servers; None where nothing new is known of any: this period is a gap."""
        news = any(taken[member.target.instance_id] for member in members)
        if not news and not any(member.lost for member in members):
            return None
        return self._sample(tick, now, kind, scope_id, members, gpus, fresh)

    def _sample(
        self,
        tick: Tick,
        now: float,
        kind: str,
        scope_id: int,
        members: list[Scrape],
        gpus: Mapping[str, Device],
        fresh: set[Scrape] | None = None,
    ) -> Sample:
        counted = [member for member in members if not member.lost and (fresh is None or member in fresh)]
        sample = _merged(now, counted, gpus)
        sample["targets"] = float(len(members))
        sample["targets_lost"] = float(sum(member.lost for member in members))
        key = store.key_of(kind, scope_id)
        scoped = (int(ScopeKind[kind.upper()]), scope_id)
        tick.samples[key] = sample
        if scoped in tick.growth:
            tick.more[key] = increments(tick.growth[scoped])
        self._rollups.add_sample(scoped, sample)
        return sample

    async def _count(
        self, scrapes: list[Scrape], taken: Mapping[int, list[Observation]]
    ) -> dict[Scoped, Bucket]:
        """Each observation once into the open steps of all that its server belongs to; what they grew by."""
        intervals: dict[Scoped, list[Interval]] = defaultdict(list)
        for scrape in scrapes:
            target = scrape.target
            for each in taken[target.instance_id]:
                for key in (
                    (int(ScopeKind.INSTANCE), target.instance_id),
                    (int(ScopeKind.DEPLOYMENT), target.deployment_id),
                    _FLEET,
                ):
                    intervals[key].append(each.interval)
                if each.reading is not None:
                    self._rollups.marks[target.uid] = Marked(target.created, each.reading)
        known = {scrape.target.uid for scrape in scrapes}
        for uid in set(self._rollups.marks) - known:
            del self._rollups.marks[uid]
        growth = {}
        for number, (key, happened) in enumerate(intervals.items()):
            growth[key] = of_intervals(happened)
            self._rollups.join(key, growth[key])
            if number % AT_ONCE == 0:
                await asyncio.sleep(0)
        return growth

    def _host_samples(self, tick: Tick, now: float, host: Device, gpus: Mapping[str, Device]) -> None:
        """Samples of this host and its GPUs, whether or not a server runs on them."""
        own = {device.gpu_id: gpus[device.uuid] for device in self._devices if device.uuid in gpus}
        for gpu_id, reading in own.items():
            sample = derive.sample(now, _NOTHING, reading)
            tick.samples[store.gpu_key(gpu_id)] = sample
            self._rollups.add_sample((int(ScopeKind.GPU), gpu_id), sample)
        if self._node is not None and host:
            reading = {**devices.merged([], list(own.values())), **host}
            sample = derive.sample(now, _NOTHING, reading)
            tick.samples[store.node_key(self._node)] = sample
            self._rollups.add_sample((int(ScopeKind.NODE), self._node), sample)

    async def _publish(self, topic: str, sample: Sample) -> None:
        message: dict[str, Any] = {"type": "topic.samples", "topic": topic, "samples": [sample]}
        await channel_layer().group_send(group_of(topic), message)


_NOTHING = Interval({}, {}, {})


def _merged(now: float, scrapes: Iterable[Scrape], gpus: Mapping[str, Device]) -> Sample:
    """One sample of several servers; all null of none."""
    pairs = [(scrape.target, scrape.latest) for scrape in scrapes if scrape.latest]
    if not pairs:
        return {"at": round(now, 3)} | dict.fromkeys(NAMES, None)
    observations = [latest for _target, latest in pairs]
    uuids = {target.gpu_uuid for target, _latest in pairs} - {""}
    told = devices.told_by_servers(each.interval.gpus for each in observations)
    told |= {target.gpu_uuid: latest.gpu for target, latest in pairs if latest.gpu}
    device = devices.merged(
        [each.process for each in observations],
        [gpus.get(uuid) or told[uuid] for uuid in uuids if uuid in gpus or uuid in told],
    )
    device["scrape_seconds"] = max(each.seconds for each in observations)
    device["unreadable_lines"] = float(sum(each.unreadable for each in observations))
    at = observations[0].at if len(observations) == 1 else now
    return derive.sample(at, derive.merge([each.interval for each in observations]), device)
