"""People, a deployment that serves, conversations, a scripted engine, and sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from channels.routing import URLRouter
from django.contrib.auth.models import Group, User
from django.urls import path

from apps.chat import services, sources, turn_runner
from apps.chat.consumers import ChatConsumer
from apps.chat.models import Conversation
from apps.realtime.redis_clients import close_async_client
from apps.realtime.tasks import end
from apps.serving.models import Deployment
from tests.chat.fakes import Script
from tests.chat.rows import serving_deployment
from tests.realtime.conftest import WAIT, Socket

APPLICATION = URLRouter([path("ws/chat/<int:conversation_id>/", ChatConsumer.as_asgi())])


@pytest.fixture
def person(transactional_db: None) -> Callable[..., User]:
    """Make a person with the given roles."""

    def make(name: str, *roles: str) -> User:
        user = User.objects.create_user(name, password="secret-for-tests")
        user.groups.set([Group.objects.get_or_create(name=role)[0] for role in roles])
        return user

    return make


@pytest.fixture
def olga(person: Callable[..., User]) -> User:
    """An operator."""
    return person("olga", "operator")


@pytest.fixture
def deployment(transactional_db: None) -> Deployment:
    """A deployment with one serving instance."""
    return serving_deployment("demo")


@pytest.fixture
def conversation(olga: User, deployment: Deployment) -> Conversation:
    """Olga's conversation with the deployment."""
    return services.create_conversation(olga, deployment)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Script:
    """The engine that answers every turn; a test changes what it says."""
    script = Script()
    monkeypatch.setattr(sources, "prepare", lambda turn: script.answering())
    return script


@pytest.fixture
async def runner(
    transactional_db: None, redis_server: Any, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[None]:
    """The turn runner on a real Redis, with its waits shortened; nothing of it is left running."""
    monkeypatch.setattr(turn_runner, "KEEP_SECONDS", 0.02)
    yield
    for turn in list(turn_runner._turns.values()):
        turn.stop(turn_runner.running.stopped())
    await end(list(turn_runner._tasks))
    await close_async_client()


class ChatSocket(Socket):
    """A socket of one conversation."""

    def __init__(self, user: User, conversation_id: int) -> None:
        super().__init__(user, APPLICATION, f"/ws/chat/{conversation_id}/")

    async def ask(self, prompt: str = "What is the capital of France?", **fields: Any) -> dict[str, Any]:
        """Ask; the started turn."""
        await self.say("ask", prompt=prompt, **fields)
        started: dict[str, Any] = (await self.until("turn_started"))["turn"]
        return started

    async def answer(self, text: str = "") -> tuple[str, dict[str, Any]]:
        """(text of all deltas after `text`, the finished turn)."""
        while True:
            message = await self.next()
            if message["type"] == "delta":
                assert message["seq"] == len(text) + len(message["text"])
                text += message["text"]
            elif message["type"] == "turn_finished":
                return text, message["turn"]


@pytest.fixture
async def chat(runner: None, engine: Script) -> AsyncIterator[Callable[..., Any]]:
    """Open a chat socket; all are closed at the end."""
    opened: list[ChatSocket] = []

    async def open_socket(user: User, conversation: Conversation) -> ChatSocket:
        socket = ChatSocket(user, conversation.pk)
        opened.append(socket)
        await socket.open()
        return socket

    yield open_socket
    for socket in opened:
        await socket.disconnect(timeout=WAIT)
