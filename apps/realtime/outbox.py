"""What a socket still has to send. Bounded: a browser that reads slowly costs neither memory nor other sockets.

State goes in under a key, so that only the newest message of a topic waits. Logs and tokens wait for room before
they are taken from where they come from. Answers to commands queue; more than LIMIT of them waiting ends the socket.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable

LIMIT = 200

Render = Callable[[], str | None]


class TooSlow(Exception):
    """The browser does not read what it asked for."""


class Outbox:
    """Messages of one socket in order of arrival, written by one task (`run`)."""

    def __init__(self, send: Callable[[str], Awaitable[None]]) -> None:
        self._send = send
        self._waiting: dict[object, Render] = {}
        self._numbers = itertools.count()
        self._news = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()

    def __len__(self) -> int:
        return len(self._waiting)

    def push(self, text: str) -> None:
        """Queue a message. Raises TooSlow where LIMIT are waiting."""
        if len(self._waiting) >= LIMIT:
            raise TooSlow
        self._add(next(self._numbers), lambda: text)

    def replace(self, key: str, render: Render) -> None:
        """Queue a message instead of the one waiting under `key`; `render` is called when it is its turn."""
        self._add(key, render)

    def discard(self, key: str) -> None:
        """Forget the message waiting under `key`."""
        self._waiting.pop(key, None)

    async def room(self) -> None:
        """Wait until nothing is waiting; then take what is newest and `push` it without awaiting in between."""
        while self._waiting:
            self._empty.clear()
            await self._empty.wait()

    async def run(self) -> None:
        """Send until cancelled, or until the socket refuses (the error of the server is raised)."""
        while True:
            while self._waiting:
                key = next(iter(self._waiting))
                text = self._waiting.pop(key)()
                if text is not None:
                    await self._send(text)
            self._empty.set()
            self._news.clear()
            await self._news.wait()

    def _add(self, key: object, render: Render) -> None:
        self._waiting[key] = render
        self._news.set()
