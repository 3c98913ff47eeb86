"""Clients that leave, take nothing, or never finish asking; operators that cancel; a process that ends."""

from __future__ import annotations

import asyncio
import json
import socket
from functools import partial
from typing import Any

import openai as official
import pytest

from tests.gateway.path.serving import KEY, Served, double, openai, post, route, served, triton
from tests.streaming.upstreams import Upstream, delta, grpc_server, http_server, last, never
from tests.support.waiting import aeventually

MESSAGES: Any = [{"role": "user", "content": "Hi"}]
STREAM = json.dumps({"model": "demo", "messages": MESSAGES, "stream": True}).encode()
WHOLE = json.dumps({"model": "demo", "messages": MESSAGES}).encode()


def leaves_nothing(gate: Served) -> bool:
    """Whether no call, slot or request upstream is left."""
    parts = gate.parts
    routes = parts.holder.table.routes
    return (
        not parts.calls
        and not len(parts.registry)
        and not any(parts.admission.granted(name) or parts.admission.waiting(name) for name in routes)
        and not any(
            parts.balancer.outstanding(one.uid) for found in routes.values() for one in found.upstreams
        )
    )


@pytest.mark.parametrize("body", [STREAM, WHOLE])
@pytest.mark.parametrize("script", [[delta("a"), never], [never]])
async def test_a_client_that_leaves_cancels_the_engine(body: bytes, script: list[Any]) -> None:
    upstream = Upstream(script)
    async with http_server(upstream) as endpoint, served(route(triton(endpoint))) as gate:
        _reader, writer = await gate.raw(post(gate.key, body))
        await asyncio.wait_for(upstream.came.wait(), 10)
        writer.close()
        await asyncio.wait_for(upstream.cancelled.wait(), 10)
        record = await gate.last()
        await aeventually(lambda: leaves_nothing(gate))
    assert (record.outcome, record.reason) == ("cancelled", "client_gone")


async def test_a_client_that_leaves_while_it_waits_for_a_slot() -> None:
    upstream = Upstream([delta("a"), never])
    async with http_server(upstream) as endpoint, served(route(triton(endpoint, slots=1))) as gate:
        _reader, first = await gate.raw(post(gate.key, STREAM))
        await asyncio.wait_for(upstream.came.wait(), 10)
        _reader, second = await gate.raw(post(gate.key, STREAM))
        await aeventually(lambda: gate.parts.admission.waiting("demo") == 1)
        second.close()
        await aeventually(lambda: gate.parts.admission.waiting("demo") == 0)
        first.close()
        await aeventually(lambda: leaves_nothing(gate))
    assert len(upstream.asked) == 1
    assert [record.outcome for record in gate.records] == ["cancelled", "cancelled"]


async def test_over_grpc_a_waiting_request_is_cancelled(settings: Any) -> None:
    settings.INFLIGHT_GATEWAY_TRANSPORT = "auto"
    upstream = Upstream([never])
    async with http_server(upstream) as http, grpc_server(upstream) as grpc:
        one = triton(type(http)(http.http_url, grpc.grpc_url, "demo"), slots=None)
        async with served(route(one)) as gate:
            _reader, writer = await gate.raw(post(gate.key, STREAM))
            await asyncio.wait_for(upstream.came.wait(), 10)
            writer.close()
            await asyncio.wait_for(upstream.cancelled.wait(), 10)
            upstream.script = [delta("a"), last("b")]
            answer = await gate.client().chat.completions.create(model="demo", messages=MESSAGES)
            await aeventually(lambda: leaves_nothing(gate))
    assert answer.choices[0].message.content == "ab"


@pytest.mark.parametrize("streamed", [True, False])
async def test_an_operator_cancels(streamed: bool) -> None:
    upstream = Upstream([delta("a"), never])
    async with http_server(upstream) as endpoint, served(route(triton(endpoint))) as gate:
        asking = asyncio.create_task(_everything(gate, streamed))
        await aeventually(lambda: any(call.ttft is not None for call in gate.parts.calls))
        running = next(iter(gate.parts.calls)).running
        assert running is not None
        assert gate.parts.registry.cancel(running.request_id)
        with pytest.raises(official.APIError, match="cancelled by an operator"):
            await asking
        record = await gate.last()
        assert not gate.parts.registry.cancel("unknown")
    assert (record.outcome, record.reason) == ("cancelled", "cancelled")


async def _everything(gate: Served, streamed: bool) -> None:
    answer: Any = await gate.client().chat.completions.create(
        model="demo", messages=MESSAGES, stream=streamed
    )
    if streamed:
        _ = [chunk async for chunk in answer]


async def test_a_slow_reader_is_waited_for_within_bounds_and_then_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("apps.gateway.call.STALL_SECONDS", 0.3)
    asked = {"model": "demo", "messages": MESSAGES, "stream": True}
    asked["metadata"] = {"chunks": 100_000, "gap_ms": 0, "size": 10_000}
    async with double() as (port, counts), served(route(openai(port))) as gate:
        deaf = socket.socket()
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.setblocking(False)
        await asyncio.get_running_loop().sock_connect(deaf, ("127.0.0.1", gate.port))
        await asyncio.get_running_loop().sock_sendall(deaf, post(gate.key, json.dumps(asked).encode()))
        await aeventually(lambda: any(call.exchange.sending_since for call in gate.parts.calls))
        sent = counts.counts.chunks
        record = await gate.last()
        await aeventually(lambda: counts.counts.open == 0)
        deaf.close()
        await aeventually(lambda: leaves_nothing(gate))
    assert (record.outcome, record.reason) == ("cancelled", "client_stalled")
    # What the sockets and two buffers of 64 KiB hold, and not the whole answer.
    assert sent * 10_000 < 20_000_000


async def test_a_body_that_never_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("apps.gateway.call.BODY_SECONDS", 0.2)
    async with served(route()) as gate:
        head = post(gate.key, b"x" * 100).partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
        answer = await gate.answer(head + b"only this")
        await aeventually(lambda: leaves_nothing(gate))
    assert answer.startswith(b"HTTP/1.1 408")
    assert b'"code":"request_timeout"' in answer


async def test_a_head_that_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("apps.gateway.server.HEAD_SECONDS", 0.2)
    async with served(route()) as gate:
        reader, writer = await gate.raw(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nX-Slow")
        async with asyncio.timeout(10):
            with pytest.raises(ConnectionResetError):
                await reader.read()
                raise ConnectionResetError
        writer.close()


@pytest.mark.parametrize("more", [b"", b"\r\n"])
async def test_a_body_that_came_apart_from_its_head_ends_no_stream(
    monkeypatch: pytest.MonkeyPatch, more: bytes
) -> None:
    """Most clients send them so. What came after the head was once taken for a next one that never ends."""
    monkeypatch.setattr("apps.gateway.server.HEAD_SECONDS", 0.05)
    upstream = Upstream([delta("a"), partial(asyncio.sleep, 0.2), last("b")])
    head, _, body = post(KEY, STREAM).partition(b"\r\n\r\n")
    async with http_server(upstream) as endpoint, served(route(triton(endpoint))) as gate:
        reader, writer = await gate.raw(head + b"\r\n\r\n")
        await aeventually(lambda: gate.parts.calls)
        writer.write(body)
        async with asyncio.timeout(10):
            said = await reader.readuntil(b'"content":"a"')
            writer.write(more)
            said = await reader.readuntil(b"[DONE]")
        writer.close()
        record = await gate.last()
    assert b'"content":"b"' in said
    assert record.outcome == "ok"


async def test_a_process_that_ends_tells_its_streams() -> None:
    upstream = Upstream([delta("a"), never])
    async with http_server(upstream) as endpoint:
        async with served(route(triton(endpoint))) as gate:
            reader, writer = await gate.raw(post(gate.key, STREAM))
            await asyncio.wait_for(upstream.came.wait(), 10)
            await aeventually(lambda: any(call.ttft is not None for call in gate.parts.calls))
        async with asyncio.timeout(10):
            rest = await reader.read()
        writer.close()
        await asyncio.wait_for(upstream.cancelled.wait(), 10)
    assert b'"code":"shutting_down"' in rest
    assert gate.records[-1].outcome == "interrupted"
