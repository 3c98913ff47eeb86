"""A small HTTP/1.1 client for token streams: httptools over asyncio's protocols, with a pool of warm connections.

The general client spends more on a message than the rest of the path together: a reader, a timer and several
wake-ups for each chunk. Here a chunk is parsed where it arrives and wakes at most one task. Nothing is followed,
decoded, stored or retried but a warm connection that turned out to be closed. What waits unread is bounded.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlsplit

import httptools

from apps.streaming.token_source import StreamError

# Unread bytes of one answer at which its connection is no longer read from.
HIGH_WATER = 64 * 1024
MAX_HEADER_BYTES = 64 * 1024
CONNECT_SECONDS = 3.0
# Servers close idle connections after five seconds and more; ours go first.
IDLE_SECONDS = 4.0
MOST_IDLE = 512


class UpstreamUnreachable(OSError):
    """No connection, or it was gone before any byte of an answer: nothing has been computed for us."""


class UpstreamLost(OSError):
    """The connection broke, or what came is no HTTP, in the middle of an answer."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where to connect. `base` is the path that every request's path begins with, without a slash at its end."""

    host: str
    port: int
    tls: bool = False
    base: str = ""

    @property
    def authority(self) -> str:
        """Value of the header Host."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"


def read_origin(url: str) -> Origin:
    """An http or https URL as an Origin. Raises ValueError for anything else, and for one with a user or a query."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{url!r} is no http or https address")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError(f"{url!r}: an upstream's address has no user, query or fragment")
    tls = parts.scheme == "https"
    return Origin(parts.hostname, parts.port or (443 if tls else 80), tls, parts.path.rstrip("/"))


class Connection(asyncio.Protocol):
    """One connection; carries one request at a time. `status` and `headers` (lower case) are those of its answer."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.idle_since = 0.0
        self.fresh = True
        self._lost = False
        self._reset()

    def _reset(self) -> None:
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.complete = False
        self._parser = httptools.HttpResponseParser(self)
        self._header_bytes = 0
        self._head_done = False
        self._chunks: list[bytes] = []
        self._buffered = 0
        self._paused = False
        self._waiter: asyncio.Future[None] | None = None
        self._failure: Exception | None = None
        self._keep_alive = False
        self._got_bytes = False
        self._sink: Callable[[bytes], bool] | None = None

    @property
    def reusable(self) -> bool:
        """Whether the answer is over and another request may follow on this connection."""
        return self.complete and self._keep_alive and not self._lost and self._failure is None

    def send(self, data: bytes) -> None:
        """Send a whole request, head and body in one write, and expect its answer."""
        self._reset()
        if self._lost or self.transport is None or self.transport.is_closing():
            self._lost = True
            self._failure = UpstreamUnreachable("the connection is closed")
            return
        self.transport.write(data)

    async def head(self) -> int:
        """Wait for the answer's head; its status. Raises UpstreamUnreachable, UpstreamLost, or what `fail` got."""
        while not self._head_done:
            await self._wait()
        return self.status

    async def read(self) -> bytes:
        """What came since the last read, waiting for more if nothing did; empty at the end. Raises as `head`."""
        while not self._chunks:
            if self.complete:
                return b""
            await self._wait()
        data = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks.clear()
        self._buffered = 0
        if self._paused and self.transport is not None:
            self._paused = False
            self.transport.resume_reading()
        return data

    def divert(self, sink: Callable[[bytes], bool]) -> None:
        """Give each piece of this answer to `sink` where it arrives, while somebody waits in `read`.

        Where it says false the piece goes to `read`. That spares a wake-up of the task for each piece.
        """
        self._sink = sink

    async def body(self, limit: int) -> bytes:
        """The whole body. Raises UpstreamLost beyond `limit` bytes, and as `head`."""
        parts: list[bytes] = []
        size = 0
        while data := await self.read():
            size += len(data)
            if size > limit:
                raise UpstreamLost(f"the answer is longer than {limit} bytes")
            parts.append(data)
        return b"".join(parts)

    def fail(self, error: Exception) -> None:
        """Let whoever waits for the answer have this error."""
        if self._failure is None and not self.complete:
            self._failure = error
            self._wake()

    def abort(self) -> None:
        """Close at once; a server sees that its caller is gone."""
        self._lost = True
        if self.transport is not None:
            self.transport.abort()

    async def _wait(self) -> None:
        if self._failure is not None:
            raise self._failure
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _waits(self) -> bool:
        return self._waiter is not None and not self._waiter.done() and not self._chunks

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._got_bytes = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self.fail(UpstreamLost(f"this is no HTTP answer: {error}"))
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        if self._head_done and not self.complete and self._until_close():
            self.complete = True
        elif self._got_bytes:
            self.fail(UpstreamLost("the connection broke in the middle of an answer"))
        else:
            self.fail(UpstreamUnreachable("the connection was closed before an answer"))
        self._wake()

    def _until_close(self) -> bool:
        return b"content-length" not in self.headers and b"transfer-encoding" not in self.headers

    # httptools

    def on_status(self, status: bytes) -> None:
        self._header_bytes += len(status)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_bytes += len(name) + len(value)
        if self._header_bytes > MAX_HEADER_BYTES:
            raise ValueError("the head is too long")
        self.headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status >= 200:
            self.status = status
            self._head_done = True
            self._wake()

    def on_body(self, body: bytes) -> None:
        # Only to who waits: a task that was woken and has not run yet still holds what came before.
        if self._sink is not None and self._waits() and self._sink(body):
            return
        self._chunks.append(body)
        self._buffered += len(body)
        if self._buffered > HIGH_WATER and not self._paused and self.transport is not None:
            self._paused = True
            self.transport.pause_reading()
        self._wake()

    def on_message_complete(self) -> None:
        if self._head_done:
            self.complete = True
            self._keep_alive = self._parser.should_keep_alive()
            self._wake()
        else:
            # The end of a 1xx; the answer itself follows.
            self.headers = {}


class Opening:
    """A request whose answer has no head yet, so that somebody else can end the wait for it.

    Triton sends the head with the first token: this is where a request waits for the engine.
    """

    def __init__(self) -> None:
        self.connection: Connection | None = None
        self.error: StreamError | None = None

    def fail(self, error: StreamError) -> None:
        """End the wait with this error."""
        self.error = error
        if self.connection is not None:
            self.connection.fail(UpstreamLost(error.code))


class Pool:
    """Warm connections by origin; belongs to one event loop.

    `allowed(host, address, port)` is asked for each address that a host resolves to, at each connection: a name may
    resolve to something else by now.
    """

    def __init__(
        self,
        allowed: Callable[[str, str, int], bool] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._allowed = allowed
        self._idle: dict[Origin, list[Connection]] = {}
        self._open: set[Connection] = set()
        self._tls: ssl.SSLContext | None = None
        self._clock = clock

    def __len__(self) -> int:
        return len(self._open)

    async def send(self, origin: Origin, request: bytes, opening: Opening | None = None) -> Connection:
        """Send a request and wait for the head of its answer. Raises UpstreamUnreachable, UpstreamLost.

        A warm connection that the server closed meanwhile is replaced. Cancelling closes the connection.
        """
        while True:
            connection = self._take(origin)
            if connection is None:
                connection = await self._connect(origin)
            connection.send(request)
            if opening is not None:
                opening.connection = connection
            try:
                await connection.head()
            except UpstreamUnreachable:
                self.drop(connection)
                if connection.fresh:
                    raise
            except BaseException:
                self.drop(connection)
                raise
            else:
                return connection

    def release(self, connection: Connection, origin: Origin) -> None:
        """Give a connection back: kept warm if its answer was read to the end, closed otherwise."""
        idle = self._idle.setdefault(origin, [])
        if connection.reusable and len(idle) < MOST_IDLE:
            connection.idle_since = self._clock()
            connection.fresh = False
            idle.append(connection)
        else:
            self.drop(connection)

    def drop(self, connection: Connection) -> None:
        """Close a connection."""
        connection.abort()
        self._open.discard(connection)

    def sweep(self) -> None:
        """Close what was idle for too long; call it now and then."""
        oldest = self._clock() - IDLE_SECONDS
        for origin, idle in list(self._idle.items()):
            kept = [one for one in idle if one.idle_since > oldest and not one._lost]
            for connection in idle:
                if connection not in kept:
                    self.drop(connection)
            if kept:
                self._idle[origin] = kept
            else:
                del self._idle[origin]

    def close(self) -> None:
        """Close everything."""
        for connection in list(self._open):
            self.drop(connection)
        self._idle.clear()

    def _take(self, origin: Origin) -> Connection | None:
        idle = self._idle.get(origin)
        while idle:
            connection = idle.pop()
            if not connection._lost:
                return connection
            self._open.discard(connection)
        return None

    async def _connect(self, origin: Origin) -> Connection:
        loop = asyncio.get_running_loop()
        options: dict[str, Any] = {}
        if origin.tls:
            if self._tls is None:
                self._tls = ssl.create_default_context()
            options = {"ssl": self._tls, "server_hostname": origin.host}
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                host = await self._address(origin)
                _, connection = await loop.create_connection(Connection, host, origin.port, **options)
        except OSError as error:
            raise UpstreamUnreachable(f"{origin.authority}: {error}") from error
        connection.fresh = True
        self._open.add(connection)
        return connection

    async def _address(self, origin: Origin) -> str:
        if self._allowed is None:
            return origin.host
        found = await asyncio.get_running_loop().getaddrinfo(
            origin.host, origin.port, type=socket.SOCK_STREAM
        )
        for *_, address in found:
            if self._allowed(origin.host, str(address[0]), origin.port):
                return str(address[0])
        raise UpstreamUnreachable(f"{origin.host} resolves to addresses that are not allowed")


_shared: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Pool] = weakref.WeakKeyDictionary()


def shared_pool() -> Pool:
    """The pool of the running loop for addresses of our own, without what was idle for too long."""
    pool = _shared.setdefault(asyncio.get_running_loop(), Pool())
    pool.sweep()
    return pool


def request_head(origin: Origin, method: str, path: str, headers: dict[str, str]) -> bytes:
    """The head of a request up to its Content-Length, which `with_body` adds. Raises ValueError for a line break."""
    lines = [f"{method} {origin.base}{path} HTTP/1.1", f"Host: {origin.authority}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if any("\r" in line or "\n" in line for line in lines):
        raise ValueError("a header with a line break")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n"


def with_body(head: bytes, body: bytes, more: bytes = b"") -> bytes:
    """A whole request. `more` are further header lines, each with its line end."""
    return b"%bContent-Length: %d\r\n%b\r\n%b" % (head, len(body), more, body)
