"""The newest table of keys and routes, kept in memory: told by Redis at once, compared with the database every 2 s.

A message may be lost, so the version is compared too. While the database or Redis is away the last table goes on
answering: requests with keys that are in it do not notice.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType

from django.db import close_old_connections, connection

from apps.core.exceptions import InflightError
from apps.gateway.domain.facts import Table
from apps.gateway.table import TABLE_CHANNEL, current_version, load_table
from apps.realtime.redis_clients import REDIS_ERRORS, answer, async_client
from apps.streaming.domain.chat_template import ChatTemplate

log = logging.getLogger(__name__)

POLL_SECONDS = 2.0
AGAIN_SECONDS = 1.0
EMPTY = Table(version=-1, keys=MappingProxyType({}), routes=MappingProxyType({}))


class TableHolder:
    """Holds the table.

    `loaded` is false until the database was read once. The ORM runs on one thread of its own.
    """

    def __init__(
        self,
        load: Callable[[], Table] = load_table,
        version: Callable[[], int] = current_version,
    ) -> None:
        self.table = EMPTY
        self.loaded = False
        self.problem = ""
        self._load, self._version = load, version
        self._changed: Callable[[Table], None] = lambda table: None
        self._thread = ThreadPoolExecutor(1, "gateway-table")
        self._wake = asyncio.Event()
        self._told = False

    def on_change(self, changed: Callable[[Table], None]) -> None:
        """Call this in the event loop with each new table."""
        self._changed = changed

    async def start(self) -> None:
        """Load the table; a database that is away is tried again by `poll`."""
        await self._refresh(always=True)

    async def poll(self) -> None:
        """Compare versions every 2 s, and at once when `listen` was told, until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_SECONDS if self.loaded else AGAIN_SECONDS):
                    await self._wake.wait()
            self._wake.clear()
            told, self._told = self._told, False
            await self._refresh(always=told or not self.loaded)

    async def listen(self) -> None:
        """Hear of changes until cancelled; subscribes again whenever Redis comes back."""
        while True:
            with contextlib.suppress(*REDIS_ERRORS):
                async with async_client().pubsub() as channel:
                    async with answer():
                        await channel.subscribe(TABLE_CHANNEL)
                    # What was said while nobody listened.
                    self._notify()
                    async for message in channel.listen():
                        if message.get("type") == "message":
                            self._notify()
            await asyncio.sleep(AGAIN_SECONDS)

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _notify(self) -> None:
        self._told = True
        self._wake.set()

    async def _refresh(self, always: bool) -> None:
        loop = asyncio.get_running_loop()
        try:
            found = await loop.run_in_executor(self._thread, self._read, always)
        except Exception as error:
            # Whatever it is, requests go on with the table that there is.
            if str(error) != self.problem:
                log.warning("The table of keys and routes cannot be read, the last one is kept: %s", error)
            self.problem = str(error) or type(error).__name__
            return
        self.problem = ""
        if found is not None:
            self.table, self.loaded = found, True
            self._changed(found)

    def _read(self, always: bool) -> Table | None:
        close_old_connections()
        try:
            if not always and self._version() == self.table.version:
                return None
            table = self._load()
        except Exception:
            # A connection that broke is not used again.
            connection.close()
            raise
        for route in table.routes.values():
            if route.template:
                # Compiling takes tens of milliseconds, which a stream would feel.
                with contextlib.suppress(InflightError):
                    ChatTemplate(route.template)
        return table
