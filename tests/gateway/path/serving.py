"""A gateway in the test's own event loop: the real application and server, its table and recorder the test's."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import uvicorn
from openai import AsyncOpenAI

from apps.gateway.app import Gateway
from apps.gateway.domain.facts import KeyFacts, RequestRecord, Route, Table, Upstream
from apps.gateway.server import GatewayProtocol, listen
from apps.gateway.usage.recorder import Recorder
from apps.gateway.watch import TableHolder
from apps.gateway.wiring import Parts, build
from apps.streaming.token_source import Endpoint
from tests.support.gateway import CHATML
from tests.support.openai_double import Double
from tests.support.waiting import aeventually

KEY = "ik-test-key"


class Kept(Recorder):
    """Keeps records for the test; nothing is written."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[RequestRecord] = []

    def put(self, record: RequestRecord) -> None:
        self.records.append(record)

    def start(self) -> None:
        """No thread."""

    def stop(self, seconds: float = 5.0) -> None:
        """Nothing is left."""


@dataclass
class Served:
    """A running gateway."""

    port: int
    parts: Parts
    records: list[RequestRecord]
    key: str = KEY
    # Making one takes a tenth of a second.
    clients: dict[tuple[str, ...], AsyncOpenAI] = field(default_factory=dict)

    def client(self, key: str = "", **options: Any) -> AsyncOpenAI:
        """The official client, unmodified."""
        known = (key or self.key, *sorted(options))
        if known not in self.clients:
            options.setdefault("max_retries", 0)
            url = f"http://127.0.0.1:{self.port}/v1"
            self.clients[known] = AsyncOpenAI(base_url=url, api_key=key or self.key, **options)
        return self.clients[known]

    async def raw(self, text: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection that sent these bytes."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(text)
        await writer.drain()
        return reader, writer

    async def answer(self, text: bytes) -> bytes:
        """Everything that comes back for these bytes until the server closes or is quiet for good."""
        reader, writer = await self.raw(text)
        try:
            async with asyncio.timeout(10):
                head = await reader.readuntil(b"\r\n\r\n")
                for line in head.lower().split(b"\r\n"):
                    if line.startswith(b"content-length:"):
                        return head + await reader.readexactly(int(line.split(b":")[1]))
                return head + await reader.read()
        finally:
            writer.close()

    def set_routes(self, *routes: Route) -> None:
        """Another table."""
        holder = self.parts.holder
        holder.table = replace(holder.table, routes={route.name: route for route in routes})
        self.parts.admission.room_grew()

    async def last(self) -> RequestRecord:
        """The newest record, as soon as no call runs."""
        await aeventually(lambda: not self.parts.calls and self.records)
        return self.records[-1]


def table(routes: Iterable[Route], key: KeyFacts | None = None) -> Table:
    """A table with one key."""
    known = key or KeyFacts(1, "app", "ik-test")
    digest = hashlib.sha256(KEY.encode()).hexdigest()
    return Table(1, {digest: known}, {route.name: route for route in routes})


def triton(endpoint: Endpoint, uid: str = "one", **more: Any) -> Upstream:
    """An upstream of the streaming tests' server."""
    more.setdefault("slots", 4)
    return Upstream(
        uid=uid,
        kind="triton",
        http_url=endpoint.http_url,
        grpc_url=endpoint.grpc_url,
        model="demo",
        deployment_id=1,
        revision=1,
        **more,
    )


def openai(port: int, uid: str = "external:double", **more: Any) -> Upstream:
    """An OpenAI-style upstream on this host."""
    return Upstream(uid=uid, kind="openai", http_url=f"http://127.0.0.1:{port}/v1", model="there", **more)


def route(*upstreams: Upstream, name: str = "demo", **more: Any) -> Route:
    """A route with a chat template."""
    more.setdefault("template", CHATML)
    return Route(name=name, upstreams=upstreams, **more)


@contextlib.asynccontextmanager
async def served(*routes: Route, key: KeyFacts | None = None) -> AsyncIterator[Served]:
    """The gateway over these routes for the length of a block; at its end nothing of it is left."""
    known = table(routes, key)
    kept = Kept()
    application = Gateway(lambda: build(TableHolder(lambda: known, lambda: 1), kept))
    config = uvicorn.Config(
        application, http=GatewayProtocol, ws="none", lifespan="on", log_level="error", access_log=False
    )
    config.timeout_graceful_shutdown = 2
    server = uvicorn.Server(config)
    listening = listen(0, shared=False)
    # Its own signal handlers would take the test runner's.
    server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign]
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        await aeventually(lambda: server.started or serving.done())
        assert application.parts is not None
        yield Served(listening.getsockname()[1], application.parts, kept.records)
    finally:
        server.should_exit = True
        await serving
        listening.close()


@contextlib.asynccontextmanager
async def double(chunks: int = 5, gap: float = 0.001) -> AsyncIterator[tuple[int, Double]]:
    """The OpenAI-style double in this event loop; (port, what it counted)."""
    upstream = Double(chunks, gap)
    server = await upstream.serve()
    try:
        yield server.sockets[0].getsockname()[1], upstream
    finally:
        server.close()


def post(key: str, body: bytes, path: str = "/v1/chat/completions", *more: str) -> bytes:
    """A request's bytes."""
    lines = [
        f"POST {path} HTTP/1.1",
        "Host: x",
        f"Authorization: Bearer {key}",
        "Content-Type: application/json",
        *more,
        f"Content-Length: {len(body)}",
        "",
        "",
    ]
    return "\r\n".join(lines).encode() + body
