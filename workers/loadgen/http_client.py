"""Requests over HTTP/1.1 that cost next to nothing: raw connections, kept alive, no headers but those that are
needed.

A client library reads an event for about 100 µs, this reads it for about 10: a generator that shares the machine
with the server must not be what is measured.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import cast

from workers.loadgen.answers import Answer, Dialect

HEAD_END = b"\r\n\r\n"
MOST_HEAD = 64 * 1024


class Connection(asyncio.Protocol):
    """One connection; one request at a time."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._transport: asyncio.Transport | None = None
        self._answer: Answer | None = None
        self._done: asyncio.Future[None] | None = None
        self.reusable = False
        self._reset()

    def _reset(self) -> None:
        self._raw = b""
        self._line = b""
        self._error = b""
        self._status = 0
        self._left = -1  # bytes of the body or the chunk that still come
        self._chunked = False
        self._keep = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        self._transport = cast(asyncio.Transport, transport)

    async def ask(self, request: bytes, answer: Answer) -> None:
        """Send a request and read its answer to the end into `answer`."""
        self._reset()
        self._answer = answer
        self._done = asyncio.get_running_loop().create_future()
        self.reusable = False
        if self._transport is None or self._transport.is_closing():
            answer.fail("connection_lost")
            return
        answer.sent = time.perf_counter()
        self._transport.write(request)
        try:
            await self._done
        finally:
            self._answer = None

    def close(self) -> None:
        """Drop the connection: the server notices when it next writes."""
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        now = time.perf_counter()
        if self._answer is None:
            return
        self._raw = self._raw + data if self._raw else data
        try:
            if not self._status and not self._read_head():
                return
            self._read_body(now)
        except ValueError:
            self._answer.fail("unreadable")
            self._keep = False
            self._finish(now)

    def _read_head(self) -> bool:
        head, found, rest = self._raw.partition(HEAD_END)
        if not found:
            if len(head) > MOST_HEAD:
                raise ValueError("head too long")
            return False
        first, *lines = head.split(b"\r\n")
        self._status = int(first.split(b" ", 2)[1])
        self._left = -1
        for line in lines:
            name, _, value = line.partition(b":")
            name, value = name.lower(), value.strip().lower()
            if name == b"transfer-encoding":
                self._chunked = b"chunked" in value
            elif name == b"content-length":
                self._left = int(value)
            elif name == b"connection" and value == b"close":
                self._keep = False
        self._raw = rest
        return True

    def _read_body(self, now: float) -> None:
        if not self._chunked:
            body, self._raw = self._raw, b""
            self._take(body, now)
            if self._left >= 0:
                self._left -= len(body)
                if self._left <= 0:
                    self._finish(now)
            return
        raw, at, pieces = self._raw, 0, []
        ended = False
        while True:
            end = raw.find(b"\r\n", at)
            if end < 0:
                break
            size = int(raw[at:end].split(b";")[0], 16)
            begin = end + 2
            if size == 0:
                # Trailers are not used by anybody here; the empty line after them ends it.
                if raw.find(b"\r\n", begin) < 0:
                    break
                ended = True
                break
            if len(raw) < begin + size + 2:
                break
            pieces.append(raw[begin : begin + size])
            at = begin + size + 2
        self._raw = raw[at:]
        if pieces:
            self._take(pieces[0] if len(pieces) == 1 else b"".join(pieces), now)
        if ended:
            self._finish(now)

    def _take(self, body: bytes, now: float) -> None:
        if self._answer is None:
            return
        if self._status != 200:
            self._error = (self._error + body)[:4096]
            return
        *lines, self._line = (self._line + body if self._line else body).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                self._dialect.event(self._answer, line[5:].strip(), now)

    def _finish(self, now: float) -> None:
        answer, done = self._answer, self._done
        if answer is None or done is None or done.done():
            return
        if self._status == 200 and self._line.startswith(b"data:"):
            self._dialect.event(answer, self._line[5:].strip(), now)
        if self._status != 200:
            self._dialect.failed(answer, self._status, self._error)
        answer.ended = now
        self.reusable = self._keep
        done.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol. A body without a length ends so; everything else is cut off."""
        self.reusable = False
        answer, done = self._answer, self._done
        if answer is None or done is None or done.done():
            return
        if not (self._status and not self._chunked and self._left < 0):
            answer.fail("connection_lost")
            self._status = self._status or 200
        self._keep = False
        self._finish(time.perf_counter())
        self.reusable = False


class HttpClient:
    """Connections to one server, kept alive; as many as there are requests at once."""

    def __init__(self, host: str, port: int, dialect: Dialect) -> None:
        self._host, self._port, self._dialect = host, port, dialect
        self._free: list[Connection] = []

    async def ask(self, request: bytes, answer: Answer) -> None:
        """One request, its answer read into `answer`. Cancelling drops the connection."""
        # A kept connection that the server has closed meanwhile is found out by its failing before any byte.
        for again in (False, True):
            fresh = again or not self._free
            connection = await self._connection(fresh, answer)
            if connection is None:
                return
            try:
                await connection.ask(request, answer)
            except asyncio.CancelledError:
                connection.close()
                raise
            if connection.reusable:
                self._free.append(connection)
            else:
                connection.close()
            if fresh or answer.code != "connection_lost" or answer.arrivals:
                return
            answer.result, answer.code = "ok", ""

    async def _connection(self, fresh: bool, answer: Answer) -> Connection | None:
        if not fresh:
            return self._free.pop()
        try:
            _, made = await asyncio.get_running_loop().create_connection(
                lambda: Connection(self._dialect), self._host, self._port
            )
        except OSError:
            answer.sent = answer.ended = time.perf_counter()
            answer.fail("unreachable")
            return None
        return made

    def close(self) -> None:
        """Close what is kept."""
        while self._free:
            with contextlib.suppress(Exception):
                self._free.pop().close()


def post(host: str, port: int, path: str, body: bytes, headers: tuple[str, ...] = ()) -> bytes:
    """A whole POST of JSON."""
    lines = [f"POST {path} HTTP/1.1", f"Host: {host}:{port}", "Content-Type: application/json", *headers]
    return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body
