"""Once a second: the newest readings of all servers become samples, are kept, and go to the live topics."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from typing import Any

from apps.realtime.groups import group_of
from apps.realtime.layer import channel_layer
from apps.realtime.redis_clients import REDIS_ERRORS
from apps.telemetry import devices, store
from apps.telemetry.domain import derive
from apps.telemetry.domain.derive import Sample
from apps.telemetry.scraper import WRITE_OFFSET, Observation, Scrape, Scraper, until_tick

log = logging.getLogger(__name__)

# A server that answered this recently still counts in its deployment's sum: two servers are not read at the same
# moment, and one late answer must not look like half the traffic.
FRESH_SECONDS = 2.5

Device = dict[str, float | None]


class Writer:
    """Turns the scraper's readings into samples."""

    def __init__(self, scraper: Scraper) -> None:
        self._scraper = scraper
        self._gpus = devices.Gpus()
        self._written_at: dict[int, float] = {}
        self._away = False

    async def run(self) -> None:
        """Write until cancelled. Redis away: the seconds until it is back are lost and stay a gap."""
        while True:
            await asyncio.sleep(until_tick(WRITE_OFFSET))
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
        """Write and publish the samples of this second."""
        scrapes = list(self._scraper.scrapes.values())
        gpus = await asyncio.to_thread(self._gpus.read, {s.target.gpu_uuid for s in scrapes} - {""})
        samples, published = self._samples(time.time(), scrapes, gpus)
        await store.write(samples)
        await asyncio.gather(*(self._publish(topic, sample) for topic, sample in published.items()))

    def _samples(
        self, now: float, scrapes: list[Scrape], gpus: dict[str, Device]
    ) -> tuple[dict[str, Sample], dict[str, Sample]]:
        """Samples by stream, and those of the live topics by topic."""
        fresh = {s.target.instance_id: s for s in scrapes if s.latest and now - s.latest.at <= FRESH_SECONDS}
        told = {
            key: s for key, s in fresh.items() if s.latest and s.latest.at > self._written_at.get(key, 0.0)
        }
        self._written_at = {key: s.latest.at for key, s in fresh.items() if s.latest}
        groups: dict[int, list[Scrape]] = defaultdict(list)
        for scrape in fresh.values():
            groups[scrape.target.deployment_id].append(scrape)
        samples = {store.instance_key(key): _merged(now, [scrape], gpus) for key, scrape in told.items()}
        published: dict[str, Sample] = {}
        for deployment_id, members in groups.items():
            # Nothing new from any of them: this second is a gap.
            if any(member.target.instance_id in told for member in members):
                sample = _merged(now, members, gpus)
                samples[store.deployment_key(deployment_id)] = sample
                published[f"metrics:{deployment_id}"] = sample
        if told:
            samples[store.FLEET] = published["metrics"] = _merged(now, list(fresh.values()), gpus)
        return samples, published

    async def _publish(self, topic: str, sample: Sample) -> None:
        message: dict[str, Any] = {"type": "topic.samples", "topic": topic, "samples": [sample]}
        await channel_layer().group_send(group_of(topic), message)


def _merged(now: float, scrapes: list[Scrape], gpus: dict[str, Device]) -> Sample:
    """One sample of several servers."""
    observations: list[Observation] = [scrape.latest for scrape in scrapes if scrape.latest]
    uuids = {scrape.target.gpu_uuid for scrape in scrapes}
    device = devices.merged(
        [observation.process for observation in observations], [gpus[uuid] for uuid in uuids if uuid in gpus]
    )
    at = observations[0].at if len(observations) == 1 else now
    return derive.sample(at, derive.merge([observation.interval for observation in observations]), device)
