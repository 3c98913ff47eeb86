"""A road between two hosts that can be cut: a port that leads to a unix socket, until nothing passes any more."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable

PIECE = 64 * 1024
END_SECONDS = 10.0


class Link:
    """Forwards connections of `port` on the loopback address to `target()`, a path.

    While it is cut nothing passes in either direction and nobody is told: connections stay open and new ones are
    never answered, as between hosts whose network drops everything.
    """

    def __init__(self, target: Callable[[], str]) -> None:
        self._target = target
        self._loop = asyncio.new_event_loop()
        self._passing = asyncio.Event()
        self._passing.set()
        self._thread = threading.Thread(target=self._loop.run_forever, name="link", daemon=True)
        self._thread.start()
        listening = asyncio.start_server(self._carry, "127.0.0.1", 0)
        self._server = asyncio.run_coroutine_threadsafe(listening, self._loop).result(END_SECONDS)
        self.port: int = self._server.sockets[0].getsockname()[1]

    def cut(self) -> None:
        """From now on nothing passes."""
        self._loop.call_soon_threadsafe(self._passing.clear)

    def heal(self) -> None:
        """What was held up passes, and what comes."""
        self._loop.call_soon_threadsafe(self._passing.set)

    def close(self) -> None:
        """End it and its connections."""
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(END_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(END_SECONDS)
        self._loop.close()

    async def _end(self) -> None:
        self._server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._passing.wait()
        with contextlib.suppress(OSError):
            there_reader, there_writer = await asyncio.open_unix_connection(self._target())
            try:
                await asyncio.gather(self._pass(reader, there_writer), self._pass(there_reader, writer))
            finally:
                there_writer.close()
        writer.close()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(PIECE):
            await self._passing.wait()
            writer.write(data)
            await writer.drain()
        await self._passing.wait()
        # The other end of the connection is told that this one has no more to say.
        with contextlib.suppress(OSError):
            writer.write_eof()
