"""The scraper: every server once a second, each in its own task, and one writer of what they say.

A server that is slow or dead delays nobody: its task waits alone, and is asked less often the longer it is silent.
A second without a reading gives no sample; nothing is carried on or made up.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import aiohttp

from apps.telemetry.devices import ProcessGauge
from apps.telemetry.domain import derive, prometheus
from apps.telemetry.domain.derive import Interval, Reading, Window
from apps.telemetry.targets import Target

log = logging.getLogger(__name__)

PERIOD = 1.0
TIMEOUT = 0.9
# Servers are asked within this part of each second; the writer follows at WRITE_OFFSET.
SPREAD = 0.3
WRITE_OFFSET = 0.6
# After so many failures in a row a server is asked less often, up to LONGEST_PAUSE seconds apart.
PATIENCE = 3
LONGEST_PAUSE = 10.0
# A reading further back than this begins anew: a rate over a long silence would hide the silence.
LONGEST_STEP = 5.0
# An exposition larger than this is no exposition of ours.
MOST_BYTES = 8_388_608


@dataclass(frozen=True, slots=True)
class Observation:
    """What one server did in the second that ended at `at` (epoch), and what its processes used."""

    at: float
    interval: Interval
    process: dict[str, float | None]


def until_tick(offset: float, pause: float = 0.0) -> float:
    """Seconds until the next moment `offset` seconds into a period; a `pause` above PERIOD passes some over.

    Reader and writer keep to one grid: two loops that merely wait a second each would cross now and then, and each
    crossing would cost a sample.
    """
    now = time.monotonic()
    ticks = math.floor((now - offset) / PERIOD) + max(1, round(pause / PERIOD))
    return max(0.0, ticks * PERIOD + offset - now)


class Scrape:
    """The regular reading of one server."""

    def __init__(self, target: Target, session: aiohttp.ClientSession) -> None:
        self.target = target
        self.latest: Observation | None = None
        self.failures = 0
        self._session = session
        self._before: Reading | None = None
        self._window = Window()
        self._process = ProcessGauge(target.pid, target.created) if target.pid else None
        self._stopped = False
        self._task = asyncio.create_task(self._run(), name=f"scrape {target.uid}")

    def stop(self) -> None:
        """End the reading."""
        self._stopped = True
        self._task.cancel()

    async def _run(self) -> None:
        # Servers are asked a little apart from each other, each always at the same moment of the second.
        offset = (self.target.instance_id * 0.07) % SPREAD
        while not self._stopped:
            await asyncio.sleep(until_tick(offset, self._pause()))
            try:
                await self._once()
                if self.failures >= PATIENCE:
                    log.info("%s answers again.", self.target.uid)
                self.failures = 0
            except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
                self.failures += 1
                if self.failures == PATIENCE:
                    log.warning(
                        "%s does not give its metrics: %s", self.target.uid, error or type(error).__name__
                    )
            except Exception:
                self.failures += 1
                log.exception("The metrics of %s could not be read.", self.target.uid)

    def _pause(self) -> float:
        if self.failures < PATIENCE:
            return PERIOD
        return min(LONGEST_PAUSE, PERIOD * 2.0 ** (self.failures - PATIENCE + 1))

    async def _once(self) -> None:
        text = await self._fetch()
        at = time.time()
        reading = derive.read(prometheus.parse(text, derive.WANTED), time.monotonic())
        before = self._before
        if before is not None and reading.at - before.at > LONGEST_STEP:
            before, self._window = None, Window()
        happened = derive.interval(reading, before, self._window)
        self._before = reading
        process = await asyncio.to_thread(self._process.read) if self._process else {}
        self.latest = Observation(at, happened, process)

    async def _fetch(self) -> str:
        timeout = aiohttp.ClientTimeout(total=TIMEOUT)
        async with self._session.get(self.target.url, timeout=timeout, allow_redirects=False) as response:
            response.raise_for_status()
            body = bytearray()
            async for chunk in response.content.iter_chunked(65_536):
                body += chunk
                if len(body) > MOST_BYTES:
                    raise ValueError(f"more than {MOST_BYTES} bytes")
        return body.decode("utf-8", errors="replace")


class Scraper:
    """All regular readings, kept in step with `find` (targets; blocking, called in a thread every `refresh` s)."""

    def __init__(self, find: Callable[[], Awaitable[list[Target]]], refresh: float = 2.0) -> None:
        self.scrapes: dict[int, Scrape] = {}
        self._find = find
        self._refresh = refresh

    async def run(self) -> None:
        """Read until cancelled."""
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=30)
        async with aiohttp.ClientSession(connector=connector) as session:
            try:
                while True:
                    await self._follow(session)
                    await asyncio.sleep(self._refresh)
            finally:
                for scrape in self.scrapes.values():
                    scrape.stop()

    async def _follow(self, session: aiohttp.ClientSession) -> None:
        try:
            wanted = {target.instance_id: target for target in await self._find()}
        except Exception:
            # The database may be away or locked for a moment; the servers known so far are read on.
            log.exception("The servers to scrape could not be listed.")
            return
        for key, scrape in list(self.scrapes.items()):
            if wanted.get(key) != scrape.target:
                scrape.stop()
                del self.scrapes[key]
        for key, target in wanted.items():
            if key not in self.scrapes:
                self.scrapes[key] = Scrape(target, session)
