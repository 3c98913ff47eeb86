"""Requests that run now: known to the process that serves them, told to all through Redis, cancelled from there.

Each gateway process writes a snapshot under `gateway:running:<process>`, at most twice a second and only when
something changed; the key lives KEPT_SECONDS, so that a process that died is forgotten. A copy under
`gateway:begun:<process>` outlives it: what a killed process had sent is counted out of that (usage/orphans.py). A
cancel is a message on a channel: the process that has the request ends it. `snapshot` and `request_cancel` are for
pages and commands and block; `Registry` belongs to the event loop of a gateway process.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from apps.realtime.redis_clients import REDIS_ERRORS, answer, async_client, sync_client

log = logging.getLogger(__name__)

PREFIX = "gateway:running:"
BEGUN_PREFIX = "gateway:begun:"
# Names that were asked for while they slept and for which another route answered; kept as long as a snapshot.
WANTED_PREFIX = "gateway:wanted:"
CANCEL_CHANNEL = "gateway:cancel"
KEPT_SECONDS = 5
# Nobody comes back for what a process had begun so long ago.
BEGUN_SECONDS = 3600
# With the time of writing it, less than a second of what a killed process had sent is unknown.
PUBLISH_SECONDS = 0.5
AGAIN_SECONDS = 1.0
# More than a page shows; the oldest are told.
MOST_PUBLISHED = 2_000


@dataclass(slots=True)
class RunningRequest:
    """One request that is not over. `began` is an epoch second, `phase` one of waiting, started, generating.

    `tokens` counts what was sent so far: messages, where the engine does not count (then `counted` is false).
    `process` names the gateway process that serves it.
    """

    request_id: str
    key_id: int | None
    key_name: str
    route: str
    endpoint: str
    priority: int
    streamed: bool
    began: float
    process: str = ""
    phase: str = "waiting"
    upstream: str = ""
    ttft_seconds: float | None = None
    queue_seconds: float | None = None
    tokens: int = 0
    counted: bool = False


def snapshot() -> list[RunningRequest]:
    """Every request that runs in any gateway process, oldest first. Blocks; empty where Redis is away."""
    try:
        client = sync_client()
        keys = list(client.scan_iter(match=f"{PREFIX}*", count=100))
        texts: list[Any] = client.mget(keys) if keys else []
    except REDIS_ERRORS:
        return []
    found = [one for text in texts if text for one in read(text)]
    return sorted(found, key=lambda one: one.began)


def wanted() -> list[str]:
    """Routes that sleep, were asked for lately, and had another one answer. Blocks; empty where Redis is away."""
    try:
        keys = list(sync_client().scan_iter(match=f"{WANTED_PREFIX}*", count=100))
    except REDIS_ERRORS:
        return []
    return sorted(str(key).removeprefix(WANTED_PREFIX) for key in keys)


def request_cancel(request_id: str) -> bool:
    """Ask whichever process has the request to end it; False where Redis is away or no process listens. Blocks."""
    try:
        heard: int = sync_client().publish(CANCEL_CHANNEL, request_id)
    except REDIS_ERRORS:
        return False
    return heard > 0


def read(text: str) -> Iterator[RunningRequest]:
    """Requests of one process's snapshot; what another release wrote in another form is passed over."""
    try:
        rows = orjson.loads(text)
    except ValueError:
        return
    for row in rows if isinstance(rows, list) else ():
        with contextlib.suppress(TypeError):
            yield RunningRequest(**row)


class Registry:
    """The running requests of this process, by id."""

    def __init__(self) -> None:
        self.process = f"{os.getpid()}-{secrets.token_hex(3)}"
        self._running: dict[str, tuple[RunningRequest, Callable[[], object]]] = {}
        self._published = b""
        self._published_at = 0.0
        # Names for `wanted` that are not published yet.
        self.wanted: set[str] = set()

    def __len__(self) -> int:
        return len(self._running)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._running

    def add(self, request: RunningRequest, cancel: Callable[[], object]) -> None:
        """A request began; `cancel` ends it, from this loop."""
        request.process = self.process
        self._running[request.request_id] = (request, cancel)

    def want(self, route: str) -> None:
        """A route that sleeps was asked for, and another one answers: whoever wakes it is to know."""
        self.wanted.add(route)

    def remove(self, request_id: str) -> None:
        """It is over."""
        self._running.pop(request_id, None)

    def cancel(self, request_id: str) -> bool:
        """End a request of this process; False where it has none of that id."""
        found = self._running.get(request_id)
        if found is None:
            return False
        found[1]()
        return True

    def cancel_all(self) -> int:
        """End every request; how many there were."""
        running = list(self._running.values())
        for _, cancel in running:
            cancel()
        return len(running)

    async def publish(self) -> None:
        """Write the snapshots until cancelled. A Redis that is away is tried again each second."""
        while True:
            await asyncio.sleep(PUBLISH_SECONDS)
            with contextlib.suppress(*REDIS_ERRORS):
                await self._publish_once()

    async def listen(self) -> None:
        """Obey cancels until cancelled; subscribes again whenever Redis comes back."""
        while True:
            with contextlib.suppress(*REDIS_ERRORS):
                await self._listen_once()
            await asyncio.sleep(AGAIN_SECONDS)

    async def withdraw(self) -> None:
        """Take this process's snapshot away, at its end."""
        with contextlib.suppress(*REDIS_ERRORS):
            async with answer():
                await async_client().delete(PREFIX + self.process, BEGUN_PREFIX + self.process)

    async def _publish_once(self) -> None:
        rows = [request for request, _ in itertools.islice(self._running.values(), MOST_PUBLISHED)]
        text = orjson.dumps(rows)
        now = time.monotonic()
        wanted = sorted(self.wanted)
        # An unchanged snapshot is written again before it would be forgotten.
        if (
            not wanted
            and text == self._published
            and (not rows or now - self._published_at < KEPT_SECONDS / 2)
        ):
            return
        async with answer(), async_client().pipeline(transaction=False) as pipeline:
            if rows:
                pipeline.set(PREFIX + self.process, text, ex=KEPT_SECONDS)
                pipeline.set(BEGUN_PREFIX + self.process, text, ex=BEGUN_SECONDS)
            else:
                pipeline.delete(PREFIX + self.process, BEGUN_PREFIX + self.process)
            for name in wanted:
                pipeline.set(WANTED_PREFIX + name, 1, ex=KEPT_SECONDS)
            await pipeline.execute()
        self.wanted.difference_update(wanted)
        self._published, self._published_at = text, now

    async def _listen_once(self) -> None:
        async with async_client().pubsub() as channel:
            async with answer():
                await channel.subscribe(CANCEL_CHANNEL)
            async for message in channel.listen():
                if message.get("type") == "message":
                    self.cancel(str(message.get("data")))
