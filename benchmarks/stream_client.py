"""A load generator for token streams that costs next to nothing: raw sockets, arrival times, no JSON.

A token is a match of `tok<number>` in what arrives, so it takes Triton's events and OpenAI's alike. Every stream has
a connection of its own, opened before anything is measured where `warm` is asked for.
"""

from __future__ import annotations

import asyncio
import gc
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import numpy.typing as npt

TOKEN = re.compile(rb"tok\d+")
STALL_SECONDS = 0.2
LENGTH = re.compile(rb"(?i)content-length: *(\d+)")
END = b"0\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Target:
    """What to ask: a server on the loopback address and one whole HTTP request."""

    port: int
    request: bytes


def post(port: int, path: str, body: bytes, headers: Sequence[str] = ()) -> Target:
    """A POST of JSON."""
    lines = [f"POST {path} HTTP/1.1", f"Host: 127.0.0.1:{port}", "Content-Type: application/json", *headers]
    head = "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode()
    return Target(port, head + body)


@dataclass(slots=True)
class Stream:
    """Arrivals of one stream, seconds of perf_counter. `complete`: the server ended it as HTTP has it."""

    sent: float = 0.0
    arrivals: list[float] = field(default_factory=list)
    status: int = 0
    complete: bool = False
    failed: str = ""


class _Client(asyncio.Protocol):
    """One connection."""

    def __init__(self) -> None:
        self.stream = Stream()
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._tail = b""
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's is none by inheritance.
        self.transport = cast(asyncio.Transport, transport)

    def ask(self, request: bytes) -> None:
        """Send the request and begin a new stream."""
        self.stream = Stream(sent=time.perf_counter())
        self.done = asyncio.get_running_loop().create_future()
        self._tail = b""
        if self.transport is not None:
            self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter()
        stream = self.stream
        if not stream.status:
            stream.status = int(data[9:12])
        # A token that is cut over two pieces counts where it becomes whole.
        text = self._tail + data
        end = 0
        for match in TOKEN.finditer(text):
            if match.end() < len(text):
                stream.arrivals.append(now)
                end = match.end()
        self._tail = text[max(end, len(text) - 12) :]
        if data.endswith(END) or (stream.status != 200 and b"\r\n\r\n" in text):
            stream.complete = data.endswith(END)
            self._finish()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.stream.failed = str(exc or "closed")
            self._finish()

    def _finish(self) -> None:
        if not self.done.done():
            self.done.set_result(None)


@dataclass(frozen=True, slots=True)
class Result:
    """One measurement. Lateness in seconds, of all tokens; TTFT in seconds, of all streams."""

    streams: int
    expected: int
    tokens: int
    failed: int
    stalls: int
    lateness: npt.NDArray[np.float64]
    ttft: npt.NDArray[np.float64]

    @property
    def sustained(self) -> bool:
        """Whether every token arrived and no gap was over 200 ms."""
        return self.tokens == self.expected and not self.failed and not self.stalls

    def late_ms(self, percent: float) -> float:
        """Percentile of lateness, milliseconds."""
        return float(np.percentile(self.lateness, percent)) * 1000 if self.lateness.size else float("nan")

    def ttft_ms(self, percent: float) -> float:
        """Percentile of the time to the first token, milliseconds."""
        return float(np.percentile(self.ttft, percent)) * 1000 if self.ttft.size else float("nan")


async def run_streams(
    target: Target, streams: int, tokens: int, gap: float, apart: float, warm: Target | None, seconds: float
) -> Result:
    """Run `streams` streams of `tokens` tokens that a server sends each `gap` seconds; starts are `apart` seconds.

    `warm`: a request that each connection makes first, so that nothing on the way is opened in the measured time.
    """
    loop = asyncio.get_running_loop()
    clients = []
    for _ in range(streams):
        _transport, client = await loop.create_connection(_Client, "127.0.0.1", target.port)
        clients.append(client)
    try:
        if warm is not None:
            for client in clients:
                client.ask(warm.request)
            await asyncio.wait([client.done for client in clients], timeout=seconds)
        gc.collect()
        gc.disable()
        begin = loop.time() + 0.05
        for number, client in enumerate(clients):
            loop.call_at(begin + number * apart, client.ask, target.request)
        await asyncio.sleep(0.05 + (streams - 1) * apart + 0.001)
        await asyncio.wait([client.done for client in clients], timeout=seconds)
        return summarise([client.stream for client in clients], tokens, gap)
    finally:
        gc.enable()
        for client in clients:
            if client.transport is not None:
                client.transport.abort()


def summarise(streams: list[Stream], tokens: int, gap: float) -> Result:
    """Figures of streams. A stream's schedule is its own: the line of slope `gap` that no token is earlier than."""
    late: list[npt.NDArray[np.float64]] = []
    ttft: list[float] = []
    stalls = failed = arrived = 0
    for stream in streams:
        times = np.array(stream.arrivals)
        arrived += times.size
        failed += 0 if stream.complete else 1
        if not times.size:
            continue
        ttft.append(times[0] - stream.sent)
        stalls += int((np.diff(times) > STALL_SECONDS).any())
        ahead = times - gap * np.arange(times.size)
        late.append(ahead - ahead.min())
    return Result(
        streams=len(streams),
        expected=len(streams) * tokens,
        tokens=arrived,
        failed=failed,
        stalls=stalls,
        lateness=np.concatenate(late) if late else np.empty(0),
        ttft=np.array(ttft),
    )


class _Asker(asyncio.Protocol):
    """One connection that asks again as soon as it has its answer, until `until`."""

    def __init__(self, target: Target, until: float) -> None:
        self._target, self._until = target, until
        self.latencies: list[float] = []
        self.refused = 0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sent = 0.0
        self._data = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._ask()

    def _ask(self) -> None:
        self._data = b""
        self._sent = time.perf_counter()
        if self._transport is not None:
            self._transport.write(self._target.request)

    def data_received(self, data: bytes) -> None:
        self._data += data
        head, found, body = self._data.partition(b"\r\n\r\n")
        size = LENGTH.search(head)
        if not found or size is None or len(body) < int(size[1]):
            return
        now = time.perf_counter()
        if head[9:12] == b"200":
            self.latencies.append(now - self._sent)
        else:
            self.refused += 1
        if now < self._until:
            self._ask()
        elif not self.done.done():
            self.done.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_result(None)


@dataclass(frozen=True, slots=True)
class Requests:
    """A closed loop of whole answers. Latencies in seconds."""

    concurrency: int
    seconds: float
    refused: int
    latencies: npt.NDArray[np.float64]

    @property
    def per_second(self) -> float:
        """Answers a second."""
        return self.latencies.size / self.seconds

    def ms(self, percent: float) -> float:
        """Percentile of the latency, milliseconds."""
        return float(np.percentile(self.latencies, percent)) * 1000 if self.latencies.size else float("nan")


async def run_requests(target: Target, concurrency: int, seconds: float) -> Requests:
    """Ask for whole answers with so many connections at once for so long."""
    loop = asyncio.get_running_loop()
    until = time.perf_counter() + seconds
    askers = []
    for _ in range(concurrency):
        _transport, asker = await loop.create_connection(
            lambda: _Asker(target, until), "127.0.0.1", target.port
        )
        askers.append(asker)
    await asyncio.wait([asker.done for asker in askers], timeout=seconds + 10)
    latencies = np.array([latency for asker in askers for latency in asker.latencies])
    for asker in askers:
        if asker._transport is not None:
            asker._transport.abort()
    return Requests(concurrency, seconds, sum(asker.refused for asker in askers), latencies)
