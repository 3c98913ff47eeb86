"""The faults: what is done, how it is seen that Inflight noticed, and how that it recovered."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from deploy.local.postgres import restart
from tests.chaos.installation import Installation, gone

REPLACED_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """Seconds until the fault was noticed and until all was as before; None: there was nothing to notice.

    `adopted`: until the control worker looked after the servers again, where it was hit.
    """

    detected: float | None
    recovered: float
    adopted: float | None = None


@dataclass(frozen=True, slots=True)
class Fault:
    """`strikes` does it and waits for the recovery.

    `loses`: streams may be lost, those of the server that was ended. `short`: part of `make test`. `postgres`: needs
    an installation on PostgreSQL.
    """

    name: str
    strikes: Callable[[Installation], Outcome]
    loses: bool = False
    short: bool = False
    postgres: bool = False


def _serving(installation: Installation) -> dict[str, Any]:
    rows: list[dict[str, Any]]
    rows, _seconds = installation.until(lambda: installation.instances("serving"), 60, "a server serves")
    return rows[0]


def _replaced(installation: Installation, old: dict[str, Any], began: float) -> Outcome:
    """Until the row of a server says that it is none any more, and until another serves."""

    def noticed() -> bool:
        return all(
            each["uid"] != old["uid"] or each["state"] != "serving"
            for each in installation.show()["instances"]
        )

    installation.until(noticed, REPLACED_SECONDS, "the dead server is noticed")
    seen = time.monotonic() - began
    installation.until(
        lambda: any(each["uid"] != old["uid"] for each in installation.instances("serving")),
        REPLACED_SECONDS,
        "another server serves",
    )
    installation.ready()
    return Outcome(seen, time.monotonic() - began)


def kill_server(installation: Installation) -> Outcome:
    """kill -9 of tritonserver."""
    old = _serving(installation)
    began = time.monotonic()
    os.kill(int(old["pid"]), signal.SIGKILL)
    return _replaced(installation, old, began)


def kill_stub(installation: Installation) -> Outcome:
    """kill -9 of the model's own process under a server that goes on."""
    old = _serving(installation)
    [stub] = installation.children(int(old["pid"]), "triton_python_b")
    began = time.monotonic()
    os.kill(stub, signal.SIGKILL)
    return _replaced(installation, old, began)


def stop_server(installation: Installation) -> Outcome:
    """SIGSTOP of tritonserver: it answers nothing and does not die."""
    old = _serving(installation)
    began = time.monotonic()
    os.kill(int(old["pid"]), signal.SIGSTOP)
    return _replaced(installation, old, began)


def stop_stub(installation: Installation) -> Outcome:
    """SIGSTOP of the model's process: the server says that all is well, and no token comes."""
    old = _serving(installation)
    [stub] = installation.children(int(old["pid"]), "triton_python_b")
    began = time.monotonic()
    os.kill(stub, signal.SIGSTOP)
    return _replaced(installation, old, began)


def _process(*marks: str, number: int = signal.SIGKILL) -> Callable[[Installation], Outcome]:
    """Kill processes of the control plane; recovered when others run in their place and the row is the same."""

    def strike(installation: Installation) -> Outcome:
        before = _serving(installation)
        old = installation.pids(*marks)
        assert old, f"no process of {marks}"
        began = time.monotonic()
        for pid in old:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        if number == signal.SIGSTOP:
            # Nothing else notices it: a person would; what is shown is that nothing is lost meanwhile.
            time.sleep(5.0)
            for pid in old:
                os.kill(pid, signal.SIGCONT)
            detected = None
        else:
            detected = installation.until(
                lambda: [pid for pid in installation.pids(*marks) if pid not in old],
                60,
                f"{marks} runs again",
            )[1]
        adopted = None
        if number == signal.SIGKILL and "ctl@" in marks:
            installation.until_echo()
            adopted = time.monotonic() - began
        installation.until(
            lambda: all(gone(pid) for pid in old) or number == signal.SIGSTOP, 20, "the old one is gone"
        )
        installation.ready()
        after = _serving(installation)
        assert (after["uid"], after["pid"]) == (before["uid"], before["pid"]), "the server was adopted"
        return Outcome(detected, time.monotonic() - began, adopted)

    return strike


def flush_redis(installation: Installation) -> Outcome:
    """FLUSHALL: queues, beats, samples and chat buffers are gone at once."""
    import redis

    began = time.monotonic()
    url = installation.environment["INFLIGHT_REDIS_URL"]
    client = redis.Redis.from_url(url)
    client.flushall()
    client.close()
    installation.ready()
    return Outcome(None, time.monotonic() - began)


def lock_database(installation: Installation) -> Outcome:
    """The database answers nobody for 3 s: an exclusive lock, as a restart of PostgreSQL is one."""
    import sqlite3

    began = time.monotonic()
    held = sqlite3.connect(installation.stack.home / "db.sqlite3", isolation_level=None, timeout=10)
    held.execute("BEGIN EXCLUSIVE")
    time.sleep(3.0)
    held.execute("ROLLBACK")
    held.close()
    installation.ready()
    return Outcome(None, time.monotonic() - began)


def restart_postgres(installation: Installation) -> Outcome:
    """PostgreSQL is restarted as by an upgrade: every connection is cut, for a moment nobody is let in."""
    before = _serving(installation)
    began = time.monotonic()
    restart(installation.stack.environ["DATABASE_URL"], installation.stack.home / "logs/postgres.log")
    installation.until_echo()
    adopted = time.monotonic() - began
    installation.ready()
    after = _serving(installation)
    assert (after["uid"], after["pid"]) == (before["uid"], before["pid"]), "the server was adopted"
    return Outcome(None, time.monotonic() - began, adopted)


def take_ports(installation: Installation) -> Outcome:
    """Another program sits on the ports of a server that is killed: its successor takes others."""
    old = _serving(installation)
    began = time.monotonic()
    os.kill(int(old["pid"]), signal.SIGKILL)
    installation.until(lambda: gone(int(old["pid"])), 10, "the server is dead")
    with contextlib.ExitStack() as held:
        for name in ("http_port", "grpc_port", "metrics_port"):
            probe = held.enter_context(socket.socket())
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", int(old[name])))
            probe.listen()
        return _replaced(installation, old, began)


def full_disk(installation: Installation) -> Outcome:
    """A change is deployed while nothing can be written below instances/: the old revision goes on, then it passes.

    A file stands where the folder of the next server would be made, as root writes everywhere else.
    """
    before = _serving(installation)
    folder = installation.stack.home / "instances"
    aside = folder.with_name("instances.aside")
    began = time.monotonic()
    folder.rename(aside)
    folder.write_text("no room")
    try:
        installation.change(installation.profile("chaos-disk", max_batch_size=16))
        _found, seen = installation.until(
            lambda: installation.show()["reason"] == "rollout_failed", 60, "the roll-out is given up"
        )
        assert _serving(installation)["uid"] == before["uid"]
    finally:
        folder.unlink()
        aside.rename(folder)
    installation.change(installation.show()["batching"])
    installation.until(lambda: _serving(installation)["uid"] != before["uid"], 60, "the new revision serves")
    installation.ready()
    return Outcome(seen, time.monotonic() - began)


def repeat_tasks(installation: Installation) -> Outcome:
    """The same wake-ups a hundred times: a task that comes twice does nothing twice."""
    import subprocess

    before = installation.show()
    began = time.monotonic()
    code = (
        "import django; django.setup()\n"
        "from django.conf import settings\n"
        "from kombu import Queue\n"
        "from controlplane.celery import app\n"
        "queue = Queue(f'node.{settings.INFLIGHT_NODE_ID}.ctl')\n"
        "for n in range(50):\n"
        "    app.send_task('workers.reconcile', queue=queue)\n"
        "    app.send_task('workers.sweep', queue=queue)\n"
    )
    environ = {
        **installation.stack.environ,
        **installation.environment,
        "DJANGO_SETTINGS_MODULE": "controlplane.settings",
    }
    import sys

    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr[-1000:]
    time.sleep(2.0)
    installation.ready()
    after = installation.show()
    assert [each["uid"] for each in after["instances"]] == [each["uid"] for each in before["instances"]]
    return Outcome(None, time.monotonic() - began)


FAULTS: tuple[Fault, ...] = (
    Fault(
        "web, control worker, beat and telemetry killed at once",
        _process("controlplane.asgi", "ctl@", "celery -A controlplane beat", "run_telemetry"),
        short=True,
    ),
    Fault("web killed (SIGKILL)", _process("controlplane.asgi")),
    Fault("control worker killed (SIGKILL)", _process("ctl@")),
    Fault("GPU and load workers killed", _process("gpu0@", "load@")),
    Fault("beat killed", _process("celery -A controlplane beat")),
    Fault("telemetry killed", _process("run_telemetry")),
    Fault("redis killed", _process("redis-server"), short=True),
    Fault("redis flushed (FLUSHALL)", flush_redis),
    Fault("database locked for 3 s", lock_database),
    Fault("control worker stopped for 5 s (SIGSTOP)", _process("ctl@", number=signal.SIGSTOP)),
    Fault("web stopped for 5 s (SIGSTOP)", _process("controlplane.asgi", number=signal.SIGSTOP)),
    Fault("the same tasks 100 times", repeat_tasks),
    Fault("PostgreSQL restarted", restart_postgres, postgres=True),
    Fault("disk full while a change is deployed", full_disk),
    Fault("tritonserver killed (SIGKILL)", kill_server, loses=True, short=True),
    Fault("the model's process killed (SIGKILL)", kill_stub, loses=True),
    Fault("tritonserver stopped (SIGSTOP)", stop_server, loses=True),
    Fault("the model's process stopped (SIGSTOP)", stop_stub, loses=True),
    Fault("ports taken by another program", take_ports, loses=True),
)
