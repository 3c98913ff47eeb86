"""The open step of every object, in the telemetry process, and its hand-over to the keeper."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from django.db import DatabaseError, close_old_connections

from apps.telemetry.domain import marks
from apps.telemetry.domain.derive import Sample
from apps.telemetry.domain.reading import Reading
from apps.telemetry.domain.rollup import Bucket
from apps.telemetry.storage import keeper, policy
from apps.telemetry.storage.keeper import Scoped

log = logging.getLogger(__name__)

# Steps that wait for a database that is away; older ones are lost.
MOST_WAITING = 60
PRUNE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Marked:
    """The last counted reading of one server; `created` tells its process from a later one."""

    created: float | None
    reading: Reading


@dataclass(frozen=True, slots=True)
class Closed:
    """A step that is over."""

    at: int
    buckets: Mapping[Scoped, Bucket]
    marks: Mapping[str, Marked]


class Rollups:
    """Collects samples and intervals; `roll` closes a step when its time is over. Used from the event loop only."""

    def __init__(self) -> None:
        # Where the counters stood that the open step has counted, by the server's uid.
        self.marks: dict[str, Marked] = {}
        self._at = _step_of(time.time())
        self._open: dict[Scoped, Bucket] = {}
        self._closed: deque[Closed] = deque(maxlen=MOST_WAITING)

    def add_sample(self, key: Scoped, sample: Sample) -> None:
        """One second's sample of an object."""
        self._bucket(key).add_sample(sample)

    def join(self, key: Scoped, growth: Bucket) -> None:
        """What its servers did, of an object; each interval exactly once."""
        self._bucket(key).join(growth)

    def roll(self, now: float) -> bool:
        """Close the open step if it is over; call it before anything of `now` is added."""
        at = _step_of(now)
        if at == self._at:
            return False
        self.close()
        self._at = at
        return True

    def close(self) -> None:
        """Close the open step, over or not: the next one is added to the same row."""
        if self._open:
            if len(self._closed) == MOST_WAITING:
                log.warning("The database has been away for long; the oldest stored figures are lost.")
            self._closed.append(Closed(self._at, self._open, dict(self.marks)))
        self._open = {}

    def take(self) -> Closed | None:
        """The oldest closed step that is not written yet."""
        return self._closed.popleft() if self._closed else None

    def give_back(self, closed: Closed) -> None:
        """It could not be written: try again later."""
        self._closed.appendleft(closed)

    def _bucket(self, key: Scoped) -> Bucket:
        bucket = self._open.get(key)
        if bucket is None:
            bucket = self._open[key] = Bucket()
        return bucket


def _write_own(closed: Closed) -> None:
    """Steps of a node's own scraper: it counts nothing, and the counters' marks are the telemetry process's."""
    keeper.write(closed.at, closed.buckets)


def _write(closed: Closed) -> None:
    now, wall = time.monotonic(), time.time()
    documents = {
        uid: {"created": marked.created, **marks.dump(marked.reading, now, wall)}
        for uid, marked in closed.marks.items()
    }
    keeper.write(closed.at, closed.buckets, documents)


def _step_of(now: float) -> int:
    return int(now) // policy.FINEST * policy.FINEST


class Storer:
    """Carries closed steps to the database in a thread of its own, the only one that writes them.

    `own` steps are those of a node's own scraper; longer steps are made by the telemetry process alone.
    """

    def __init__(self, rollups: Rollups, own: bool = False) -> None:
        self._rollups = rollups
        self._own = own
        self._pruned_at = 0.0
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="telemetry-db")

    async def run(self) -> None:
        """Store until cancelled; what is closed by then is still written."""
        try:
            while True:
                await self.store()
                await asyncio.sleep(1.0)
        finally:
            self._rollups.close()
            await asyncio.shield(self.store())
            self._executor.shutdown(wait=False)

    async def store(self) -> None:
        """Write what is closed."""
        while (closed := self._rollups.take()) is not None:
            if not await self._try(_write_own if self._own else _write, closed):
                self._rollups.give_back(closed)
                return
            if self._own:
                continue
            now = time.time()
            await self._try(keeper.compact, now)
            if now - self._pruned_at >= PRUNE_SECONDS:
                self._pruned_at = now
                await self._try(keeper.prune, now)

    async def marks(self) -> dict[str, Any]:
        """Where the counters stood when a process before this one ended."""
        found: dict[str, Any] = {}

        def read() -> None:
            found.update(keeper.marks())

        await self._try(read)
        return found

    async def _try(self, work: Callable[..., object], *args: Any) -> bool:
        def call() -> None:
            close_old_connections()
            try:
                work(*args)
            finally:
                close_old_connections()

        try:
            await asyncio.get_running_loop().run_in_executor(self._executor, call)
        except DatabaseError as error:
            log.warning("Stored figures wait, the database does not take them: %s", error)
            return False
        except Exception:
            log.exception("Figures could not be stored.")
        return True
