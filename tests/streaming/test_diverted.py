"""Events that go past the reading task, and those that must not."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from apps.streaming import triton_errors
from apps.streaming.http_client import Connection, Pool, read_origin
from apps.streaming.token_source import GenerationRequest, SamplingParams, StreamEnd, TokenDelta, TokenEvent
from apps.streaming.triton_http import HttpStream
from apps.streaming.triton_messages import MessageReader, ModelInterface, fitted

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
INTERFACE = ModelInterface({"text_input": "BYTES"}, frozenset({"text_output"}))


class Transport:
    """Takes what is written; a closed one says so."""

    closing = False

    def write(self, data: bytes) -> None: ...

    def is_closing(self) -> bool:
        return self.closing

    def abort(self) -> None:
        self.closing = True


class Sink:
    """Keeps what it is given; `open` says whether it can take any."""

    def __init__(self) -> None:
        self.open = True
        self.texts: list[str] = []

    def ready(self) -> bool:
        return self.open

    def take(self, events: list[TokenEvent]) -> None:
        self.texts += [event.text for event in events if isinstance(event, TokenDelta)]


def chunk(payload: str) -> bytes:
    body = f"data: {payload}\n\n".encode()
    return b"%x\r\n%b\r\n" % (len(body), body)


def word(text: str) -> bytes:
    return chunk(f'{{"text_output": "{text}"}}')


class World:
    """A stream over a connection whose bytes the test feeds, read by a task of its own."""

    def __init__(self, stop: tuple[str, ...] = ()) -> None:
        self.connection = Connection()
        self.connection.transport = cast(asyncio.Transport, Transport())
        self.connection.send(b"request")
        self.connection.data_received(HEAD)
        request = GenerationRequest(
            request_id="r", prompt="x", params=SamplingParams(max_tokens=9, stop=stop)
        )
        asked, rules = fitted(request, INTERFACE)
        reader = MessageReader(asked, INTERFACE, rules)
        self.stream = HttpStream(Pool(), read_origin("http://127.0.0.1:1"), self.connection, reader)
        self.sink = Sink()
        self.stream.divert(self.sink)
        self.read: list[TokenEvent] = []
        self.task = asyncio.ensure_future(self._all())

    async def _all(self) -> None:
        while not (self.read and isinstance(self.read[-1], StreamEnd)):
            self.read += await self.stream.read()

    async def waiting(self) -> None:
        """Until the task waits for more."""
        async with asyncio.timeout(5):
            while not self.connection._waits():  # noqa: ASYNC110 - what a task does next has no event
                await asyncio.sleep(0)

    async def end(self) -> StreamEnd:
        async with asyncio.timeout(5):
            await self.task
        self.stream.close()
        end = self.read[-1]
        assert isinstance(end, StreamEnd)
        return end

    @property
    def texts(self) -> list[str]:
        return [event.text for event in self.read if isinstance(event, TokenDelta)]


async def test_goes_past_a_task_that_waits() -> None:
    world = World()
    await world.waiting()
    for text in ("a", "b", "c"):
        world.connection.data_received(word(text))
    assert world.sink.texts == ["a", "b", "c"]
    world.connection.data_received(b"0\r\n\r\n")
    assert (await world.end()).reason == "stop"
    assert world.texts == []
    assert world.connection.reusable


async def test_never_overtakes_what_a_woken_task_has_not_sent_yet() -> None:
    world = World()
    await world.waiting()
    world.sink.open = False
    world.connection.data_received(word("a"))
    world.sink.open = True
    # The task is woken and has not run: these belong behind "a".
    world.connection.data_received(word("b"))
    assert world.sink.texts == []
    await world.waiting()
    world.connection.data_received(word("c"))
    assert (world.texts, world.sink.texts) == (["a", "b"], ["c"])
    world.task.cancel()


@pytest.mark.parametrize(
    ("last", "stop", "reason", "texts"),
    [
        (chunk('{"error": "out of memory"}'), (), "error", ["a"]),
        (chunk("no JSON"), (), "error", ["a"]),
        (word("b STOP c"), ("STOP",), "stop", ["a", "b "]),
        (word("b STOP c") + word("d"), ("STOP",), "stop", ["a", "b "]),
        (word("b STOP c") + word("d") + b"0\r\n\r\n", ("STOP",), "stop", ["a", "b "]),
        (b"zz\r\n", (), "error", ["a"]),
    ],
    ids=["error event", "broken event", "stop string", "and more", "and all", "no HTTP"],
)
async def test_the_end_is_left_to_the_task(last: bytes, stop: Any, reason: str, texts: list[str]) -> None:
    world = World(stop)
    await world.waiting()
    world.connection.data_received(word("a"))
    world.connection.data_received(last)
    end = await world.end()
    assert end.reason == reason
    assert "".join([*world.sink.texts, *world.texts]) == "".join(texts)


async def test_an_end_from_outside_ends_it() -> None:
    world = World()
    await world.waiting()
    world.connection.data_received(word("a"))
    world.stream.fail(triton_errors.idle_timeout(1))
    end = await world.end()
    assert end.error is not None
    assert end.error.code == "idle_timeout"
