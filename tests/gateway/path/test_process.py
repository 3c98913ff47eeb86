"""The real process over a real database and Redis: keys, push, what it does while they are away, how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import signal
import sqlite3
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import openai as official
import pytest
from django.db import connection

from apps.gateway import keys
from apps.gateway.models import GatewayKey, RequestLog, UsageHour
from apps.gateway.running import request_cancel, snapshot
from apps.streaming.token_source import Endpoint
from tests.streaming.upstreams import Upstream, delta, http_server, last
from tests.support import gateway as support
from tests.support.gateway import GatewayProcess
from tests.support.redis import RedisServer
from tests.support.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.django_db(transaction=True)]
MESSAGES: Any = [{"role": "user", "content": "Hi"}]


@pytest.fixture
def double_port() -> Iterator[int]:
    """The OpenAI-style double on a thread."""
    with support.double_process() as port:
        yield port


@pytest.fixture
def gate(redis_server: RedisServer, double_port: int, settings: Any) -> Iterator[GatewayProcess]:
    """A gateway that serves the double under the name `double`."""
    settings.INFLIGHT_UPSTREAM_ALLOW = ["127.0.0.1"]
    support.external(double_port)
    with support.gateway(redis_server) as running:
        yield running


def client(gate: GatewayProcess, key: str, **options: Any) -> official.OpenAI:
    """The official client."""
    return official.OpenAI(base_url=gate.url, api_key=key, max_retries=0, **options)


def ask(gate: GatewayProcess, key: str) -> str:
    """The code of what comes back: ok, or an error's."""
    try:
        client(gate, key).chat.completions.create(model="double", messages=MESSAGES)
    except official.APIStatusError as error:
        return str(error.code)
    return "ok"


def test_a_key_works_at_once_and_is_gone_within_two_seconds(gate: GatewayProcess) -> None:
    raw = support.key()
    eventually(lambda: ask(gate, raw) == "ok", "the key works", 5)
    began = time.monotonic()
    keys.revoke_key("test", GatewayKey.objects.get())
    eventually(lambda: ask(gate, raw) == "invalid_api_key", "the key is refused", 5)
    assert time.monotonic() - began < 4
    eventually(UsageHour.objects.exists, "usage was written")
    assert gate.get("/readyz")[1]["checks"]["migrations"] == "ok"
    assert gate.figure("inflight_gateway_requests_total") >= 2


def test_a_lost_message_is_made_up_by_the_poll(gate: GatewayProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("apps.gateway.table._publish", lambda: None)
    raw = support.key()
    eventually(lambda: ask(gate, raw) == "ok", "the key works", 5)


def test_what_runs_is_told_and_cancelled_from_another_process(gate: GatewayProcess) -> None:
    raw = support.key()
    eventually(lambda: ask(gate, raw) == "ok", "the key works", 5)
    stream = client(gate, raw).chat.completions.create(
        model="double", messages=MESSAGES, stream=True, metadata={"chunks": "100000"}
    )
    next(stream)
    found = eventually(snapshot, "the snapshot shows it", 5)
    assert (found[0].route, found[0].key_name, found[0].phase) == ("double", "app", "generating")
    assert request_cancel(found[0].request_id)
    with pytest.raises(official.APIError, match="cancelled by an operator"):
        for _chunk in stream:
            pass
    eventually(lambda: not snapshot(), "the snapshot is empty", 5)


@pytest.mark.faults
def test_requests_go_on_without_redis_and_without_database(
    gate: GatewayProcess, redis_server: RedisServer
) -> None:
    raw = support.key(requests_per_minute=1000)
    eventually(lambda: ask(gate, raw) == "ok", "the key works", 5)
    redis_server.stop()
    assert [ask(gate, raw) for _ in range(5)] == ["ok"] * 5
    assert gate.get("/readyz")[1]["checks"]["redis"] != "ok"
    assert gate.get("/healthz")[0] == 200
    with locked_database():
        assert [ask(gate, raw) for _ in range(5)] == ["ok"] * 5
    redis_server.start()
    eventually(lambda: gate.get("/readyz")[1]["checks"]["redis"] == "ok", "Redis is back")
    eventually(lambda: sum(UsageHour.objects.values_list("requests", flat=True)) >= 11, "usage is whole", 15)


@pytest.mark.slow
@pytest.mark.faults
def test_a_kill_loses_less_than_a_second_of_usage(redis_server: RedisServer, settings: Any) -> None:
    """Streams that run and answers that have just ended, against what the engine sent and when."""
    sent: list[float] = []

    async def pace() -> None:
        sent.append(time.monotonic())
        await asyncio.sleep(0.01)

    script = [step for number in range(2000) for step in (pace, delta(f"{number} "))]
    with in_a_thread(Upstream([*script, last("")])) as endpoint:
        support.triton_deployment(endpoint.http_url, endpoint.grpc_url, "demo", slots=16)
        raw = support.key()
        with support.gateway(redis_server) as gate:
            eventually(lambda: gate.get("/readyz")[1]["checks"]["table"] == "ok", "the table is read", 10)

            def read() -> None:
                with contextlib.suppress(official.APIError, httpx.HTTPError):
                    for _chunk in client(gate, raw).chat.completions.create(
                        model="demo", messages=MESSAGES, stream=True
                    ):
                        pass

            readers = [threading.Thread(target=read, daemon=True) for _ in range(8)]
            for reader in readers:
                reader.start()
            eventually(lambda: len(sent) > 1500, "two seconds of eight streams are out", 30)
            killed = time.monotonic()
            gate.kill()
            for reader in readers:
                reader.join(10)
        lost_at_most = sum(1 for at in sent if killed - 1.0 <= at <= killed)
        engine = sum(1 for at in sent if at <= killed)
        with support.gateway(redis_server):
            counted = eventually(
                lambda: sum(UsageHour.objects.values_list("completion_tokens", flat=True)),
                "it is counted",
                10,
            )
        print(f"lost {engine - counted} of {engine} tokens, {lost_at_most} in the last second")
        assert engine - lost_at_most <= counted <= len(sent)
        assert set(RequestLog.objects.values_list("outcome", "reason")) == {("interrupted", "gateway_killed")}
        assert UsageHour.objects.get().requests == 8


@contextlib.contextmanager
def in_a_thread(upstream: Upstream) -> Iterator[Endpoint]:
    """The streaming tests' server in an event loop of its own."""
    found: queue.Queue[Endpoint] = queue.Queue()
    loop = asyncio.new_event_loop()
    over = asyncio.Event()

    async def serve() -> None:
        async with http_server(upstream) as endpoint:
            found.put(endpoint)
            await over.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), daemon=True)
    thread.start()
    try:
        yield found.get(timeout=10)
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(10)
        loop.close()


class locked_database:
    """Nobody else can use the test's SQLite file meanwhile; on PostgreSQL the tables are locked."""

    def __enter__(self) -> None:
        if connection.vendor == "sqlite":
            self._other: Any = sqlite3.connect(connection.settings_dict["NAME"], timeout=10)
            self._other.execute("BEGIN EXCLUSIVE")
            return
        connection.ensure_connection()
        self._other = connection.copy()
        self._other.connect()
        self._other.set_autocommit(False)
        names = ", ".join(connection.introspection.table_names())
        with self._other.cursor() as cursor:
            cursor.execute(f"LOCK TABLE {names} IN ACCESS EXCLUSIVE MODE")

    def __exit__(self, *_: object) -> None:
        self._other.rollback()
        self._other.close()


def test_a_stop_lets_streams_end(gate: GatewayProcess) -> None:
    raw = support.key()
    eventually(lambda: ask(gate, raw) == "ok", "the key works", 5)
    stream = client(gate, raw).chat.completions.create(
        model="double", messages=MESSAGES, stream=True, metadata={"chunks": "30"}
    )
    next(stream)
    stopping = threading.Thread(target=gate.stop)
    stopping.start()
    assert sum(1 for _chunk in stream) == 29
    stopping.join(30)
    assert gate.process.returncode == 0


def test_several_processes_share_a_port(redis_server: RedisServer, double_port: int, settings: Any) -> None:
    settings.INFLIGHT_UPSTREAM_ALLOW = ["127.0.0.1"]
    support.external(double_port)
    raw = support.key()
    with support.gateway(redis_server, INFLIGHT_GATEWAY_PROCESSES="2") as first:
        with support.gateway(
            redis_server, INFLIGHT_GATEWAY_PROCESSES="2", INFLIGHT_GATEWAY_PORT=str(first.port)
        ) as second:
            assert second.port == first.port
            eventually(lambda: all(ask(first, raw) == "ok" for _ in range(20)), "both answer", 10)
        os.kill(first.process.pid, signal.SIGTERM)
        assert first.process.wait(30) == 0
