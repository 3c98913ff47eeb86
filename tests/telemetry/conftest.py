"""Servers that emit metrics, and rows that name them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from apps.realtime.redis_clients import close_async_client
from tests.telemetry.test_derive import llamacpp


@dataclass
class Engine:
    """A server of metrics: each scrape finds `step` more finished requests."""

    server: Any = None
    requests: int = 0
    step: int = 1
    delay: float = 0.0
    status: int = 200
    scrapes: int = 0
    body: Callable[[int], str] = field(
        default=lambda requests: llamacpp(requests, requests * 10, fast=requests)
    )

    @property
    def port(self) -> int:
        return int(self.server.port)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/metrics"

    async def answer(self, request: web.Request) -> web.Response:
        self.scrapes += 1
        if self.delay:
            await asyncio.sleep(self.delay)
        self.requests += self.step
        return web.Response(text=self.body(self.requests), status=self.status)


@pytest.fixture
async def engine() -> AsyncIterator[Callable[..., Any]]:
    """Start such servers; all are closed at the end."""
    started: list[Engine] = []

    async def start(**given: Any) -> Engine:
        made = Engine(**given)
        application = web.Application()
        application.router.add_get("/metrics", made.answer)
        made.server = TestServer(application, host="127.0.0.1")
        await made.server.start_server(access_log=None)
        started.append(made)
        return made

    yield start
    for each in started:
        await each.server.close()


@pytest.fixture
async def fast_clock(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """A second of the scraper in a tenth of one; and the loop's Redis client closed."""
    for module in ("pace",):
        for name, value in (("PERIOD", 0.1),):
            monkeypatch.setattr(f"apps.telemetry.{module}.{name}", value, raising=False)
    monkeypatch.setattr("apps.telemetry.processes.FRESH_SECONDS", 0.04)
    yield
    await close_async_client()
