"""The parts by themselves: the small HTTP client, the table's holder, traces, bodies that are kept, the registry."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiohttp import web

from apps.gateway import prompting
from apps.gateway.domain.facts import Route, Table
from apps.gateway.running import Registry, RunningRequest
from apps.gateway.tracing import Tracing
from apps.gateway.watch import TableHolder
from apps.streaming.http_client import (
    HIGH_WATER,
    Connection,
    Opening,
    Origin,
    Pool,
    UpstreamLost,
    UpstreamUnreachable,
    read_origin,
    request_head,
    with_body,
)
from apps.streaming.token_source import StreamError
from tests.gateway.path.serving import double, openai, route, served, triton
from tests.streaming.upstreams import Upstream, delta, http_server, last
from tests.support.waiting import aeventually

MESSAGES: Any = [{"role": "user", "content": "Hi"}]


@contextlib.asynccontextmanager
async def answering(*answers: bytes, close: bool = True) -> AsyncIterator[Origin]:
    """A server that answers each request on a connection with the next of these bytes, then closes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            with contextlib.suppress(asyncio.IncompleteReadError):
                await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
        if close:
            writer.close()
        else:
            await reader.read()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield Origin("127.0.0.1", server.sockets[0].getsockname()[1])
    finally:
        server.close()


def get(origin: Origin) -> bytes:
    return with_body(request_head(origin, "GET", "/", {}), b"")


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


async def test_a_warm_connection_that_was_closed_is_replaced() -> None:
    pool = Pool()
    async with answering(OK) as origin:
        for _ in range(3):
            connection = await pool.send(origin, get(origin))
            assert await connection.body(10) == b"ok"
            pool.release(connection, origin)
            await asyncio.sleep(0)
    assert len(pool) <= 1
    pool.close()
    with pytest.raises(UpstreamUnreachable):
        await pool.send(origin, get(origin))
    assert len(pool) == 0


@pytest.mark.parametrize(
    "answer",
    [
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000 + b"\r\n\r\n",
    ],
)
async def test_answers_that_are_none_are_lost(answer: bytes) -> None:
    pool = Pool()
    async with answering(answer) as origin:
        with pytest.raises(UpstreamLost):
            connection = await pool.send(origin, get(origin))
            await connection.body(1000)
    pool.close()


async def test_a_body_that_ends_with_its_connection_and_one_behind_a_100() -> None:
    pool = Pool()
    for answer in (b"HTTP/1.1 200 OK\r\n\r\nall of it", b"HTTP/1.1 100 Continue\r\n\r\n" + OK):
        async with answering(answer) as origin:
            connection = await pool.send(origin, get(origin))
            assert await connection.body(100) in (b"all of it", b"ok")
            assert connection.status == 200
            pool.release(connection, origin)
    pool.close()


async def test_what_is_unread_is_bounded() -> None:
    size = 50 * 1024 * 1024
    pool = Pool()
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size + b"x" * size
    async with answering(answer) as origin:
        connection = await pool.send(origin, get(origin))
        await aeventually(lambda: connection._paused)
        assert connection._buffered <= HIGH_WATER + 1024 * 1024
        with pytest.raises(UpstreamLost, match="longer"):
            await connection.body(1024 * 1024)
        pool.release(connection, origin)
    assert len(pool) == 0


async def test_a_wait_can_be_ended_from_outside() -> None:
    pool, opening = Pool(), Opening()
    async with answering(b"", close=False) as origin:
        sending = asyncio.create_task(pool.send(origin, get(origin), opening))
        await aeventually(lambda: opening.connection is not None)
        opening.fail(StreamError("first_token_timeout", "late"))
        with pytest.raises(UpstreamLost):
            await sending
    assert len(pool) == 0


async def test_addresses_that_are_not_allowed_are_not_connected_to() -> None:
    asked: list[tuple[str, str, int]] = []

    def allowed(host: str, address: str, port: int) -> bool:
        asked.append((host, address, port))
        return False

    pool = Pool(allowed)
    async with answering(OK) as origin:
        with pytest.raises(UpstreamUnreachable, match="not allowed"):
            await pool.send(origin, get(origin))
    assert asked == [("127.0.0.1", "127.0.0.1", origin.port)]


async def test_idle_connections_are_closed_after_a_while() -> None:
    now = [0.0]
    pool = Pool(clock=lambda: now[0])
    async with answering(OK, OK) as origin:
        connection = await pool.send(origin, get(origin))
        await connection.body(10)
        pool.release(connection, origin)
        pool.sweep()
        assert len(pool) == 1
        now[0] = 60.0
        pool.sweep()
    assert len(pool) == 0
    assert isinstance(connection, Connection)


@pytest.mark.parametrize(
    "url", ["", "ftp://x", "http://", "http://u:p@x/", "http://x/?q", "http://x/#f", "x:80"]
)
def test_addresses_that_are_no_origins(url: str) -> None:
    with pytest.raises(ValueError):
        read_origin(url)


def test_an_origin_and_its_head() -> None:
    origin = read_origin("https://[::1]:8443/base/")
    assert origin == Origin("::1", 8443, True, "/base")
    assert request_head(origin, "GET", "/x", {"A": "b"}) == (
        b"GET /base/x HTTP/1.1\r\nHost: [::1]:8443\r\nA: b\r\n"
    )
    with pytest.raises(ValueError):
        request_head(origin, "GET", "/x", {"A": "b\r\nC: d"})


async def test_the_table_outlives_its_database() -> None:
    versions: list[Any] = [1]
    holder = TableHolder(lambda: made(versions[-1]), lambda: number(versions[-1]))
    seen: list[int] = []
    holder.on_change(lambda table: seen.append(table.version))
    await holder.start()
    versions.append(OSError("away"))
    await holder._refresh(always=False)
    assert (holder.table.version, holder.loaded, holder.problem) == (1, True, "away")
    versions.append(2)
    await holder._refresh(always=False)
    await holder._refresh(always=False)
    assert (holder.table.version, holder.problem, seen) == (2, "", [1, 2])
    holder.close()


def number(version: Any) -> int:
    if isinstance(version, Exception):
        raise version
    return int(version)


def made(version: Any) -> Table:
    return Table(number(version), {}, {})


async def test_traces_go_out_only_where_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Tracing({}).begin("x", "", 0.0) is None
    assert Tracing({}).parent_of(None) == ""
    posted: list[bytes] = []

    async def traces(request: web.Request) -> web.Response:
        posted.append(await request.read())
        return web.Response()

    app = web.Application()
    app.router.add_post("/v1/traces", traces)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{runner.addresses[0][1]}")
    upstream = Upstream([delta("a"), last()])
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    async with http_server(upstream) as endpoint, served(route(triton(endpoint))) as gate:
        await gate.client().chat.completions.create(
            model="demo", messages=MESSAGES, extra_headers={"traceparent": parent}
        )
    await aeventually(lambda: posted)
    await runner.cleanup()
    assert bytes.fromhex("0af7651916cd43dd8448eb211c80319c") in posted[0]
    assert b"inflight.upstream" in posted[0]
    assert b"Hi" not in posted[0]


@pytest.mark.parametrize("streamed", [True, False])
async def test_bodies_are_kept_only_where_that_is_switched_on(streamed: bool) -> None:
    upstream = Upstream([delta("an"), last("swer")])
    async with http_server(upstream) as endpoint, double() as (port, _counts):
        routes = (
            route(triton(endpoint), name="kept", record_bodies=True),
            route(triton(endpoint), name="not"),
            route(openai(port), name="ext", record_bodies=True),
        )
        async with served(*routes) as gate:
            for name in ("kept", "not", "ext"):
                found: Any = await gate.client().chat.completions.create(
                    model=name, messages=MESSAGES, stream=streamed, metadata={"chunks": "3"}
                )
                if streamed:
                    _ = [chunk async for chunk in found]
                await aeventually(lambda: not gate.parts.calls)
    kept, forgotten, external = gate.records
    assert (kept.answer, forgotten.answer, forgotten.prompt) == ("answer", None, None)
    assert "Hi" in (kept.prompt or "")
    assert external.answer == "tok0 tok1 tok2 "
    assert "Hi" in (external.prompt or "")


def test_the_registry_cancels_what_it_has() -> None:
    registry = Registry()
    ended: list[str] = []

    def ends(name: str) -> Callable[[], object]:
        return lambda: ended.append(name)

    for name in ("a", "b"):
        request = RunningRequest(name, 1, "app", "demo", "chat", 1, True, 0.0)
        registry.add(request, ends(name))
        assert request.process == registry.process
    assert registry.cancel("a")
    assert not registry.cancel("c")
    registry.remove("a")
    assert (registry.cancel_all(), ended, "a" in registry, len(registry)) == (1, ["a", "b"], False, 1)


@pytest.mark.parametrize(
    ("template", "kind", "adds", "text"),
    [
        ("{{ messages[0].content }}", "trtllm", "yes", "<s>Hi"),
        ("{{ messages[0].content }}", "trtllm", "", "Hi"),
        ("{{ bos_token }}{{ messages[0].content }}", "trtllm", "yes", "<s>Hi"),
        ("{{ bos_token }}{{ messages[0].content }}", "llmapi", "", "Hi"),
        ("{{ bos_token }}{{ messages[0].content }}", "llmapi", "no", "<s>Hi"),
        ("{{ bos_token }}{{ messages[0].content }}", "llamacpp", "yes", "<s>Hi"),
    ],
)
async def test_a_prompt_has_one_bos_for_every_kind_of_engine(
    template: str, kind: str, adds: str, text: str
) -> None:
    tokens = {"bos": "<s>", "eos": "</s>", "kind": kind, "adds": adds}
    assert await prompting.render(Route("demo", (), template=template, tokens=tokens), MESSAGES) == text
