"""Bytes from one connection to another and back, until both sides have said all."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

from workers.door import CHUNK, FIRST_SECONDS, LINE

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class DoorClosed(Exception):
    """The door did not let in: what it said, or that it said nothing that can be read."""


async def both_ways(one: Streams, other: Streams) -> None:
    """Carry bytes both ways. One that half-closes is half-closed to the other; one that breaks ends both."""
    tasks = [
        asyncio.create_task(_one_way(one[0], other[1])),
        asyncio.create_task(_one_way(other[0], one[1])),
    ]
    try:
        done, _pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.exception()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for _reader, writer in (one, other):
            await close(writer)


async def _one_way(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(CHUNK):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()
    else:
        # TLS cannot be half-closed: the end of one direction is the end of the connection.
        writer.close()


async def close(writer: asyncio.StreamWriter) -> None:
    """Close, whatever the other side does."""
    writer.close()
    with contextlib.suppress(Exception):
        async with asyncio.timeout(1.0):
            await writer.wait_closed()


async def read_line(reader: asyncio.StreamReader) -> dict[str, Any]:
    """The first line of a connection. Raises DoorClosed for one that is too long, late, or no JSON object."""
    try:
        async with asyncio.timeout(FIRST_SECONDS):
            line = await reader.readline()
        told = json.loads(line)
    except (TimeoutError, ValueError, OSError, asyncio.LimitOverrunError) as error:
        raise DoorClosed(f"no line of JSON came: {error or type(error).__name__}") from error
    if not isinstance(told, dict) or len(line) > LINE:
        raise DoorClosed("the line is no JSON object")
    return told


def line(told: dict[str, Any]) -> bytes:
    """One line of JSON."""
    return json.dumps(told, separators=(",", ":")).encode() + b"\n"
