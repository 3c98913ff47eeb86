"""The telemetry process: scraper, writer, storer and the chores of other apps, until it is asked to end."""

from __future__ import annotations

import asyncio
import logging
import signal

from apps.realtime import pool
from apps.realtime.redis_clients import close_async_client
from apps.realtime.tasks import end
from apps.telemetry import chores
from apps.telemetry.node_scraper import NodeScraper
from apps.telemetry.scraper import Scraper
from apps.telemetry.storage.rollups import Rollups, Storer
from apps.telemetry.targets import Target, targets
from apps.telemetry.writer import Writer

log = logging.getLogger(__name__)


async def run(stop: asyncio.Event | None = None) -> None:
    """Run until `stop` is set (default: until SIGTERM or SIGINT)."""
    stopped = _stopping(stop)
    rollups = Rollups()
    storer = Storer(rollups)
    scraper = Scraper(_find, known=await storer.marks())
    writer = Writer(scraper, rollups, local_devices=True)
    work = [asyncio.create_task(each) for each in (scraper.run(), writer.run(), storer.run())]
    work += [asyncio.create_task(_repeat(chore)) for chore in chores.registered()]
    log.info("Telemetry is running.")
    try:
        await stopped.wait()
    finally:
        await end(work)
        await close_async_client()
    log.info("Telemetry has ended.")


async def run_node(stop: asyncio.Event | None = None) -> None:
    """A joined host's own scraper, until `stop` is set (default: until SIGTERM or SIGINT)."""
    stopped = _stopping(stop)
    rollups = Rollups()
    work = [
        asyncio.create_task(NodeScraper(rollups).run()),
        asyncio.create_task(Storer(rollups, own=True).run()),
    ]
    log.info("This host's own scraper is running.")
    try:
        await stopped.wait()
    finally:
        await end(work)
        await close_async_client()
    log.info("This host's own scraper has ended.")


def _stopping(stop: asyncio.Event | None) -> asyncio.Event:
    if stop is not None:
        return stop
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    return stopped


async def _find() -> list[Target]:
    return await pool.run(targets)


async def _repeat(chore: chores.Chore) -> None:
    while True:
        try:
            await pool.run(chore.function)
        except Exception:
            log.exception("The chore %s failed.", chore.name)
        await asyncio.sleep(chore.seconds)
