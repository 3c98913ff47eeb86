"""A mixture of requests as the world sends them: good ones, and every way to go wrong, from one event loop."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tests.gateway.path.serving import post

KINDS = (
    *("whole",) * 4,
    *("stream",) * 3,
    *("abort", "slow_reader", "half_open", "oversized", "malformed", "wrong_key", "revoked_key", "no_model"),
)
MESSAGES: Any = [{"role": "user", "content": "Hi"}]


@dataclass
class Mixture:
    """Sends requests to a gateway and counts what came back by kind and status; `odd` must stay empty."""

    port: int
    key: str
    revoked: str
    model: str = "double"
    max_body: int = 8 * 1024 * 1024
    came: Counter[tuple[str, int]] = field(default_factory=Counter)
    odd: list[str] = field(default_factory=list)

    async def run(self, requests: int, at_once: int, seed: int = 1) -> None:
        """Send so many, `at_once` at a time."""
        chance = random.Random(seed)
        kinds = [chance.choice(KINDS) for _ in range(requests)]
        gate = asyncio.Semaphore(at_once)

        async def one(kind: str) -> None:
            async with gate:
                try:
                    async with asyncio.timeout(60):
                        status = await getattr(self, f"_{kind}")()
                    self.came[kind, status] += 1
                except (OSError, asyncio.IncompleteReadError, TimeoutError) as error:
                    self.odd.append(f"{kind}: {error!r}")

        await asyncio.gather(*(one(kind) for kind in kinds))

    def _body(self, **more: Any) -> bytes:
        return json.dumps({"model": self.model, "messages": MESSAGES, **more}).encode()

    async def _ask(self, request: bytes) -> tuple[int, bytes]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            status = int(head[9:12])
            size = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
            if size:
                return status, await reader.readexactly(int(size[0].split(b":")[1]))
            return status, await reader.readuntil(b"0\r\n\r\n")
        finally:
            writer.close()

    async def _whole(self) -> int:
        return (await self._ask(post(self.key, self._body())))[0]

    async def _stream(self) -> int:
        status, body = await self._ask(post(self.key, self._body(stream=True)))
        if status == 200 and b"[DONE]" not in body:
            self.odd.append("stream: no end mark")
        return status

    async def _abort(self) -> int:
        request = post(self.key, self._body(stream=True, metadata={"chunks": 1000, "gap_ms": 5}))
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(request)
        await reader.read(100)
        transport: asyncio.Transport = writer.transport  # type: ignore[assignment]
        transport.abort()
        return 0

    async def _slow_reader(self) -> int:
        request = post(self.key, self._body(stream=True, metadata={"chunks": 20, "gap_ms": 0, "size": 2000}))
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1024)
        try:
            writer.write(request)
            data = b""
            while b"[DONE]" not in data:
                part = await reader.read(500)
                if not part:
                    break
                data = data[-16:] + part
                await asyncio.sleep(0.001)
            return 200 if b"[DONE]" in data else 0
        finally:
            writer.close()

    async def _half_open(self) -> int:
        """The client's side is shut down after the request: as servers read it, nobody waits for an answer."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            # Long enough that it cannot end before that is noticed.
            writer.write(post(self.key, self._body(stream=True, metadata={"chunks": 1000, "gap_ms": 5})))
            writer.write_eof()
            await reader.read()
            return 0
        finally:
            writer.close()

    async def _oversized(self) -> int:
        head = post(self.key, b"").replace(b"Content-Length: 0", b"Content-Length: %d" % (self.max_body + 1))
        with contextlib.suppress(ConnectionResetError):
            return (await self._ask(head))[0]
        return 413

    async def _malformed(self) -> int:
        return (await self._ask(post(self.key, b'{"model": "double", "messages": [')))[0]

    async def _wrong_key(self) -> int:
        return (await self._ask(post("ik-nobody", self._body())))[0]

    async def _revoked_key(self) -> int:
        return (await self._ask(post(self.revoked, self._body())))[0]

    async def _no_model(self) -> int:
        self_body = json.dumps({"model": "none", "messages": MESSAGES}).encode()
        return (await self._ask(post(self.key, self_body)))[0]


EXPECTED = {
    "whole": 200,
    "stream": 200,
    "abort": 0,
    "slow_reader": 200,
    "half_open": 0,
    "oversized": 413,
    "malformed": 400,
    "wrong_key": 401,
    "revoked_key": 401,
    "no_model": 404,
}
