"""The web process in tests: uvicorn on the real ASGI application, as it is started in production."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.auth.models import User
from django.contrib.sessions.backends.db import SessionStore
from websockets.sync.client import ClientConnection, connect

from tests.support.ports import free_port
from tests.support.processes import ROOT, environment
from tests.support.redis import RedisServer
from tests.support.waiting import eventually


def session_of(user: User) -> SessionStore:
    """A signed-in session."""
    session = SessionStore()
    session[SESSION_KEY] = str(user.pk)
    session[BACKEND_SESSION_KEY] = settings.AUTHENTICATION_BACKENDS[0]
    session[HASH_SESSION_KEY] = user.get_session_auth_hash()
    session.create()
    return session


class Web:
    """A running web process."""

    def __init__(self, server: RedisServer, application: str = "controlplane.asgi:application") -> None:
        self.port = free_port()
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "uvicorn", application, "--host", "127.0.0.1"),
                *("--port", str(self.port), "--lifespan", "off", "--ws-max-size", "1048576"),
                *("--timeout-graceful-shutdown", "2", "--log-level", "warning"),
            ],
            cwd=ROOT,
            env=environment(server),
            start_new_session=True,
        )
        eventually(self._answers, "the web process answers", seconds=60)

    def connect(
        self, path: str, session: SessionStore | None = None, origin: str = "", **options: Any
    ) -> ClientConnection:
        """A websocket with the session's cookie."""
        headers = {"Cookie": f"sessionid={session.session_key}"} if session else {}
        return connect(
            f"ws://127.0.0.1:{self.port}{path}",
            additional_headers=headers,
            origin=origin or f"http://127.0.0.1:{self.port}",  # type: ignore[arg-type]
            open_timeout=20,
            close_timeout=2,
            max_size=None,
            **options,
        )

    def connect_deaf(self, path: str, session: SessionStore) -> ClientConnection:
        """A websocket that takes hardly anything until it is read from."""
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", self.port))
        return self.connect(path, session, sock=connection, max_queue=1)

    def stop(self) -> None:
        """SIGTERM, then wait."""
        self.process.terminate()
        self.process.wait(timeout=20)

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait(timeout=20)

    def _answers(self) -> bool:
        assert self.process.poll() is None, "the web process ended"
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


@contextmanager
def web(server: RedisServer, application: str = "controlplane.asgi:application") -> Iterator[Web]:
    """A web process for the length of a block."""
    running = Web(server, application)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.kill()


def receive(client: ClientConnection, kind: str = "", seconds: float = 10.0) -> dict[str, Any]:
    """The next message of a kind (default: of any); others are passed over."""
    while True:
        message: dict[str, Any] = json.loads(client.recv(timeout=seconds))
        if not kind or message["type"] == kind:
            return message


def say(client: ClientConnection, kind: str, **fields: Any) -> None:
    """Send a command."""
    client.send(json.dumps({"type": kind, **fields}))
