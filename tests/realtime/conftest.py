"""People, topics of the tests' own, and sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from channels.testing import WebsocketCommunicator
from django.contrib.auth.models import Group, User

from apps.realtime import topics
from apps.realtime.consumers import LiveConsumer
from apps.realtime.redis_clients import close_async_client

WAIT = 5.0


@pytest.fixture
def person(transactional_db: None) -> Callable[..., User]:
    """Make a person with the given roles."""

    def make(name: str, *roles: str) -> User:
        user = User.objects.create_user(name, password="secret-for-tests")
        user.groups.set([Group.objects.get_or_create(name=role)[0] for role in roles])
        return user

    return make


class Things:
    """Topics of the tests' own: state is a dictionary in memory."""

    def __init__(self) -> None:
        self.state: dict[int, dict[str, Any]] = {}
        self.reads = 0
        self.paths: dict[int, str] = {}
        self.samples: list[dict[str, Any]] = []
        self.hold: Callable[[], None] | None = None

    def snapshot(self, key: int) -> dict[str, Any]:
        from apps.core.exceptions import NotFound

        self.reads += 1
        if self.hold:
            self.hold()
        if key and key not in self.state:
            raise NotFound("unknown_thing", "There is no such thing.")
        return self.state.get(key, {"all": sorted(self.state)})

    def path(self, key: int) -> str:
        return self.paths.get(key, "")

    def history(self, key: int, since: float | None) -> list[dict[str, Any]]:
        return [sample for sample in self.samples if since is None or sample["at"] > since]


@pytest.fixture
def things(monkeypatch: pytest.MonkeyPatch) -> Things:
    """Register thing, things (viewers), vault (administrators), log:thing and gauge."""
    monkeypatch.setattr(topics, "_kinds", {})
    made = Things()
    topics.register("thing", permission="view", snapshot=made.snapshot)
    topics.register("things", permission="view", snapshot=made.snapshot, keyed=False)
    topics.register("vault", permission="administer", snapshot=made.snapshot, keyed=False)
    topics.register_log("log:thing", permission="view", path=made.path)
    topics.register_samples("gauge", permission="view", history=made.history, unkeyed=True)
    return made


class Socket(WebsocketCommunicator):
    """A live socket without the middleware; `user` is who it belongs to."""

    def __init__(self, user: User, application: Any = None, path: str = "/ws/live/") -> None:
        super().__init__(application or LiveConsumer.as_asgi(), path)
        self.scope["user"] = user

    async def open(self) -> dict[str, Any]:
        """Connect and return hello."""
        accepted, _protocol = await self.connect(timeout=WAIT)
        assert accepted
        return await self.next("hello")

    async def next(self, kind: str | None = None) -> dict[str, Any]:
        """The next message; it must be of `kind` where that is given."""
        message: dict[str, Any] = await self.receive_json_from(timeout=WAIT)
        assert kind is None or message["type"] == kind, message
        return message

    async def until(self, kind: str, **fields: Any) -> dict[str, Any]:
        """The next message of `kind` with these fields; others are passed over."""
        async with asyncio.timeout(WAIT):
            while True:
                message = await self.next()
                if message["type"] == kind and all(message.get(k) == v for k, v in fields.items()):
                    return message

    async def say(self, kind: str, **fields: Any) -> None:
        """Send a command."""
        await self.send_json_to({"type": kind, **fields})

    async def closed(self) -> int:
        """Wait for the server to close; the code."""
        async with asyncio.timeout(WAIT):
            while True:
                event = await self.receive_output(timeout=WAIT)
                if event["type"] == "websocket.close":
                    return int(event["code"])


@pytest.fixture
async def live(redis_server: Any, things: Things) -> AsyncIterator[Callable[..., Any]]:
    """Open a live socket of a person; all are closed at the end."""
    opened: list[Socket] = []

    async def open_socket(user: User) -> Socket:
        socket = Socket(user)
        opened.append(socket)
        await socket.open()
        return socket

    yield open_socket
    for socket in opened:
        await socket.disconnect(timeout=WAIT)
    await close_async_client()
