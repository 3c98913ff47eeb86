"""The door itself: lets the other hosts to this node's own servers and logs, and to nothing else."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from apps.fleet import doors
from apps.realtime.log_window import MAX_WINDOW, MIN_WINDOW, read_window
from workers.door import LINE, pipe
from workers.door.pipe import DoorClosed, Streams

log = logging.getLogger(__name__)

PORTS = ("http", "grpc", "metrics")
# Between two readings of the table for servers that are not in it.
AGAIN_SECONDS = 1.0
CONNECT_SECONDS = 5.0
# Wrong tokens answer late, so that they cannot be tried by the thousand over one connection each.
REFUSED_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Own:
    """A server of this node: its loopback ports (0: none yet) and its log."""

    http: int
    grpc: int
    metrics: int
    log_path: str


@dataclass(frozen=True, slots=True)
class OwnTable:
    """This node's servers by uid, and the logs of its builds by number."""

    servers: dict[str, Own]
    build_logs: dict[str, str]


class Far:
    """Answers connections. `look` reads the rows; where it fails, what was known last holds."""

    def __init__(self, node_id: str, home: Path, look: Callable[[], Awaitable[OwnTable]]) -> None:
        self._node_id = node_id
        self._home = home.resolve()
        self._look = look
        self._table = OwnTable({}, {})
        self._looked_at = float("-inf")

    async def refresh(self) -> None:
        """Read the rows, at most once in AGAIN_SECONDS. A database that is away changes nothing."""
        if time.monotonic() - self._looked_at < AGAIN_SECONDS:
            return
        self._looked_at = time.monotonic()
        try:
            self._table = await self._look()
        except Exception as error:
            log.warning("The servers of this node could not be listed; those known stay: %s", error)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, to its end."""
        try:
            await self._answer((reader, writer))
        except (DoorClosed, OSError, asyncio.IncompleteReadError) as error:
            log.debug("A connection to the door ended: %s", error)
        finally:
            await pipe.close(writer)

    async def _answer(self, caller: Streams) -> None:
        asked = await pipe.read_line(caller[0])
        if not doors.opens(self._node_id, asked.get("token")):
            await asyncio.sleep(REFUSED_SECONDS)
            await self._refuse(caller, "token", "The token does not open this door.")
        elif asked.get("to") == "server":
            await self._server(caller, str(asked.get("uid")), str(asked.get("port")))
        elif asked.get("to") == "log":
            await self._log(caller, asked)
        else:
            await self._refuse(caller, "to", "This door leads to servers and logs.")

    async def _server(self, caller: Streams, uid: str, name: str) -> None:
        own = await self._own(uid)
        port = getattr(own, name) if own is not None and name in PORTS else 0
        if not port:
            await self._refuse(caller, "unknown", f"There is no server {uid} with a port {name} here.")
            return
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                server = await asyncio.open_connection("127.0.0.1", port)
        except (OSError, TimeoutError) as error:
            await self._refuse(caller, "away", f"The server does not answer: {error or 'in time'}.")
            return
        caller[1].write(pipe.line({"ok": True}))
        await pipe.both_ways(caller, server)

    async def _log(self, caller: Streams, asked: dict[str, Any]) -> None:
        path = await self._log_path(str(asked.get("kind")), str(asked.get("key")))
        offset, limit = asked.get("offset", 0), asked.get("limit", MAX_WINDOW)
        if path is None or not isinstance(offset, int) or not isinstance(limit, int):
            await self._refuse(caller, "unknown", "There is no such log here.")
            return
        bounded = max(MIN_WINDOW, min(limit, MAX_WINDOW))
        window = await asyncio.to_thread(read_window, path, offset, bounded)
        text = window.text.encode()
        head = {
            "ok": True,
            "start": window.start,
            "offset": window.offset,
            "size": window.size,
            "bytes": len(text),
        }
        caller[1].write(pipe.line(head))
        caller[1].write(text)
        await caller[1].drain()

    async def _log_path(self, kind: str, key: str) -> str | None:
        if kind == "instance":
            own = await self._own(key)
            path = own.log_path if own is not None else ""
        else:
            await self.refresh()
            path = self._table.build_logs.get(key, "") if kind == "build" else ""
        return await asyncio.to_thread(self._inside, path)

    def _inside(self, path: str) -> str | None:
        """The path where it lies in the home: a row's path is not trusted further."""
        return path if path and Path(path).resolve().is_relative_to(self._home) else None

    async def _own(self, uid: str) -> Own | None:
        found = self._table.servers.get(uid)
        if found is None or not found.http:
            await self.refresh()
            found = self._table.servers.get(uid)
        return found

    async def _refuse(self, caller: Streams, error: str, message: str) -> None:
        caller[1].write(pipe.line({"error": error, "message": message[: LINE // 2]}))
        await caller[1].drain()
