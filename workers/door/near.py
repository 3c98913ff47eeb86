"""The near end: loopback listeners here for the servers of other hosts, each leading through their door."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass

from apps.fleet import doors
from apps.fleet.doors import NearPorts
from workers.door import LINE, pipe
from workers.door.far import CONNECT_SECONDS, PORTS
from workers.door.pipe import DoorClosed, Streams

log = logging.getLogger(__name__)
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Door:
    """Where another node's door is, and what opens it."""

    node_id: str
    host: str
    port: int
    certificate: str


@dataclass(frozen=True, slots=True)
class There:
    """A server of another host, behind its node's door."""

    uid: str
    door: Door


async def enter(door: Door, asked: dict[str, object]) -> tuple[Streams, dict[str, object]]:
    """Go through a door: the connection behind it and what it said. Raises DoorClosed with the reason."""
    token = doors.door_token(door.node_id)
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            streams = await asyncio.open_connection(
                door.host,
                door.port,
                ssl=doors.caller_context(door.certificate),
                server_hostname=door.host,
                limit=2 * LINE,
            )
    except (OSError, TimeoutError, ValueError) as error:
        raise DoorClosed(f"the door of {door.node_id} is not reached: {error or 'in time'}") from error
    streams[1].write(pipe.line({"token": token, **asked}))
    try:
        told = await pipe.read_line(streams[0])
        if told.get("ok") is not True:
            raise DoorClosed(f"{door.node_id}: {told.get('message', 'refused')}")
    except DoorClosed:
        await pipe.close(streams[1])
        raise
    return streams, told


class Near:
    """Keeps the listeners in step with `follow`; ports stay those of before where they are free."""

    def __init__(self) -> None:
        self._listeners: dict[str, list[asyncio.Server]] = {}
        self._doors: dict[str, Door] = {}
        self._ports: dict[str, NearPorts] = {}
        self._before = doors.read_near()

    async def follow(self, wanted: list[There]) -> None:
        """Open what is new, close what is gone; connections that were made go on. Raises OSError."""
        self._doors = {each.uid: each.door for each in wanted}
        changed = False
        for uid in set(self._listeners) - set(self._doors):
            await self._close(uid)
            changed = True
        for uid in self._doors:
            if uid not in self._listeners:
                await self._open(uid)
                changed = True
        if changed or self._before:
            self._before = {}
            await asyncio.to_thread(doors.write_near, dict(self._ports))

    async def close(self) -> None:
        """Close every listener."""
        for uid in list(self._listeners):
            await self._close(uid)

    async def _open(self, uid: str) -> None:
        before = self._before.get(uid)
        servers = [await self._listen(uid, name, getattr(before, name) if before else 0) for name in PORTS]
        self._listeners[uid] = servers
        self._ports[uid] = NearPorts(*(server.sockets[0].getsockname()[1] for server in servers))

    async def _listen(self, uid: str, name: str, port: int) -> asyncio.Server:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._answer(uid, name, (reader, writer))

        if port:
            with contextlib.suppress(OSError):
                return await asyncio.start_server(answer, LOOPBACK, port)
        return await asyncio.start_server(answer, LOOPBACK, 0)

    async def _close(self, uid: str) -> None:
        for server in self._listeners.pop(uid):
            server.close()
        self._ports.pop(uid, None)

    async def _answer(self, uid: str, name: str, caller: Streams) -> None:
        door = self._doors.get(uid)
        try:
            if door is None:
                raise DoorClosed(f"{uid} is gone")
            behind, _told = await enter(door, {"to": "server", "uid": uid, "port": name})
        except DoorClosed as error:
            log.info("A connection to %s of %s was not made: %s", name, uid, error)
            await pipe.close(caller[1])
            return
        await pipe.both_ways(caller, behind)
