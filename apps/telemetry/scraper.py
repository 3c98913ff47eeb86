"""The scraper: every server once a period, each in its own task.

A server that is slow or dead delays nobody: its task waits alone, and is asked less often the longer it is silent.
A period without a reading gives no figures; nothing is carried on or made up.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp

from apps.telemetry import pace
from apps.telemetry.devices import Device, ProcessGauge
from apps.telemetry.domain import derive, marks, prometheus
from apps.telemetry.domain.derive import Interval, Reading, Window
from apps.telemetry.fetch import Fetcher, Refused
from apps.telemetry.node_scraper import RemoteProcess, Told
from apps.telemetry.statistics import Statistics
from apps.telemetry.target import Target

log = logging.getLogger(__name__)

# After so many failures in a row a server counts as lost and is asked less often, up to LONGEST_PAUSE seconds apart.
PATIENCE = 3
LONGEST_PAUSE = 10.0
# Observations that nobody took yet, of a writer that hangs.
MOST_PENDING = 120


@dataclass(frozen=True, slots=True)
class Observation:
    """What one server did in the period that ended at `at` (epoch), and what its processes used.

    `reading` is where its counters stood then; `gpu` what another host told of its GPU.
    """

    at: float
    interval: Interval
    process: dict[str, float | None]
    seconds: float = 0.0
    unreadable: int = 0
    reading: Reading | None = None
    gpu: Device | None = None


class Scrape:
    """The regular reading of one server. `mark` is where its counters stood before this process began."""

    def __init__(
        self,
        target: Target,
        session: aiohttp.ClientSession,
        length: Callable[[], float] = lambda: pace.PERIOD,
        mark: Any = None,
    ) -> None:
        self.target = target
        self.latest: Observation | None = None
        self.failures = 0
        self.scrapes = 0
        self.failed = 0
        self._pending: deque[Observation] = deque(maxlen=MOST_PENDING)
        self._length = length
        self._fetcher = Fetcher(session)
        self._statistics = Statistics(target, self._fetcher)
        self._before = marks.load(mark, time.monotonic(), time.time()) if mark else None
        self._window = Window()
        self._process = ProcessGauge(target.pid, target.created) if target.pid else None
        self._remote = RemoteProcess(target.instance_id) if target.remote else None
        self._stopped = False
        self._task = asyncio.create_task(self._run(), name=f"scrape {target.uid}")

    def stop(self) -> None:
        """End the reading."""
        self._stopped = True
        self._task.cancel()

    @property
    def lost(self) -> bool:
        """Whether it has not answered for long enough to say so."""
        return self.failures >= PATIENCE

    def take(self) -> list[Observation]:
        """Observations since the last call, oldest first: each is taken once."""
        taken = list(self._pending)
        self._pending.clear()
        return taken

    async def _run(self) -> None:
        # Servers are asked a little apart from each other, each always at the same moment of the period.
        place = (self.target.instance_id * 0.618034) % 1.0
        while not self._stopped:
            length = self._length()
            await asyncio.sleep(pace.until_tick(place * pace.spread(length), length, self._pause()))
            self.scrapes += 1
            try:
                await self._once()
                if self.lost:
                    log.info("%s answers again.", self.target.uid)
                self.failures = 0
            except (aiohttp.ClientError, TimeoutError, OSError, Refused) as error:
                self._failed(error)
            except Exception:
                self._failed(None)
                log.exception("The metrics of %s could not be read.", self.target.uid)

    def _failed(self, error: Exception | None) -> None:
        self.failures += 1
        self.failed += 1
        if self.failures == PATIENCE and error is not None:
            log.warning("%s does not give its metrics: %s", self.target.uid, error or type(error).__name__)

    def _pause(self) -> float:
        length = self._length()
        if not self.lost:
            return length
        return max(length, min(LONGEST_PAUSE, length * 2.0 ** min(self.failures - PATIENCE + 1, 10)))

    async def _once(self) -> None:
        length = self._length()
        asked = time.monotonic()
        text = await self._fetcher.text(self.target.url, pace.patience(length))
        now, at = time.monotonic(), time.time()
        exposition = prometheus.parse(text, derive.WANTED)
        reading = derive.carried(derive.read(exposition, now), self._before)
        await self._statistics.add_to(reading)
        longest = max(derive.LONGEST_STEP, 2.5 * length)
        happened = derive.interval(reading, self._before, self._window, longest)
        self._before = reading
        told = await asyncio.to_thread(self._told)
        took = time.monotonic() - asked
        self.latest = Observation(
            at, happened, told.process, took, exposition.unreadable, reading, told.gpu or None
        )
        self._pending.append(self.latest)

    def _told(self) -> Told:
        if self._remote is not None:
            return self._remote.read()
        return Told(self._process.read() if self._process else {}, {})


class Scraper:
    """All regular readings, kept in step with `find` (targets; blocking, called in a thread every `refresh` s)."""

    def __init__(
        self,
        find: Callable[[], Awaitable[list[Target]]],
        refresh: float = 2.0,
        known: Mapping[str, Any] | None = None,
    ) -> None:
        self.scrapes: dict[int, Scrape] = {}
        self._find = find
        self._refresh = refresh
        self._known: dict[str, Any] = dict(known or {})

    def length(self) -> float:
        """Seconds between two readings of each server."""
        return pace.period(len(self.scrapes))

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
                self.scrapes[key] = Scrape(target, session, self.length, self._mark_of(target))

    def _mark_of(self, target: Target) -> Any:
        """Where the counters of exactly this server stood; a restarted one began anew."""
        mark = self._known.pop(target.uid, None)
        return mark if isinstance(mark, dict) and mark.get("created") == target.created else None
