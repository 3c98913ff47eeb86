"""Noticing that messages of the channel layer were lost.

Pub/sub delivers at most once: what is published while Redis or the connection is away is gone, and the layer
reconnects without a word. One numbered beat after the other goes through the same connection as all messages of the
process; a number that is missing means that others may be missing too, so every socket is told.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Callable

from apps.realtime.layer import channel_layer, require_redis
from apps.realtime.redis_clients import REDIS_ERRORS

log = logging.getLogger(__name__)

EVERY = 0.5
# Beats that may be on their way before the layer counts as away.
LATE = 4

# Called with False when the layer is away, with True when it is back and messages may have been lost.
Listener = Callable[[bool], None]


class Canary:
    """Watches the layer of one event loop while somebody listens."""

    def __init__(self) -> None:
        self._listeners: set[Listener] = set()
        self._task: asyncio.Task[None] | None = None
        self.away = False

    def listen(self, listener: Listener) -> None:
        """Call `listener` when the layer goes away and when it is back."""
        self._listeners.add(listener)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._watch())

    def forget(self, listener: Listener) -> None:
        """End `listen`; the last one ends the watch."""
        self._listeners.discard(listener)
        if not self._listeners and self._task is not None:
            self._task.cancel()
            self._task = None

    async def _watch(self) -> None:
        # Not "while True": a cancel may be lost (tasks.py).
        while self._listeners:
            try:
                await self._beat()
            except REDIS_ERRORS as error:
                self._tell(back=False, why=str(error))
            except Exception:
                log.exception("The watch over the channel layer failed.")
            await asyncio.sleep(EVERY)

    async def _beat(self) -> None:
        """Send and receive beats until one cannot be sent."""
        await require_redis()
        layer = channel_layer()
        channel = await layer.new_channel("canary.")
        sent = seen = 0
        receiving: asyncio.Future[dict[str, int]] = asyncio.ensure_future(layer.receive(channel))
        try:
            while self._listeners:
                sent += 1
                await layer.send(channel, {"type": "canary.beat", "number": sent})
                deadline = asyncio.get_running_loop().time() + EVERY
                while (left := deadline - asyncio.get_running_loop().time()) > 0:
                    done, _pending = await asyncio.wait({receiving}, timeout=left)
                    if not done:
                        break
                    number = receiving.result()["number"]
                    receiving = asyncio.ensure_future(layer.receive(channel))
                    if number != seen + 1 or self.away:
                        self._tell(back=True, why=f"beat {number} after {seen}")
                    seen = number
                if sent - seen >= LATE:
                    self._tell(back=False, why=f"{sent - seen} beats did not arrive")
        finally:
            receiving.cancel()
            await asyncio.gather(receiving, return_exceptions=True)

    def _tell(self, back: bool, why: str) -> None:
        if not back and self.away:
            return
        if back:
            log.warning("The channel layer lost messages (%s); sockets resynchronise.", why)
        else:
            log.warning("The channel layer is away (%s).", why)
        self.away = not back
        for listener in list(self._listeners):
            listener(back)


_canaries: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Canary] = weakref.WeakKeyDictionary()


def canary() -> Canary:
    """The running loop's canary."""
    return _canaries.setdefault(asyncio.get_running_loop(), Canary())
