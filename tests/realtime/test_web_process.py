"""The live socket through uvicorn, the session middleware and the origin check."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from websockets.exceptions import ConnectionClosed, InvalidStatus

from apps.core import transitions
from apps.registry.models import Checkpoint
from tests.support.web import receive, say, session_of, web

pytestmark = pytest.mark.integration


def closed_with(client: Any) -> int:
    """Code with which the server closes."""
    with pytest.raises(ConnectionClosed) as ended:
        while True:
            client.recv(timeout=10)
    assert ended.value.rcvd is not None
    return int(ended.value.rcvd.code)


def test_sessions_origins_and_changes_of_rows(person: Callable[..., User], redis_server: Any) -> None:
    vera = person("vera", "viewer")
    session = session_of(vera)
    with web(redis_server) as running:
        with running.connect("/ws/live/") as nobody:
            assert closed_with(nobody) == 4401
        with running.connect("/ws/live/", session) as client:
            assert receive(client)["user"] == "vera"
            _a_change_arrives(client)
            # Signed out elsewhere: the session is gone, and the socket with it.
            session.delete()
            vera.save()
            assert closed_with(client) == 4401


def _a_change_arrives(client: Any) -> None:
    checkpoint = Checkpoint.objects.create(name="demo", source={"demo": "x"}, state="registered")
    say(client, "subscribe", topic="checkpoints")
    first = receive(client, "snapshot")
    transitions.transition(checkpoint, "ready", actor="web")
    change = receive(client)
    assert change["version"] > first["version"]
    assert change["topic"] == "checkpoints"


def test_a_foreign_origin_is_refused(person: Callable[..., User], redis_server: Any) -> None:
    session = session_of(person("vera", "viewer"))
    with web(redis_server, "tests.realtime.strict_asgi:application") as running:
        with pytest.raises(InvalidStatus):
            running.connect("/ws/live/", session, origin="http://evil.example")
        with running.connect("/ws/live/", session) as client:
            receive(client, "hello")


def test_a_restart_is_told_with_1012(person: Callable[..., User], redis_server: Any) -> None:
    session = session_of(person("vera", "viewer"))
    with web(redis_server) as running, running.connect("/ws/live/", session) as client:
        receive(client, "hello")
        running.process.terminate()
        assert closed_with(client) == 1012
        assert running.process.wait(timeout=15) is not None
