"""The node's proxy: what goes through a door, what does not, and what stays open."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from apps.fleet import doors
from apps.fleet.doors import NearPorts
from workers.door import certificate, pipe
from workers.door.far import Far, Own, OwnTable
from workers.door.near import Door, Near, There, enter
from workers.door.pipe import DoorClosed, Streams

NODE, UID = "n-far", "abc123"


@pytest.fixture(autouse=True)
def _home(settings: Any, tmp_path: Path) -> None:
    settings.INFLIGHT_HOME = str(tmp_path)


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1000):
        writer.write(data.upper())
        await writer.drain()
    await pipe.close(writer)


class House:
    """A server, a door before it, and how to get in."""

    def __init__(self, door: Door, server: asyncio.Server, far: Far) -> None:
        self.door, self.server, self.far = door, server, far
        self.away = False


@contextlib.asynccontextmanager
async def house(tmp_path: Path, log: str = "") -> AsyncIterator[House]:
    """All of it, gone at the end."""
    server = await asyncio.start_server(_echo, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    made: list[House] = []

    async def look() -> OwnTable:
        if made and made[0].away:
            raise OSError("the database is away")
        return OwnTable({UID: Own(port, port, 0, log)}, {"7": log})

    kept = certificate.ensure(tmp_path / "door", NODE, "127.0.0.1")
    far = Far(NODE, tmp_path, look)
    listener = await asyncio.start_server(far.answer, "127.0.0.1", 0, ssl=certificate.door_context(kept))
    try:
        made.append(
            House(Door(NODE, "127.0.0.1", listener.sockets[0].getsockname()[1], kept.pem), server, far)
        )
        yield made[0]
    finally:
        listener.close()
        server.close()


async def _said(streams: Streams, text: bytes) -> bytes:
    streams[1].write(text)
    await streams[1].drain()
    async with asyncio.timeout(5):
        return await streams[0].readexactly(len(text))


async def test_bytes_pass_both_ways_and_an_open_stream_outlives_the_database(tmp_path: Path) -> None:
    async with house(tmp_path) as there:
        streams, told = await enter(there.door, {"to": "server", "uid": UID, "port": "grpc"})
        assert told == {"ok": True}
        assert await _said(streams, b"hello") == b"HELLO"
        there.away = True
        assert await _said(streams, b"x" * 200_000) == b"X" * 200_000
        again, _told = await enter(there.door, {"to": "server", "uid": UID, "port": "http"})
        assert await _said(again, b"still") == b"STILL"
        for each in (streams, again):
            await pipe.close(each[1])


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"to": "server", "uid": "other", "port": "http"}, "no server other"),
        ({"to": "server", "uid": UID, "port": "metrics"}, "no server"),
        ({"to": "server", "uid": UID, "port": "log_path"}, "no server"),
        ({"to": "shell"}, "leads to servers and logs"),
        ({"to": "log", "kind": "instance", "key": "other"}, "no such log"),
        ({"to": "log", "kind": "build", "key": "7", "offset": "x"}, "no such log"),
        ({"to": "log", "kind": "passwd", "key": "7"}, "no such log"),
        ({"to": "server", "uid": UID, "port": "http", "token": "wrong"}, "does not open"),
        ({"to": "server", "uid": UID, "port": "http", "token": None}, "does not open"),
    ],
)
async def test_nothing_else_is_behind_it(tmp_path: Path, asked: dict[str, object], words: str) -> None:
    async with house(tmp_path) as there:
        with pytest.raises(DoorClosed, match=words):
            await enter(there.door, asked)


async def test_a_log_outside_the_home_is_not_given(tmp_path: Path) -> None:
    outside = tmp_path.parent / "outside.log"
    outside.write_text("secret\n", encoding="utf-8")
    async with house(tmp_path, str(outside)) as there:
        with pytest.raises(DoorClosed, match="no such log"):
            await enter(there.door, {"to": "log", "kind": "instance", "key": UID})


async def test_another_certificate_is_not_trusted(tmp_path: Path) -> None:
    other = certificate.ensure(tmp_path / "other", NODE, "127.0.0.1")
    async with house(tmp_path) as there:
        door = Door(NODE, there.door.host, there.door.port, other.pem)
        with pytest.raises(DoorClosed, match="not reached"):
            await enter(door, {"to": "server", "uid": UID, "port": "http"})


async def test_a_caller_without_a_line_is_let_go(tmp_path: Path) -> None:
    async with house(tmp_path) as there:
        context = doors.caller_context(there.door.certificate)
        for sent in (b"GET / HTTP/1.1\r\n\r\n", b"[]\n", b"\xff\n", b"x" * 100_000):
            reader, writer = await asyncio.open_connection(there.door.host, there.door.port, ssl=context)
            with contextlib.suppress(OSError, ssl.SSLError):
                writer.write(sent)
                await writer.drain()
            async with asyncio.timeout(5):
                with contextlib.suppress(OSError, ssl.SSLError):
                    assert await reader.read() == b""
            await pipe.close(writer)


async def test_the_near_end_leads_through_the_door_and_keeps_its_ports(tmp_path: Path) -> None:
    async with house(tmp_path) as there:
        near = Near()
        await near.follow([There(UID, there.door)])
        ports = doors.near_ports(UID)
        assert ports is not None
        streams = await asyncio.open_connection("127.0.0.1", ports.http)
        assert await _said(streams, b"near") == b"NEAR"
        await near.follow([])
        assert doors.near_ports(UID) is None
        # What was opened goes on; nothing new is.
        assert await _said(streams, b"more") == b"MORE"
        with pytest.raises(OSError):
            await asyncio.open_connection("127.0.0.1", ports.http)
        await pipe.close(streams[1])
        doors.write_near({UID: ports})
        later = Near()
        await later.follow([There(UID, there.door)])
        assert doors.near_ports(UID) == ports
        await later.close()


async def test_a_door_that_is_shut_ends_the_connection_at_once(tmp_path: Path) -> None:
    async with house(tmp_path) as there:
        near = Near()
        shut = Door(NODE, "127.0.0.1", 9, there.door.certificate)
        await near.follow([There(UID, shut)])
        ports = doors.near_ports(UID)
        assert ports is not None
        reader, writer = await asyncio.open_connection("127.0.0.1", ports.grpc)
        async with asyncio.timeout(8):
            assert await reader.read() == b""
        await pipe.close(writer)
        await near.close()


def test_the_certificate_is_made_once_for_an_address(tmp_path: Path) -> None:
    first = certificate.ensure(tmp_path, NODE, "10.0.0.5")
    assert certificate.ensure(tmp_path, NODE, "10.0.0.5").pem == first.pem
    assert certificate.ensure(tmp_path, NODE, "b.example").pem != first.pem
    assert first.key.stat().st_mode & 0o777 == 0o600
    first.certificate.write_text("broken", encoding="ascii")
    assert certificate.ensure(tmp_path, NODE, "b.example").pem.startswith("-----BEGIN CERTIFICATE")


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a": 3}', '{"a": [1, 2]}', '{"a": ["x", 1, 2]}'])
def test_a_broken_table_of_ports_is_an_empty_one(tmp_path: Path, text: str) -> None:
    doors.near_file().parent.mkdir(parents=True, exist_ok=True)
    doors.near_file().write_text(text, encoding="utf-8")
    assert doors.near_ports("a") is None


def test_the_table_is_read_again_when_it_was_replaced() -> None:
    doors.write_near({"a": NearPorts(1, 2, 3)})
    assert doors.near_ports("a") == NearPorts(1, 2, 3)
    doors.write_near({"b": NearPorts(4, 5, 6)})
    assert (doors.near_ports("a"), doors.near_ports("b")) == (None, NearPorts(4, 5, 6))
    assert json.loads(doors.near_file().read_text(encoding="utf-8")) == {"b": [4, 5, 6]}
