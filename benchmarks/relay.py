"""What the playground's relay adds to a token: 64 chats in one web process beside the same streams straight.

    .venv/bin/python -m benchmarks.relay                      # three turns, about two minutes
    .venv/bin/python -m benchmarks.relay --chats 64 --repeats 3 --json FILE
    .venv/bin/python -m benchmarks.relay --profile FILE       # a profile of the web process, for pstats

Token pump, turns and "added" are those of benchmarks.gateway: added pX is pX of the lateness through the chat sockets
minus the same of the straight streams of the same turn. Exit 1 where p50 is over 0.5 ms or p99 over 10 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import cProfile
import gc
import json
import os
import secrets
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import uvloop

from benchmarks import load
from benchmarks.gateway import PUMP_TOKENS, Report, added, in_turns, straight_pump
from benchmarks.gateway_world import CHECKOUT, GAP, PUMP, World, free_port, start, until_answers, world
from benchmarks.stream_client import TOKEN, Result, Stream, run_streams, summarise

MOST_P50, MOST_P99 = 0.5, 10.0
HELLO, DELTA, FINISHED, REFUSED = (
    b'{"type":"%b"' % name for name in (b"hello", b"delta", b"turn_finished", b"error")
)
TEXT, PING, PONG = 1, 9, 10
QUESTION = "Tell me a story."
MAKE_ROWS, SERVE_PROFILED = "--make-rows", "--serve-profiled"


class Chat(asyncio.Protocol):
    """One chat socket: its frames are read, and of a delta no more than its tokens."""

    def __init__(self, port: int, conversation: int, cookie: str) -> None:
        self.stream = Stream()
        self.transport: asyncio.Transport | None = None
        loop = asyncio.get_running_loop()
        self.open: asyncio.Future[None] = loop.create_future()
        self.done: asyncio.Future[None] = loop.create_future()
        self._port, self._conversation, self._cookie = port, conversation, cookie
        self._tail = b""
        self._upgraded = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's is none by inheritance.
        self.transport = cast(asyncio.Transport, transport)
        key = base64.b64encode(secrets.token_bytes(16)).decode()
        lines = [
            f"GET /ws/chat/{self._conversation}/ HTTP/1.1",
            f"Host: 127.0.0.1:{self._port}",
            f"Origin: http://127.0.0.1:{self._port}",
            f"Cookie: sessionid={self._cookie}",
            "Upgrade: websocket",
            "Connection: Upgrade",
            f"Sec-WebSocket-Key: {key}",
            "Sec-WebSocket-Version: 13",
        ]
        self.transport.write("\r\n".join([*lines, "", ""]).encode())

    def ask(self, tokens: int) -> None:
        """Send the question and begin a new stream."""
        self.stream = Stream(sent=time.perf_counter(), status=200)
        self.done = asyncio.get_running_loop().create_future()
        asked = {"type": "ask", "prompt": QUESTION, "params": {"max_tokens": tokens}}
        if self.transport is not None:
            self.transport.write(client_frame(TEXT, json.dumps(asked).encode()))

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter()
        self._tail += data
        if not self._upgraded:
            _head, found, self._tail = self._tail.partition(b"\r\n\r\n")
            if not found:
                self._tail = _head
                return
            self._upgraded = True
        at = 0
        while (frame := read_frame(self._tail, at)) is not None:
            opcode, payload, at = frame
            if opcode == TEXT:
                self._message(payload, now)
            elif opcode == PING and self.transport is not None:
                # uvicorn closes a socket that does not answer for twenty seconds.
                self.transport.write(client_frame(PONG, payload))
        self._tail = self._tail[at:]

    def _message(self, text: bytes, now: float) -> None:
        if text.startswith(DELTA):
            self.stream.arrivals += [now] * len(TOKEN.findall(text))
        elif text.startswith(FINISHED):
            self.stream.complete = b'"state":"done"' in text
            if not self.stream.complete:
                ended = json.loads(text)["turn"]
                self.stream.failed = f"{ended['state']}, {ended['reason']}: {ended['sentence']}"
            self._finish()
        elif text.startswith(REFUSED):
            self.stream.failed = text[:400].decode(errors="replace")
            self._finish()
        elif text.startswith(HELLO) and not self.open.done():
            self.open.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self.stream.failed = str(exc or "closed")
        self._finish()
        if not self.open.done():
            self.open.set_exception(RuntimeError(f"the socket was not opened: {self._tail[:300]!r}"))

    def _finish(self) -> None:
        if not self.done.done():
            self.done.set_result(None)


def client_frame(opcode: int, payload: bytes) -> bytes:
    """A masked frame, as clients must send them."""
    mask = secrets.token_bytes(4)
    size = len(payload)
    first = 0x80 | opcode
    head = bytes([first, 0x80 | size]) if size < 126 else struct.pack(">BBH", first, 0x80 | 126, size)
    return head + mask + bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload))


def read_frame(data: bytes, at: int) -> tuple[int, bytes, int] | None:
    """(opcode, payload, where the next one begins) of a server's frame; None while it is not whole."""
    if len(data) < at + 2:
        return None
    size, begin = data[at + 1] & 0x7F, at + 2
    if size >= 126:
        wide = 2 if size == 126 else 8
        if len(data) < begin + wide:
            return None
        size, begin = int.from_bytes(data[begin : begin + wide], "big"), begin + wide
    if len(data) < begin + size:
        return None
    return data[at] & 0x0F, data[begin : begin + size], begin + size


async def run_chats(
    port: int, cookie: str, conversations: list[int], tokens: int, apart: float, seconds: float
) -> Result:
    """One answer of `tokens` tokens in each conversation; starts are `apart` seconds. All sockets are open before."""
    loop = asyncio.get_running_loop()
    chats: list[Chat] = []
    for conversation in conversations:
        _transport, chat = await loop.create_connection(
            lambda conversation=conversation: Chat(port, conversation, cookie),  # type: ignore[misc]
            "127.0.0.1",
            port,
        )
        chats.append(chat)
    try:
        async with asyncio.timeout(seconds):
            await asyncio.gather(*(chat.open for chat in chats))
        for chat in chats:
            chat.ask(2)
        await asyncio.wait([chat.done for chat in chats], timeout=seconds)
        gc.collect()
        gc.disable()
        begin = loop.time() + 0.05
        for number, chat in enumerate(chats):
            loop.call_at(begin + number * apart, chat.ask, tokens)
        await asyncio.sleep(0.05 + (len(chats) - 1) * apart + 0.001)
        _done, running = await asyncio.wait([chat.done for chat in chats], timeout=seconds)
        if running:
            print(f"  {len(running)} chats had not ended after {seconds:g} s", file=sys.stderr)
        for failed in {chat.stream.failed for chat in chats if chat.stream.failed}:
            print(f"  a chat failed: {failed}", file=sys.stderr)
        return summarise([chat.stream for chat in chats], tokens, GAP)
    finally:
        gc.enable()
        for chat in chats:
            if chat.transport is not None:
                chat.transport.abort()


# ---------------------------------------------------------------- rows


def make_rows(count: int) -> None:
    """Print the ids of `count` new conversations with the pump. In a process of its own, on the world's database."""
    import django

    django.setup()
    from django.contrib.auth.models import User

    from apps.chat import services
    from apps.serving.selectors import deployment

    owner, pump = User.objects.get(username="owner"), deployment(PUMP)
    print(json.dumps([services.create_conversation(owner, pump).pk for _ in range(count)]))


def conversations_of(it: World, count: int) -> list[int]:
    """Ids of new conversations."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.relay", MAKE_ROWS, str(count)],
        cwd=CHECKOUT,
        env={**os.environ, **it.environ},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"The conversations were not made.\n{done.stderr[-3000:]}")
    found: list[int] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def profiled_web(it: World, path: str) -> int:
    """A web process of its own under cProfile; its port. The profile is written when the world ends."""
    port = free_port()
    log = it.home / "profiled.log"
    program = [sys.executable, "-m", "benchmarks.relay", SERVE_PROFILED, str(port), "--profile", path]
    start(it.stack, log, program, it.environ)
    until_answers(f"http://127.0.0.1:{port}/healthz", log)
    return port


def serve_profiled(port: int, path: str) -> None:
    """Serve the pages until SIGTERM, then write the profile. uvicorn itself would end by the signal."""
    import uvicorn

    class Quiet(uvicorn.Server):
        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

    options: dict[str, Any] = {"host": "127.0.0.1", "port": port, "lifespan": "off"}
    server = Quiet(uvicorn.Config("controlplane.asgi:application", timeout_graceful_shutdown=2, **options))
    signal.signal(signal.SIGTERM, lambda *_: setattr(server, "should_exit", True))
    profile = cProfile.Profile()
    profile.runcall(server.run)
    profile.dump_stats(path)


async def measure(it: World, report: Report, given: argparse.Namespace) -> bool:
    """Whether the bounds hold."""
    conversations = conversations_of(it, given.chats)
    port = profiled_web(it, given.profile) if given.profile else it.web_port
    report.title(f"{given.chats} chats in one web process x 50 tokens/s, starts 20 ms apart")

    async def straight() -> Result:
        target, warm = straight_pump(it, PUMP_TOKENS), straight_pump(it, 2)
        return await run_streams(target, given.chats, PUMP_TOKENS, GAP, GAP, warm, 30)

    async def relayed() -> Result:
        return await run_chats(port, it.cookie, conversations, PUMP_TOKENS, GAP, 60)

    here, there = await in_turns(given.repeats, straight, relayed)
    figures = added(report, "chat sockets", here, there)
    whole = all(one.sustained for one in there)
    held = figures["added_p50_ms"].median <= MOST_P50 and figures["added_p99_ms"].median <= MOST_P99
    report.row("bounds", p50=MOST_P50, p99=MOST_P99, every_token_arrived=whole, holds=held and whole)
    return held and whole


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--chats", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", default="", help="write every figure to this file")
    parser.add_argument("--profile", default="", help="write a profile of the web process to this file")
    parser.add_argument(MAKE_ROWS, type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument(SERVE_PROFILED, type=int, default=0, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.make_rows:
        make_rows(given.make_rows)
        return 0
    if given.serve_profiled:
        serve_profiled(given.serve_profiled, given.profile)
        return 0
    # What it started ends with it, also where it is asked to end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    report = Report()
    with world() as it:
        before = load.read()
        held = uvloop.run(measure(it, report, given))
        print(f"\nOther programs took {load.others(before, load.read()):.0%} of the machine meanwhile.")
    if given.json:
        rows: list[dict[str, Any]] = report.rows
        Path(given.json).write_text(json.dumps(rows, default=vars, indent=1), encoding="utf-8")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
