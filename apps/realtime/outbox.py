"""What a socket still has to send. Bounded: a browser that reads slowly costs neither memory nor other sockets.

State goes in under a key, so that only the newest message of a topic waits. Logs and tokens wait for room before
they are taken from where they come from. Answers to commands queue; more than LIMIT of them waiting ends the socket.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any

LIMIT = 200

Render = Callable[[], str | None]


class TooSlow(Exception):
    """The browser does not read what it asked for."""


class Outbox:
    """Messages of one socket in order of arrival, written by one task (`run`) or by who has one (`write_now`)."""

    def __init__(self, send: Callable[[str], Coroutine[Any, Any, None]]) -> None:
        self._send = send
        self._waiting: dict[object, Render] = {}
        self._numbers = itertools.count()
        self._news = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()
        self._writing = False
        # What is left of a write that `write_now` began.
        self._begun: Awaitable[None] | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def push(self, text: str) -> None:
        """Queue a message. Raises TooSlow where LIMIT are waiting."""
        if len(self._waiting) >= LIMIT:
            raise TooSlow
        self._add(next(self._numbers), lambda: text)

    @property
    def free(self) -> bool:
        """Whether nothing waits and nothing is being written."""
        return not self._waiting and not self._writing

    def write_now(self, text: str) -> None:
        """Write a message before this returns, where the outbox is `free`; else as `push`.

        For tokens: each spares the loop a turn of the task, in which everybody else's would come first. Where the
        socket's buffer is full the task writes the rest. Raises what the socket raises, and TooSlow.
        """
        if not self.free:
            self.push(text)
            return
        work = self._send(text)
        try:
            waits_for = work.send(None)
        except StopIteration:
            return
        self._writing = True
        self._begun = _rest(work, waits_for)
        self._news.set()

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
            if self._begun is not None:
                begun, self._begun = self._begun, None
                await self._write(begun)
            while self._waiting:
                key = next(iter(self._waiting))
                text = self._waiting.pop(key)()
                if text is not None:
                    await self._write(self._send(text))
            self._empty.set()
            self._news.clear()
            await self._news.wait()

    async def _write(self, work: Awaitable[None]) -> None:
        self._writing = True
        try:
            await work
        finally:
            self._writing = False

    def _add(self, key: object, render: Render) -> None:
        self._waiting[key] = render
        self._news.set()


@types.coroutine
def _rest(work: Coroutine[Any, Any, None], waits_for: Any) -> Generator[Any, Any, None]:
    """What is left of a coroutine that was begun outside a task and waits for something."""
    while True:
        try:
            got = yield waits_for
        except BaseException as error:
            step = functools.partial(work.throw, error)
        else:
            step = functools.partial(work.send, got)
        try:
            waits_for = step()
        except StopIteration:
            return
