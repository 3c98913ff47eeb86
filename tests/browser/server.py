"""The ASGI application of this process, served by uvicorn in a thread, so that tests may swap its parts."""

from __future__ import annotations

import importlib
import socket
import threading
import time
from types import TracebackType
from typing import Any

import uvicorn


class Server:
    """Serves on a free port of loopback while it is entered."""

    def __init__(self) -> None:
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._open = 0
        self._idle = threading.Condition()

    def wait_idle(self, seconds: float = 20) -> None:
        """Until no request and no socket is being served.

        What is served while rows are deleted finds no session, and its response takes the next test's cookie away.
        """
        with self._idle:
            assert self._idle.wait_for(lambda: self._open == 0, seconds), f"{self._open} requests did not end"

    def _counted(self, application: Any) -> Any:
        async def counted(scope: Any, receive: Any, send: Any) -> None:
            self._count(1)
            try:
                await application(scope, receive, send)
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
