"""Real Celery workers on the tests' own Redis and database."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil
import pytest
from django.conf import settings
from django.db import connection

from controlplane.celery import app
from tests.support.redis import RedisServer

CHECKOUT = Path(__file__).resolve().parents[2]
READY_SECONDS = 60.0


def wait_until(condition: Callable[[], Any], seconds: float, what: str) -> Any:
    """Poll until the condition is true and return its value; fail saying what never came."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(0.05)
    return pytest.fail(f"After {seconds:.0f} s still not: {what}.")


def database_url() -> str:
    """DATABASE_URL of the database that this test uses, for processes that the test starts."""
    known = connection.settings_dict
    if connection.vendor == "sqlite":
        return f"sqlite:///{known['NAME']}"
    user = quote(known["USER"], safe="") + (
        f":{quote(known['PASSWORD'], safe='')}" if known["PASSWORD"] else ""
    )
    host = quote(known["HOST"], safe="") + (f":{known['PORT']}" if known["PORT"] else "")
    return f"postgres://{user}@{host}/{known['NAME']}"


def environment(redis: RedisServer) -> dict[str, str]:
    """Environment of a process of Inflight that shares this test's home, database and Redis."""
    return {
        **os.environ,
        "INFLIGHT_SETTINGS": "dev",
        "DJANGO_SETTINGS_MODULE": "controlplane.settings",
        "INFLIGHT_HOME": str(settings.INFLIGHT_HOME),
        "INFLIGHT_NODE_ID": settings.INFLIGHT_NODE_ID,
        "INFLIGHT_REDIS_URL": f"unix://{redis.socket}",
        "INFLIGHT_SERVING_PYTHON": str(settings.INFLIGHT_SERVING_PYTHON),
        "DATABASE_URL": database_url(),
    }


class Worker:
    """One `celery worker` process. `queue` is the last part of its queue's name: gpu0 or ctl."""

    def __init__(
        self, redis: RedisServer, queue: str, log: Path, extra: dict[str, str] | None = None
    ) -> None:
        self.log = log
        name = f"node.{settings.INFLIGHT_NODE_ID}.{queue}"
        options = ("-n", f"{queue}@test-{os.getpid()}", "-Q", name, "-P", "prefork", "-c", "1", "-l", "INFO")
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "celery", "-A", "controlplane", "worker", *options],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**environment(redis), **(extra or {})},
                cwd=CHECKOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_ready(self) -> Worker:
        """Wait until it consumes."""
        wait_until(lambda: self._ended() or "ready." in self.text(), READY_SECONDS, f"ready: {self.log}")
        return self

    def _ended(self) -> bool:
        if self._process.poll() is not None:
            pytest.fail(f"The worker ended with {self._process.returncode}:\n{self.text()[-3000:]}")
        return False

    def text(self) -> str:
        """What it printed."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def pool_pids(self) -> list[int]:
        """Processes of its pool."""
        return [child.pid for child in psutil.Process(self.pid).children()]

    def kill(self) -> None:
        """SIGKILL to the worker and its pool at once, as when the machine's memory ran out."""
        for pid in [*self.pool_pids(), self.pid]:
            os.kill(pid, signal.SIGKILL)
        self._process.wait(timeout=10)

    def terminate(self) -> None:
        """SIGTERM, as supervisord sends it; returns at once."""
        self._process.terminate()

    def wait(self, seconds: float) -> int:
        """Wait for its end; returns the exit code."""
        return self._process.wait(timeout=seconds)

    def remove(self) -> None:
        """End it for certain."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(timeout=15)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait(timeout=10)


@pytest.fixture
def celery_broker(redis_server: RedisServer) -> Iterator[RedisServer]:
    """Point this process's Celery application at the tests' Redis."""
    before = app.conf.broker_url
    app.conf.broker_url = redis_server.celery_url(0)
    app._after_fork()  # forget connections to another broker
    yield redis_server
    app.conf.broker_url = before
    app._after_fork()


@pytest.fixture
def start_worker(
    celery_broker: RedisServer, transactional_db: None, tmp_path: Path
) -> Iterator[Callable[..., Worker]]:
    """Start a real worker on this test's database: start_worker("gpu0"). It is ended after the test."""
    started: list[Worker] = []

    def start(queue: str, **extra: str) -> Worker:
        worker = Worker(celery_broker, queue, tmp_path / f"worker-{queue}-{len(started)}.log", extra)
        started.append(worker)
        return worker.wait_ready()

    yield start
    for worker in started:
        worker.remove()
