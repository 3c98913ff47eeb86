"""Faults of the control plane: its processes, Redis, its database, its tasks. Servers must not notice."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable

import redis

from deploy.local.postgres import restart
from tests.chaos.installation import Installation, gone
from tests.chaos.outcome import Outcome
from tests.chaos.servers import same_server, serving

STOPPED_SECONDS = 5.0


def kill(*marks: str) -> Callable[[Installation], Outcome]:
    """kill -9 of processes by words of their command lines; recovered when others run and the server is the same."""

    def strike(installation: Installation) -> Outcome:
        before = serving(installation)
        old = installation.pids(*marks)
        assert old, f"no process of {marks}"
        began = time.monotonic()
        for pid in old:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        installation.until(
            lambda: [pid for pid in installation.pids(*marks) if pid not in old], 60, f"{marks} runs again"
        )
        detected, adopted = time.monotonic() - began, None
        if "ctl@" in marks:
            installation.until_echo()
            adopted = time.monotonic() - began
        installation.until(lambda: all(gone(pid) for pid in old), 20, "the old one is gone")
        installation.ready()
        same_server(installation, before)
        return Outcome(detected, time.monotonic() - began, adopted)

    return strike


def stop(*marks: str) -> Callable[[Installation], Outcome]:
    """SIGSTOP of the same for 5 s. Nobody but a person would see it: what is shown is that nothing is lost by it."""

    def strike(installation: Installation) -> Outcome:
        before = serving(installation)
        old = installation.pids(*marks)
        assert old, f"no process of {marks}"
        began = time.monotonic()
        try:
            for pid in old:
                os.kill(pid, signal.SIGSTOP)
            time.sleep(STOPPED_SECONDS)
        finally:
            for pid in old:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
        if "ctl@" in marks:
            installation.until_echo()
        installation.ready()
        same_server(installation, before)
        return Outcome(None, time.monotonic() - began)

    return strike


def flush_redis(installation: Installation) -> Outcome:
    """FLUSHALL: queues, beats, samples and chat buffers are gone at once."""
    before = serving(installation)
    began = time.monotonic()
    client = redis.Redis.from_url(installation.environment["INFLIGHT_REDIS_URL"])
    client.flushall()
    client.close()
    installation.until_echo()
    adopted = time.monotonic() - began
    installation.ready()
    same_server(installation, before)
    return Outcome(None, time.monotonic() - began, adopted)


def lock_database(installation: Installation) -> Outcome:
    """The database answers nobody for 3 s: an exclusive lock, as a restart of PostgreSQL is one."""
    before = serving(installation)
    began = time.monotonic()
    held = sqlite3.connect(installation.stack.home / "db.sqlite3", isolation_level=None, timeout=10)
    held.execute("BEGIN EXCLUSIVE")
    time.sleep(3.0)
    held.execute("ROLLBACK")
    held.close()
    installation.ready()
    same_server(installation, before)
    return Outcome(None, time.monotonic() - began)


def restart_postgres(installation: Installation) -> Outcome:
    """PostgreSQL is restarted as by an upgrade: every connection is cut, for a moment nobody is let in."""
    before = serving(installation)
    began = time.monotonic()
    restart(installation.stack.environ["DATABASE_URL"], installation.stack.home / "logs/postgres.log")
    installation.until_echo()
    adopted = time.monotonic() - began
    installation.ready()
    same_server(installation, before)
    return Outcome(None, time.monotonic() - began, adopted)


WAKE_UPS = """
import django; django.setup()
from django.conf import settings
from kombu import Queue
from controlplane.celery import app
queue = Queue(f'node.{settings.INFLIGHT_NODE_ID}.ctl')
for n in range(50):
    app.send_task('workers.reconcile', queue=queue)
    app.send_task('workers.sweep', queue=queue)
"""


def repeat_tasks(installation: Installation) -> Outcome:
    """The same wake-ups a hundred times: a task that comes twice does nothing twice."""
    before = installation.show()
    began = time.monotonic()
    environ = {
        **installation.stack.environ,
        **installation.environment,
        "DJANGO_SETTINGS_MODULE": "controlplane.settings",
    }
    done = subprocess.run(
        [sys.executable, "-c", WAKE_UPS],
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-1000:]
    installation.until(lambda: installation.waiting_tasks() == 0, 60, "every task was taken")
    installation.ready()
    after = installation.show()
    assert [each["uid"] for each in after["instances"]] == [each["uid"] for each in before["instances"]]
    return Outcome(None, time.monotonic() - began)
