"""The raw ASGI application: routes of the API, and what runs beside the calls. No Django middleware, no ORM.

| path | answers |
|---|---|
| POST /v1/chat/completions, /v1/completions | streams and whole answers |
| GET /v1/models, /v1/models/NAME | the models that a key may use |
| POST /tokenize (also /v1/tokenize) | the tokens of a prompt |
| GET /healthz | this process runs |
| GET /readyz | database, Redis, migrations, workers and the table, each by name |
| GET /metrics | Prometheus; without a key only from this host itself |
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import unquote

import orjson
from django.utils.translation import gettext as _
from prometheus_client import CONTENT_TYPE_LATEST

from apps.gateway import readiness
from apps.gateway.call import Call
from apps.gateway.errors import ApiError
from apps.gateway.generation import Generation
from apps.gateway.http import Exchange
from apps.gateway.tokenize import Tokenize
from apps.gateway.usage import orphans
from apps.gateway.wiring import Parts, build
from apps.realtime.redis_clients import close_async_client

log = logging.getLogger(__name__)

SWEEP_SECONDS = 0.25
READY_SECONDS = 5.0
ADOPT_SECONDS = 30.0
# An answer of /readyz serves everybody who asks within this time.
READY_KEPT_SECONDS = 1.0
POSTS: dict[str, tuple[type[Call], str]] = {
    "/v1/chat/completions": (Generation, "chat"),
    "/v1/completions": (Generation, "completions"),
    "/tokenize": (Tokenize, "tokenize"),
    "/v1/tokenize": (Tokenize, "tokenize"),
}
GETS = frozenset({"/v1/models", "/healthz", "/readyz", "/metrics"})


class Gateway:
    """The application. Its parts are made by `make` at start-up, in the server's event loop."""

    def __init__(self, make: Callable[[], Parts] = build) -> None:
        self.parts: Parts | None = None
        self._make = make
        self._background: list[asyncio.Task[Any]] = []
        self._ready_thread = ThreadPoolExecutor(1, "gateway-ready")
        self._ready: tuple[float, dict[str, str]] = (0.0, {})
        self._ready_lock = asyncio.Lock()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """ASGI."""
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        else:
            # Websockets belong to the web process.
            await receive()
            await send({"type": "websocket.close", "code": 1008})

    # ------------------------------------------------------------ calls

    async def _http(self, scope: Any, receive: Any, send: Any) -> None:
        exchange = Exchange(scope, receive, send)
        try:
            exchange.read_head()
            found = POSTS.get(exchange.path)
            if found is None or exchange.method != "POST":
                await self._other(exchange)
                return
        except ApiError as error:
            await exchange.refuse(error)
            return
        kind, endpoint = found
        await kind(self._started(), exchange, endpoint).run()  # type: ignore[arg-type]

    async def _other(self, exchange: Exchange) -> None:
        path = exchange.path
        model = path.removeprefix("/v1/models/") if path.startswith("/v1/models/") else ""
        if path in POSTS:
            raise not_allowed("POST")
        if path not in GETS and not model:
            raise ApiError(404, "not_found", _("There is nothing at this address."))
        if exchange.method not in ("GET", "HEAD"):
            raise not_allowed("GET")
        if path == "/healthz":
            await exchange.reply(200, b'{"status":"ok"}')
        elif path == "/readyz":
            await self._readyz(exchange)
        elif path == "/metrics":
            await self._metrics(exchange)
        else:
            await self._models(exchange, unquote(model))

    async def _models(self, exchange: Exchange, name: str) -> None:
        call = Call(self._started(), exchange, "chat")
        key = call.authenticate()
        if name:
            found: Any = _model(name, call.find_route(key, name).created)
        else:
            routes = self._started().holder.table.routes.values()
            seen = [one for one in routes if key.routes is None or one.name in key.routes]
            rows = [_model(one.name, one.created) for one in sorted(seen, key=lambda one: one.name)]
            found = {"object": "list", "data": rows}
        await exchange.reply(200, orjson.dumps(found))

    async def _metrics(self, exchange: Exchange) -> None:
        if not _from_here(exchange):
            Call(self._started(), exchange, "chat").authenticate()
        text = self._started().metrics.text()
        await exchange.reply(200, text, content_type=CONTENT_TYPE_LATEST.encode())

    async def _readyz(self, exchange: Exchange) -> None:
        async with self._ready_lock:
            asked, checks = self._ready
            if not checks or time.monotonic() - asked > READY_KEPT_SECONDS:
                checks = await self._look()
                self._ready = (time.monotonic(), checks)
        ready = all(answer == "ok" for answer in checks.values())
        body = orjson.dumps({"status": "ok" if ready else "failed", "checks": checks})
        await exchange.reply(200 if ready else 503, body)

    async def _look(self) -> dict[str, str]:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(READY_SECONDS):
                checks = await loop.run_in_executor(self._ready_thread, readiness.checks)
        except TimeoutError:
            checks = {"database": _("did not answer within %(seconds).0f s") % {"seconds": READY_SECONDS}}
        holder = self._started().holder
        checks["table"] = "ok" if holder.loaded and not holder.problem else _("cannot be read")
        return checks

    # ------------------------------------------------------------ life

    async def start(self) -> Parts:
        """Make the parts, load the table, begin what runs beside the calls."""
        self.parts = parts = self._make()
        await parts.holder.start()
        parts.recorder.start()
        for work in (
            parts.holder.poll(),
            parts.holder.listen(),
            parts.registry.publish(),
            parts.registry.listen(),
            self._sweep(parts),
            self._adopt(parts),
        ):
            self._background.append(parts.spawn(work))
        return parts

    async def stop(self) -> None:
        """End what `start` began; the calls are over already."""
        parts = self._started()
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        self._background.clear()
        await parts.registry.withdraw()
        await parts.triton.close()
        for pool in parts.pools:
            pool.close()
        await parts.admission.close()
        await asyncio.to_thread(parts.recorder.stop)
        await asyncio.to_thread(parts.tracing.close)
        parts.holder.close()
        self._ready_thread.shutdown(wait=False, cancel_futures=True)
        with contextlib.suppress(OSError):
            await close_async_client()

    async def _sweep(self, parts: Parts) -> None:
        """Look at every call a few times a second; see call.py."""
        while True:
            before = time.perf_counter()
            await asyncio.sleep(SWEEP_SECONDS)
            now = time.perf_counter()
            parts.metrics.loop_lag.observe(max(0.0, now - before - SWEEP_SECONDS))
            for call in list(parts.calls):
                call.tick(now)
            for pool in parts.pools:
                pool.sweep()
            if parts.balancer.health.returned():
                parts.admission.room_grew()

    async def _adopt(self, parts: Parts) -> None:
        """Count what processes that were killed had begun; at the start, and now and then."""
        while True:
            for record in await asyncio.to_thread(orphans.adopt, parts.registry.process):
                parts.recorder.put(record)
            await asyncio.sleep(ADOPT_SECONDS)

    async def _lifespan(self, receive: Any, send: Any) -> None:
        await receive()
        try:
            await self.start()
        except Exception as error:
            log.exception("The gateway cannot start")
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.stop()
        await send({"type": "lifespan.shutdown.complete"})

    def _started(self) -> Parts:
        if self.parts is None:
            raise RuntimeError("the gateway has not been started: its server must run the lifespan protocol")
        return self.parts


def not_allowed(method: str) -> ApiError:
    """Another method at a known path."""
    return ApiError(
        405,
        "method_not_allowed",
        _("Use %(method)s at this address.") % {"method": method},
        headers={"allow": method},
    )


def _model(name: str, created: int) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": created, "owned_by": "inflight"}


def _from_here(exchange: Exchange) -> bool:
    """Whether it comes from this host itself, and through no proxy."""
    if b"x-forwarded-for" in exchange.headers or b"forwarded" in exchange.headers:
        return False
    client = exchange.scope.get("client")
    try:
        return client is not None and ipaddress.ip_address(client[0]).is_loopback
    except ValueError:
        return False
