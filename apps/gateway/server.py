"""The gateway's server: uvicorn with uvloop and httptools, and what a raw socket needs besides.

    python -m apps.gateway.server --port 8001

The time of a request's first byte is taken here, where the bytes arrive, so that the gateway's overhead includes what
passes before its own code runs. Heads are bounded in size and in time. Several processes may share one port
(INFLIGHT_GATEWAY_PROCESSES): the kernel spreads connections over them.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import signal
import socket
import sys
import time
from typing import Any, cast

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from apps.gateway.errors import ApiError
from apps.gateway.http import ABORT, BEGAN, DIRECT

HOST = "127.0.0.1"
DEFAULT_PORT = 8001
MAX_HEAD_BYTES = 64 * 1024
HEAD_SECONDS = 15.0
KEEP_ALIVE_SECONDS = 75
DRAIN_SECONDS = 20
BACKLOG = 4096
# Without acknowledgement for so long a peer is gone, though it never said so.
DEAD_PEER_MILLISECONDS = 30_000


class GatewayProtocol(HttpToolsProtocol):
    """One connection of a client."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._began = 0.0
        self._head_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None
        # Clients send head and body apart: what comes after a head belongs to its body, until that is whole.
        self._in_body = False
        self._writes_at_once = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accepted: the clock of its first request runs."""
        super().connection_made(transport)
        self._began = time.perf_counter()
        self._head_timer = self.loop.call_later(HEAD_SECONDS, self._head_too_slow)
        connection = transport.get_extra_info("socket")
        if connection is not None and connection.family != socket.AF_UNIX:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, DEAD_PEER_MILLISECONDS)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def connection_lost(self, exc: Exception | None) -> None:
        """Closed."""
        self._cancel_head_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Bytes of a request, or of its end."""
        if not self._began and not self._in_body:
            self._began = time.perf_counter()
            if self._head_timer is None:
                self._head_timer = self.loop.call_later(HEAD_SECONDS, self._head_too_slow)
        super().data_received(data)

    def on_message_begin(self) -> None:
        """A request's first line."""
        super().on_message_begin()
        self._head_bytes = 0
        if self._writes_at_once:
            # A head and its body go out together again.
            self._writes_at_once = False
            self.transport.set_write_buffer_limits()
        scope = cast(dict[str, Any], self.scope)
        scope[BEGAN] = self._began or time.perf_counter()
        scope[ABORT] = self.transport.abort
        scope[DIRECT] = self._direct

    def on_url(self, url: bytes) -> None:
        """Part of the address."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        self._count(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is whole."""
        self._began = 0.0
        self._in_body = True
        self._cancel_head_timer()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The body is whole: what comes now begins another request."""
        self._in_body = False
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP, in the form that clients of this API read."""
        body = ApiError(400, "invalid_http", msg).body()
        head = b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\nconnection: close\r\n"
        self.transport.write(head + b"content-length: %d\r\n\r\n" % len(body) + body)
        self.transport.close()

    def _direct(self) -> bool:
        """Whether what is written now goes out now. From the first question on nothing waits for the loop's turn.

        uvloop keeps what is written until every socket of the turn was read, unless it is above the high water.
        """
        if not self._writes_at_once:
            self._writes_at_once = True
            self.transport.set_write_buffer_limits(high=0)
        return not self.flow.write_paused

    def _count(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > MAX_HEAD_BYTES:
            # The parser turns it into its own error, which uvicorn answers with 400.
            raise ValueError("the head of the request is too long")

    def _cancel_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_too_slow(self) -> None:
        self._head_timer = None
        if self.cycle is not None and not self.cycle.response_complete:
            # An answer runs: the beginning of a next request, or a line break too many, does not cut it.
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self._head_too_slow)
        elif not self.transport.is_closing():
            self.transport.abort()


def listen(port: int, shared: bool) -> socket.socket:
    """A listening socket on the loopback address; `shared` with other processes of this gateway."""
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if shared:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    found.bind((HOST, port))
    found.listen(BACKLOG)
    found.setblocking(False)
    return found


def config() -> uvicorn.Config:
    """uvicorn as the gateway needs it."""
    return uvicorn.Config(
        "apps.gateway.asgi:application",
        http=GatewayProtocol,
        loop="uvloop",
        ws="none",
        lifespan="on",
        interface="asgi3",
        log_level="warning",
        access_log=False,
        server_header=False,
        date_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=DRAIN_SECONDS,
        # Whoever connects is who connects: no header changes the client's address.
        proxy_headers=False,
    )


class Server(uvicorn.Server):
    """Also spares the collector what start-up made: a full collection stops every stream."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then freeze what will live as long as the process."""
        await super().startup(sockets)
        gc.collect()
        gc.freeze()
        gc.set_threshold(20_000, 50, 100)
        # The threads that write usage and read the table hand the interpreter back after this long, not after 5 ms.
        sys.setswitchinterval(0.0005)


def main(arguments: list[str] | None = None) -> int:
    """Serve until a signal."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
    parser = argparse.ArgumentParser(prog="python -m apps.gateway.server", description=__doc__)
    parser.add_argument(
        "--port", type=int, default=int(os.environ.get("INFLIGHT_GATEWAY_PORT") or DEFAULT_PORT)
    )
    port = parser.parse_args(arguments).port
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    from django.conf import settings

    for number in (signal.SIGTERM, signal.SIGINT):
        # uvicorn ends its streams at these and then raises them again, which would look like a crash.
        signal.signal(number, lambda *_: None)
    server = Server(config())
    with listen(port, shared=settings.INFLIGHT_GATEWAY_PROCESSES > 1) as listening:
        server.run(sockets=[listening])
    return 0 if server.started else 1


if __name__ == "__main__":
    sys.exit(main())
