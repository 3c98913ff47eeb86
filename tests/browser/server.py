"""The ASGI application of this process, served by uvicorn in a thread, so that tests may swap its parts."""

from __future__ import annotations

import importlib
import socket
import threading
import time
from http.cookies import SimpleCookie
from types import TracebackType
from typing import Any

import uvicorn


def session_of(scope: Any) -> str:
    """The session that a request names; empty without one."""
    for name, value in scope.get("headers", ()):
        if name == b"cookie":
            found = SimpleCookie(value.decode("latin-1")).get("sessionid")
            return found.value if found else ""
    return ""


class Server:
    """Serves on a free port of loopback while it is entered."""

    def __init__(self) -> None:
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._open = 0
        self._idle = threading.Condition()
        self._over: set[str] = set()

    def retire(self, sessions: set[str]) -> None:
        """These sessions are over: what is still answered to them changes no cookie any more.

        A request that came before a test's end and is read after it finds no session, and its answer would take the
        next test's cookie away.
        """
        self._over |= sessions

    def wait_idle(self, seconds: float = 20) -> None:
        """Until no request and no socket is being served, as rows are deleted afterwards."""
        with self._idle:
            assert self._idle.wait_for(lambda: self._open == 0, seconds), f"{self._open} requests did not end"

    def _counted(self, application: Any) -> Any:
        async def counted(scope: Any, receive: Any, send: Any) -> None:
            async def without_cookies(message: Any) -> None:
                headers = message.get("headers")
                if headers and session_of(scope) in self._over:
                    message = {**message, "headers": [pair for pair in headers if pair[0] != b"set-cookie"]}
                await send(message)

            self._count(1)
            try:
                await application(scope, receive, without_cookies)
            finally:
                self._count(-1)

        return counted

    def _count(self, change: int) -> None:
        with self._idle:
            self._open += change
            self._idle.notify_all()

    def __enter__(self) -> Server:
        import controlplane.asgi

        # Built anew, because the middleware reads the settings when it is made.
        application = importlib.reload(controlplane.asgi).application
        config = uvicorn.Config(
            self._counted(application),
            lifespan="off",
            log_level="error",
            timeout_graceful_shutdown=1,
            ws_ping_interval=None,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],), daemon=True)
        self._thread.start()
        deadline = time.monotonic() + 20
        while not self._server.started and time.monotonic() < deadline:
            self._thread.join(0.02)
        assert self._server.started, "uvicorn did not start within 20 s"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.should_exit = True
        self._thread.join(15)
        self._socket.close()
